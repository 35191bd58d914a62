package api_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/domain"
)

// importLines imports a text and returns the last frame, with all bad lines.
func (a *actor) importLines(query, text string, headers ...string) object {
	a.t.Helper()
	headers = append([]string{"Content-Type", ndjson}, headers...)
	frames := a.send("POST", "/v1/import"+query, text, headers...).want(200).lines()
	last := frames[len(frames)-1]
	var bad list
	for _, frame := range frames {
		if some, ok := frame["bad"].(list); ok {
			bad = append(bad, some...)
		}
	}
	last["bad"] = bad
	return last
}

func TestImport(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	var text strings.Builder
	for i := range 2500 {
		fmt.Fprintf(&text, `{"stream":"order-%d","type":"Happened","time":"2025-01-02T03:04:05Z","data":{"n":%d}}`+"\n", i%700, i/700)
	}
	lines := text.String()
	equal(t, "the report", a.importLines("?name=a", lines), object{"lines": 2500, "appended": 2500, "duplicates": 0, "badLines": 0, "bad": nil, "position": 2500, "done": true})
	equal(t, "the report of a repeat", a.importLines("?name=a", lines), object{"lines": 2500, "appended": 0, "duplicates": 2500, "badLines": 0, "bad": nil, "position": 2500, "done": true})
	// The first import was cut off, and this one is longer: only new lines are appended.
	more := lines + `{"stream":"order-1","type":"Late","data":null,"metadata":null}` + "\n\n" + lines[:strings.IndexByte(lines, '\n')]
	equal(t, "the report of a longer one", a.importLines("?name=a", more), object{"lines": 2503, "appended": 2, "duplicates": 2500, "badLines": 0, "bad": nil, "position": 2502, "done": true})
	equal(t, "a compressed one", a.importLines("?name=a", string(zstded([]byte(lines))), "Content-Encoding", "zstd")["duplicates"], 2500)
	equal(t, "another name", a.importLines("?name=b", lines[:strings.IndexByte(lines, '\n')])["appended"], 1)

	// In the order of the lines, even across streams.
	var order []string
	for _, line := range a.get("/v1/streams/$all?count=1500", "Accept", ndjson).want(200).lines() {
		order = append(order, line["stream"].(string))
	}
	for i, stream := range order {
		if want := fmt.Sprintf("order-%d", i%700); stream != want {
			t.Fatalf("the event at position %d is of %s, want %s", i+1, stream, want)
		}
	}
}

func TestImportReportsBadLines(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	id := domain.NewEventID().String()
	other := domain.NewEventID().String()
	text := strings.Join([]string{
		`{"stream":"a-1","id":"` + id + `","type":"T","data":1}`,
		`no JSON`,
		`{"stream":"a","type":"T","data":1}`,
		`{"stream":"a-1","type":"T"}`,
		`{"stream":"a-1","type":"T","data":1,"colour":2}`,
		`{"stream":"a-1","type":"T","data":"` + strings.Repeat("x", 3<<20) + `"}`,
		`{"stream":"a-1","type":"T","data":1}`,
		`{"stream":"b-1","id":"` + other + `","type":"T","data":1}`,
		`{"stream":"a-1","id":"` + id + `","type":"T","data":2}`, // the same id with other content
		`{"stream":"c-1","id":"` + id + `","type":"T","data":1}`,
		`{"stream":"b-1","id":"` + other + `","type":"T","data":1}`, // a duplicate within the import
		`{"stream":"d-1","id":"` + domain.NewEventID().String() + `","type":"T","data":1,"version":9,"position":9,"recordedAt":"2020-01-01T00:00:00Z"}`,
	}, "\n")
	a := w.tenant("acme")
	report := a.importLines("?strict=false", text)
	equal(t, "the report", without(report, "bad"), object{"lines": 12, "appended": 3, "duplicates": 1, "badLines": 8, "position": 3, "done": true})
	reasons := map[float64]string{}
	for _, bad := range report["bad"].(list) {
		reasons[bad.(object)["line"].(float64)] = bad.(object)["reason"].(string)
	}
	for line, reason := range map[float64]string{2: "expected an object", 3: "stream: ", 4: "data: required, but missing", 5: "colour", 6: "the line has more than", 7: "id: the line has no id", 9: "event-id-conflict", 10: "event-id-conflict"} {
		if !strings.Contains(reasons[line], reason) {
			t.Errorf("line %v is bad for %q, want something with %q", line, reasons[line], reason)
		}
	}

	strict := w.tenant("strict")
	report = strict.importLines("", text)
	equal(t, "the strict report", list{report["appended"], report["badLines"], report["position"], report["done"]}, list{1, 1, 1, true})
	conflict := strings.Join([]string{
		`{"stream":"x-1","id":"` + domain.NewEventID().String() + `","type":"T","data":1}`,
		`{"stream":"x-1","id":"` + id + `","type":"Other","data":1}`,
		`{"stream":"x-2","id":"` + domain.NewEventID().String() + `","type":"T","data":1}`,
	}, "\n")
	report = strict.importLines("", conflict)
	equal(t, "the strict report of a conflict", list{report["appended"], report["badLines"], report["bad"].(list)[0].(object)["line"]}, list{1, 1, 2})
	strict.get("/v1/streams/x-2").wantProblem(404, domain.CodeNotFound, "")

	a.send("POST", "/v1/import", "{}", "Content-Type", "text/plain").wantProblem(415, "unsupported-media-type", "Content-Type")
	a.send("POST", "/v1/import?nmae=x", "{}", "Content-Type", ndjson).wantProblem(400, domain.CodeInvalidRequest, "query nmae")
	a.send("POST", "/v1/import", "no gzip", "Content-Type", ndjson, "Content-Encoding", "gzip").wantProblem(400, domain.CodeInvalidRequest, "body")
	cut := gzipped([]byte(strings.Repeat(text, 5)))
	report = a.importLines("?strict=false", string(cut[:len(cut)/2]), "Content-Encoding", "gzip")
	equal(t, "the end of a body that was cut off", list{report["error"].(object)["code"], report["done"]}, list{"invalid-request", nil})
}

// A check reports every bad line, and damage at the end of the body, and appends nothing.
func TestImportCheck(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	line := `{"stream":"a-1","type":"T","data":1}` + "\n"
	report := a.importLines("?check=true&name=a", line+"x\n"+line+`{"stream":"a-1"}`)
	equal(t, "the report", without(report, "bad"), object{"lines": 4, "appended": 0, "duplicates": 0, "badLines": 2, "done": true})
	damaged := gzipped([]byte(strings.Repeat(line, 5000)))
	damaged[len(damaged)-8] ^= 1 // of the checksum
	report = a.importLines("?check=true&name=a", string(damaged), "Content-Encoding", "gzip")
	equal(t, "the report of a damaged body", list{report["error"].(object)["code"], report["done"]}, list{"invalid-request", nil})
	a.get("/v1/streams/a-1").wantProblem(404, domain.CodeNotFound, "")
	equal(t, "a good one", a.importLines("?check=true&name=a", line)["badLines"], 0)
}

// Other content under the name of an earlier import is not a duplicate, and changes nothing.
func TestImportOfOtherContentUnderTheSameName(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	line := func(n int) string { return fmt.Sprintf(`{"stream":"a-%d","type":"T","data":%d}`, n%3, n) + "\n" }
	equal(t, "the first", a.importLines("?name=a", line(1)+line(2)+line(2)+line(3))["appended"], 4)
	for what, text := range map[string]string{"changed": line(1) + line(9) + line(2), "shifted": line(2) + line(2) + line(3), "another": line(7)} {
		report := a.importLines("?name=a", text)
		if bad := report["bad"].(list); report["appended"] != 0.0 || !strings.Contains(bad[0].(object)["reason"].(string), "an import of this name has brought another event in this line") {
			t.Errorf("%s: %v", what, report)
		}
	}
	equal(t, "one that has grown", a.importLines("?name=a", line(1)+line(2)+line(2)+line(3)+line(4)), object{"lines": 5, "appended": 1, "duplicates": 4, "badLines": 0, "bad": nil, "position": 5, "done": true})

	// Earlier releases derived ids from content.
	sum := sha256.Sum256([]byte(strings.TrimSpace(line(1))))
	b := w.tenant("b")
	b.post("/v1/streams/a-1/events", list{object{"id": domain.DeriveEventID("import", "old", string(sum[:]), "0").String(), "type": "T", "data": 1}}).want(201)
	var others strings.Builder
	for n := range 30 {
		others.WriteString(line(100 + n))
	}
	for _, text := range []string{line(1) + line(2), others.String() + line(1) + line(2)} {
		for _, query := range []string{"?name=old&check=true", "?name=old"} {
			report := b.importLines(query, text)
			if report["error"] == nil {
				t.Fatalf("one begun by an earlier release: %v", report)
			}
			equal(t, "one begun by an earlier release", list{report["appended"], report["error"].(object)["code"], report["error"].(object)["where"]}, list{0, "conflict", "query name"})
		}
	}
}

// An export can be imported into another tenant, with the same log as the result.
func TestExportAndImport(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a, b := w.tenant("a"), w.tenant("b")
	a.append("order-1", 30)
	a.append("order-2", 1)
	a.post("/v1/streams/order-1/events", list{object{"type": "T", "data": object{"text": "a\nb \u2028 <&>"}, "metadata": list{1}, "occurredAt": "2020-01-01T00:00:00.5Z"}}).want(201)
	exported := a.get("/v1/export").want(200)
	equal(t, "the report", b.importLines("", string(exported.body))["appended"], 32)
	var left, right []object
	for _, pair := range []struct {
		to    *[]object
		lines []object
	}{{&left, exported.lines()}, {&right, b.get("/v1/export").want(200).lines()}} {
		for _, line := range pair.lines {
			*pair.to = append(*pair.to, without(line, "recordedAt"))
		}
	}
	equal(t, "the other log", right, left)
	equal(t, "an export from 31", len(a.get("/v1/export?from=31").want(200).lines()), 2)
	equal(t, "an export from behind the end", len(a.get("/v1/export?from=33").want(200).lines()), 0)
}

// An import reports progress while lines still arrive, and continues after the log was overloaded.
func TestImportTellsProgressAndIsPatient(t *testing.T) {
	t.Parallel()
	hesitant := &hesitantLog{refusals: 3}
	a := newWorld(t, func(c *api.Config) { hesitant.Appender, c.Appends = c.Appends, hesitant }).tenant("acme")
	body, lines := io.Pipe()
	request := a.request("POST", "/v1/import?name=a&strict=false", body, "Content-Type", ndjson)
	frames := make(chan string)
	go framesOf(request, frames)
	// Bad lines are reported at once, with their batch. Good lines before them may be reported separately.
	_, err := io.WriteString(lines, strings.Repeat(`{"stream":"a-1","type":"T","data":1}`+"\n", 1000)+strings.Repeat("bad\n", 1000))
	must(t, err)
	for frame := range frames {
		if strings.Contains(frame, `"done"`) {
			t.Fatalf("before the last line came: %s", frame)
		}
		if strings.Contains(frame, `"bad":[{"line":1001,`) {
			break
		}
	}
	must(t, lines.Close())
	var end string
	for end = range frames {
	}
	if !strings.Contains(end, `"appended":1000,"duplicates":0,"badLines":1000,`) || !strings.Contains(end, `"done":true`) {
		t.Errorf("the last frame is %s", end)
	}
	if hesitant.refusals != 0 {
		t.Errorf("the log was asked again too few times: %d refusals are left", hesitant.refusals)
	}
}

// A client may keep its request open: each line is appended and reported while no more lines arrive.
func TestImportOfLinesOneByOne(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	body, lines := io.Pipe()
	request := a.request("POST", "/v1/import?name=a", body, "Content-Type", ndjson)
	frames := make(chan string)
	go framesOf(request, frames)
	for n := 1; n <= 3; n++ {
		_, err := io.WriteString(lines, `{"stream":"a-1","type":"T","data":1}`+"\n\n")
		must(t, err)
		if frame := <-frames; !strings.Contains(frame, fmt.Sprintf(`"appended":%d,`, n)) || strings.Contains(frame, `"done"`) {
			t.Errorf("frame %d is %s", n, frame)
		}
	}
	must(t, lines.Close())
	if frame := <-frames; !strings.Contains(frame, `"appended":3`) || !strings.Contains(frame, `"done":true`) {
		t.Errorf("the last frame is %s", frame)
	}
	if frame, more := <-frames; more {
		t.Errorf("behind the last frame comes %s", frame)
	}
}

// framesOf sends a request and passes on the lines of its answer as they arrive.
func framesOf(request *http.Request, frames chan<- string) {
	defer close(frames)
	response, err := web.Do(request)
	if err != nil {
		frames <- err.Error()
		return
	}
	defer response.Body.Close()
	scanner := bufio.NewScanner(response.Body)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		frames <- scanner.Text()
	}
}

type hesitantLog struct {
	api.Appender
	refusals int
}

func (l *hesitantLog) Append(ctx context.Context, tenant domain.TenantID, request domain.Append) (domain.Appended, error) {
	if l.refusals > 0 {
		l.refusals--
		return domain.Appended{}, domain.Errorf(domain.CodeTooManyRequests, "", "too much is waiting")
	}
	return l.Appender.Append(ctx, tenant, request)
}

// The last frame reports a fault in the middle of an import, without its details.
func TestImportTellsOfAFault(t *testing.T) {
	t.Parallel()
	a := newWorld(t, func(c *api.Config) { c.Appends = brokenLog{} }).tenant("acme")
	report := a.importLines("?name=a", `{"stream":"a-1","type":"T","data":1}`)
	problem, _ := report["error"].(object)
	equal(t, "the error", list{problem["code"], problem["status"], report["done"]}, list{"internal", 500, nil})
	if text := fmt.Sprint(maps.All(problem), problem); strings.Contains(text, "secret") {
		t.Errorf("the error says too much: %s", text)
	}
}

type brokenLog struct{}

func (brokenLog) Append(context.Context, domain.TenantID, domain.Append) (domain.Appended, error) {
	return domain.Appended{}, errors.New("a secret of the inside")
}
