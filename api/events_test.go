package api_test

import (
	"bufio"
	"compress/gzip"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/domain"
)

const ndjson = "application/x-ndjson"

func TestReadPages(t *testing.T) {
	t.Parallel()
	a := newWorld(t, nil).tenant("acme")
	for i := range 5 {
		a.append(fmt.Sprintf("order-%d", i%2), 3)
		a.append("customer-1", 1)
	}
	forward := follow(a, "/v1/streams/$all?count=7")
	equal(t, "all pages forward", forward, numbers(1, 20))
	equal(t, "another spelling of $all", follow(a, "/v1/streams/%24all"), numbers(1, 20))
	backward := follow(a, "/v1/streams/$all?count=6&direction=backward")
	slices.Reverse(backward)
	equal(t, "all pages backward", backward, numbers(1, 20))
	equal(t, "a page from 18", follow(a, "/v1/streams/$all?from=18"), []int{18, 19, 20})
	equal(t, "a page from behind the head", follow(a, "/v1/streams/$all?from=21"), []int(nil))
	equal(t, "backward from 2", follow(a, "/v1/streams/$all?from=2&direction=backward"), []int{2, 1})
	equal(t, "a category", follow(a, "/v1/categories/customer/events?count=2"), []int{4, 8, 12, 16, 20})
	equal(t, "a filter by category", follow(a, "/v1/streams/$all?count=2&categories=customer,nothing"), []int{4, 8, 12, 16, 20})
	equal(t, "a filter by type", follow(a, "/v1/streams/$all?types=Other"), []int(nil))
	equal(t, "an empty category", follow(a, "/v1/categories/nothing/events"), []int(nil))
	equal(t, "a stream", follow(a, "/v1/streams/order-1?count=4"), []int{5, 6, 7, 13, 14, 15})
	equal(t, "a stream backward from version 2", follow(a, "/v1/streams/order-1?count=1&from=2&direction=backward"), []int{6, 5})
	equal(t, "a stream from behind its end", follow(a, "/v1/streams/order-1?from=7"), []int(nil))
	equal(t, "the stream's ETag", a.get("/v1/streams/order-1?count=1").header.Get("ETag"), `"6"`)
	exact := a.get("/v1/streams/$all?count=20").want(200)
	equal(t, "the link behind the last page", exact.next(), "")
	a.get("/v1/streams/order-7").wantProblem(404, domain.CodeNotFound, "")
	for query, where := range map[string]string{
		"from=0": "query from", "from=x": "query from", "count=0": "query count", "count=1001": "query count", "direction=up": "query direction",
		"form=1": "query form", "from=1&from=2": "query from", "from=99999999999999999999": "query from", "types=a,,b": "query types", "categories=a-b": "query categories",
	} {
		a.get("/v1/streams/$all?"+query).wantProblem(400, domain.CodeInvalidRequest, where)
	}
}

// follow reads pages by their links and returns the positions of their events.
func follow(a *actor, path string) []int {
	a.t.Helper()
	var all []int
	for path != "" {
		page := a.get(path).want(200)
		all = append(all, positions(page.at("events"))...)
		path = page.next()
	}
	return all
}

func numbers(from, to int) []int {
	var all []int
	for i := from; i <= to; i++ {
		all = append(all, i)
	}
	return all
}

func TestReadLines(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	const count = 4500 // more than two slices
	a.append("order-1", count)
	a.append("order-2", 1)
	for path, want := range map[string][]int{
		"/v1/streams/$all":                    numbers(1, count+1),
		"/v1/streams/$all?from=4400&count=50": numbers(4400, 4449),
		"/v1/streams/order-1":                 numbers(1, count),
		"/v1/streams/order-1?from=4499":       {4499, 4500},
		"/v1/categories/order/events":         numbers(1, count+1),
		"/v1/streams/$all?from=9999":          nil,
		"/v1/streams/$all?types=Nothing":      nil,
	} {
		for _, encoding := range []string{"", "gzip", "zstd", "gzip, zstd;q=0.5", "identity", "br"} {
			got := a.get(path, "Accept", ndjson, "Accept-Encoding", encoding).want(200)
			equal(t, "the type", got.header.Get("Content-Type"), ndjson)
			decompress(t, got)
			var all []int
			for _, line := range got.lines() {
				all = append(all, int(line["position"].(float64)))
			}
			equal(t, path+" as lines, "+encoding, all, want)
		}
	}
	back := a.get("/v1/streams/order-1?direction=backward&count=3", "Accept", "text/html, application/x-ndjson;q=0.9").want(200).lines()
	equal(t, "lines backward", list{len(back), back[0]["version"], back[2]["version"]}, list{3, count, count - 2})
	a.get("/v1/streams/order-7", "Accept", ndjson).wantProblem(404, domain.CodeNotFound, "")
	page := a.get("/v1/streams/$all?count=1000", "Accept-Encoding", "zstd").want(200)
	equal(t, "a page's encoding", page.header.Get("Content-Encoding"), "zstd")
	decompress(t, page)
	equal(t, "a page compressed", positions(page.at("events")), numbers(1, 1000))
	small := a.get("/v1/streams/$all?count=1", "Accept-Encoding", "gzip").want(200)
	equal(t, "a small page's encoding", small.header.Get("Content-Encoding"), "")
}

// decompress replaces the answer's body by the decompressed body.
func decompress(t *testing.T, a *answer) {
	t.Helper()
	var r io.Reader
	var err error
	switch encoding := a.header.Get("Content-Encoding"); encoding {
	case "":
		return
	case "gzip":
		r, err = gzip.NewReader(strings.NewReader(string(a.body)))
	case "zstd":
		var decoder *zstd.Decoder
		decoder, err = zstd.NewReader(strings.NewReader(string(a.body)), zstd.WithDecoderConcurrency(1))
		if err == nil {
			defer decoder.Close()
		}
		r = decoder
	default:
		t.Fatalf("the answer is encoded as %s", encoding)
	}
	must(t, err)
	a.body, err = io.ReadAll(r)
	must(t, err)
}

// The service stops reading the log for a client that disconnects or stops reading.
func TestLeavingEndsReading(t *testing.T) {
	t.Parallel()
	for name, stall := range map[string]bool{"leaves": false, "stalls": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ended := make(chan struct{})
			w := setup{change: func(c *api.Config) { c.StallTimeout = 300 * time.Millisecond }, ended: readsEnd(ended)}.start(t)
			a := w.tenant("acme")
			a.appendLongLog()
			request := a.request("GET", "/v1/streams/$all", nil, "Accept", ndjson)
			host, err := url.Parse(w.url)
			must(t, err)
			conn, err := net.Dial("tcp", host.Host)
			must(t, err)
			defer conn.Close()
			must(t, request.Write(conn))
			_, err = bufio.NewReader(conn).ReadString('\n')
			must(t, err)
			if !stall {
				must(t, conn.Close())
			}
			select {
			case <-ended:
			case <-time.After(patience):
				t.Error("the log is still being read")
			}
		})
	}
}

// readsEnd closes ended when a request that reads a log has ended.
func readsEnd(ended chan struct{}) func(*http.Request) {
	return func(request *http.Request) {
		if request.Method == http.MethodGet && strings.HasPrefix(request.URL.Path, "/v1/streams/") {
			close(ended)
		}
	}
}

// appendLongLog appends more than fits into the buffers of a connection.
func (a *actor) appendLongLog() {
	a.t.Helper()
	data := make([]byte, 700_000)
	for range 12 {
		var events list
		for range 4 {
			_, _ = rand.Read(data)
			events = append(events, object{"type": "T", "data": data})
		}
		a.post("/v1/streams/a-1/events", events).want(201)
	}
}

func TestListStreams(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	for _, stream := range []string{"order-2", "order-10", "customer-1", "order-1"} {
		a.append(stream, 1)
	}
	names := func(path string) []string {
		var all []string
		for path != "" {
			page := a.get(path).want(200)
			for _, name := range page.at("streams").(list) {
				all = append(all, name.(string))
			}
			path = page.next()
		}
		return all
	}
	equal(t, "all", names("/v1/streams?pageSize=3"), []string{"customer-1", "order-1", "order-10", "order-2"})
	equal(t, "a category", names("/v1/streams?category=order&pageSize=1"), []string{"order-1", "order-10", "order-2"})
	equal(t, "a prefix", names("/v1/streams?prefix=order-1&pageSize=1"), []string{"order-1", "order-10"})
	a.get("/v1/streams?pageToken=xyz").wantProblem(400, domain.CodeInvalidRequest, "query pageToken")
	a.get("/v1/streams?pageSize=1001").wantProblem(400, domain.CodeInvalidRequest, "query pageSize")

	info := a.get("/v1/streams/order-2/metadata").want(200)
	equal(t, "the metadata", without(info.json(), "firstAt", "lastAt", "bytes"), object{"stream": "order-2", "version": 1, "events": 1, "firstVersion": 1})
	equal(t, "the ETag", info.header.Get("ETag"), `"1"`)
	a.get("/v1/streams/order-7/metadata").wantProblem(404, domain.CodeNotFound, "")
}

// A period ends each way of reading at the same events: pages and lines, in both directions, of all sources.
func TestReadsOfAPeriod(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	for range 4 {
		a.append("order-1", 2)
		a.append("customer-1", 1)
	}
	at := func(position int) string {
		return url.QueryEscape(a.get(fmt.Sprintf("/v1/streams/$all?from=%d&count=1", position)).want(200).text("events", 0, "recordedAt"))
	}
	// Positions 4 to 8: the third append to order-1 is at 7 and 8, and customer-1 has 6.
	period := "since=" + at(4) + "&until=" + at(9)
	for path, want := range map[string][]int{
		"/v1/streams/$all?count=2&" + period:                               {4, 5, 6, 7, 8},
		"/v1/streams/$all?direction=backward&count=2&" + period:            {8, 7, 6, 5, 4},
		"/v1/streams/$all?from=6&" + period:                                {6, 7, 8},
		"/v1/streams/$all?from=6&direction=backward&" + period:             {6, 5, 4},
		"/v1/streams/$all?from=100&direction=backward&" + period:           {8, 7, 6, 5, 4},
		"/v1/streams/$all?from=9&" + period:                                nil,
		"/v1/streams/$all?from=3&direction=backward&" + period:             nil,
		"/v1/streams/$all?categories=order,nothing&count=1&" + period:      {4, 5, 7, 8},
		"/v1/categories/customer/events?" + period:                         {6},
		"/v1/categories/order/events?direction=backward&count=3&" + period: {8, 7, 5, 4},
		"/v1/streams/order-1?count=1&" + period:                            {4, 5, 7, 8},
		"/v1/streams/order-1?count=1&direction=backward&" + period:         {8, 7, 5, 4},
		"/v1/streams/order-1?from=4&" + period:                             {5, 7, 8},
		"/v1/streams/order-1?from=4&direction=backward&" + period:          {5, 4},
		"/v1/streams/customer-1?since=" + at(4):                            {6, 9, 12},
		"/v1/streams/customer-1?until=" + at(4):                            {3},
		"/v1/streams/customer-1?since=" + at(4) + "&until=" + at(6):        nil,
		"/v1/streams/$all?until=" + at(1):                                  nil,
		"/v1/streams/$all?direction=backward&until=" + at(1):               nil,
		"/v1/streams/$all?since=2999-01-01T00:00:00Z":                      nil,
		"/v1/streams/$all?direction=backward&since=2999-01-01T00:00:00Z":   nil,
		"/v1/streams/$all?since=" + at(7) + "&until=" + at(4):              nil,
	} {
		equal(t, path, follow(a, path), want)
		var lines []int
		for _, line := range a.get(path, "Accept", ndjson).want(200).lines() {
			lines = append(lines, int(line["position"].(float64)))
		}
		if !strings.Contains(path, "count=") {
			equal(t, "lines of "+path, lines, want)
		}
	}
	read := func(body string) []int {
		return positions(a.post("/v1/query", body).want(200).at("events"))
	}
	since, until := strings.ReplaceAll(at(4), "%3A", ":"), strings.ReplaceAll(at(9), "%3A", ":")
	equal(t, "a query", read(`{"query": {"items": [{}]}, "since": "`+since+`", "until": "`+until+`"}`), []int{4, 5, 6, 7, 8})
	equal(t, "a query backward", read(`{"query": {"items": [{}]}, "direction": "backward", "since": "`+since+`", "before": 6}`), []int{5, 4})
	none := a.post("/v1/query", `{"query": {"items": [{}]}, "until": "2020-01-01T00:00:00Z"}`).want(200)
	equal(t, "a query before all events", list{none.at("events"), none.at("position"), none.at("more")}, list{list{}, 0, false})
	for _, path := range []string{"/v1/streams/$all", "/v1/export", "/v1/streams/order-1"} {
		a.get(path+"?since=yesterday").wantProblem(400, domain.CodeInvalidRequest, "query since")
		a.get(path+"?until=0001-01-01T00:00:00Z").wantProblem(400, domain.CodeInvalidRequest, "query until")
	}

	// Parts of a log can be exported and imported.
	b := w.tenant("other")
	for _, part := range []string{"categories=customer", "types=Counted&to=8&" + period, "from=9&categories=order,nothing", ""} {
		progress := b.post("/v1/import", a.get("/v1/export?"+part).want(200).body, "Content-Type", ndjson).want(200).lines()
		equal(t, part, progress[len(progress)-1]["badLines"], any(float64(0)))
	}
	equal(t, "events imported by parts", len(b.get("/v1/export").want(200).lines()), 12)
}
