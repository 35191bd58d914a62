package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// longNumbers are JSON values that JSONB prints far longer than they are sent.
var longNumbers = map[string]string{
	"one number":   `{"a":[1e131071]}`,
	"one fraction": `{"a":[1e-16383]}`,
	"many numbers": `{"a":[1` + strings.Repeat(",1e308", 7000) + `]}`,
}

// Values that would be stored and printed at many times their length are refused wherever they may come in.
func TestLongNumbersAreRefusedEverywhere(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("a")
	a.append("order-1", 1)
	const structured, batch = "application/cloudevents+json", "application/cloudevents-batch+json"
	cloud := func(rest string) string {
		return `{"specversion":"1.0","id":"1","source":"s","type":"T","subject":"7",` + rest + `}`
	}
	for name, long := range longNumbers {
		quoted := strings.ReplaceAll(long, `"`, `\"`)
		for _, c := range []struct {
			method, path, body string
			headers            []string
		}{
			{"POST", "/v1/streams/order-1/events", `[{"type":"T","data":` + long + `}]`, nil},
			{"POST", "/v1/streams/order-1/events", `[{"type":"T","data":1,"metadata":` + long + `}]`, nil},
			{"POST", "/v1/append", `{"streams":[{"stream":"order-1","events":[{"type":"T","data":` + long + `}]}]}`, nil},
			{"POST", "/v1/publish", `{"topic":"order","payload":` + long + `}`, nil},
			{"POST", "/v1/publish", `[{"topic":"order","payload":1},{"topic":"order","payload":` + long + `}]`, nil},
			{"POST", "/v1/publish?topic=order", cloud(`"data":` + long), []string{"Content-Type", structured}},
			{"POST", "/v1/publish?topic=order", "[" + cloud(`"data":`+long) + "]", []string{"Content-Type", batch}},
			{"POST", "/v1/publish?topic=order", cloud(`"data":1,"manifoldmetadata":"` + quoted + `"`), []string{"Content-Type", structured}},
			{"POST", "/v1/publish?topic=order", cloud(`"data":1,"other":1e131071`), []string{"Content-Type", structured}},
			{"POST", "/v1/publish?topic=order", long, []string{"Content-Type", "application/json", "Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Source", "s", "Ce-Type", "T", "Ce-Subject", "7"}},
			{"POST", "/v1/streams/order-1/events", long, []string{"Content-Type", "application/json", "Ce-Specversion", "1.0", "Ce-Id", "1", "Ce-Source", "s", "Ce-Type", "T"}},
			{"POST", "/v1/snapshots/order-1", `{"version":1,"tag":"mine","state":` + long + `}`, nil},
			{"PUT", "/v1/aggregates/order", `{"on":{"T":"state"},"initial":` + long + `}`, nil},
			{"POST", "/v1/projections", `{"name":"p","on":{"T":"doc"},"initial":` + long + `}`, nil},
			{"PUT", "/v1/subscriptions/g", `{"source":"order","x":` + long + `}`, nil},
			{"PUT", "/v1/webhooks/w", `{"url":"http://127.0.0.1/","x":` + long + `}`, nil},
			{"PUT", "/v1/upcasters/T/1", `{"expression":"event.data","x":` + long + `}`, nil},
		} {
			answer := a.send(c.method, c.path, c.body, c.headers...)
			if answer.status/100 != 4 || answer.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s: %s %s %.80s is answered %d %.200s", name, c.method, c.path, c.body, answer.status, answer.body)
			}
		}
		imported := a.post("/v1/import", `{"stream":"order-1","id":"`+domain.NewEventID().String()+`","type":"T","data":`+long+"}\n", "Content-Type", "application/x-ndjson")
		if !strings.Contains(string(imported.body), "without") {
			t.Errorf("%s: the import is answered %d %.300s", name, imported.status, imported.body)
		}
		g := a.gateway()
		g.send("PUBLISH", object{"message": object{"topic": "order", "payload": json.RawMessage(long)}})
		g.wantERR(g.find("a refusal", func(m object) bool { return m["op"] == "ERR" }), domain.CodeInvalidJSON, "message")
	}
	problem := a.post("/v1/streams/order-1/events", `[{"type":"T","data":{"amounts":[1,1e400]}}]`).wantProblem(400, domain.CodeInvalidJSON, "events[0].data")
	if detail := problem["detail"].(string); !strings.Contains(detail, "/0/data/amounts/1") || !strings.Contains(detail, "send it as a string") {
		t.Errorf("the problem says: %s", detail)
	}
	equal(t, "the log", a.get("/v1/streams/order-1/metadata").want(200).at("version"), 1)
}

// Numbers that clients usually send are accepted, and keep their values.
func TestNumbersOfDoublesAndIntegersAreTaken(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("a")
	numbers := `[1e308,-1.7976931348623157e308,1e-320,4.9406564584124654e-324,0e999999,12.50,9223372036854775807,18446744073709551615,` + strings.Repeat("7", 78) + `]`
	a.post("/v1/streams/order-1/events", `[{"type":"T","data":`+numbers+`}]`).want(201)
	got := string(a.get("/v1/streams/order-1").want(200).body)
	for _, part := range []string{" 12.50, 9223372036854775807, 18446744073709551615, " + strings.Repeat("7", 78) + "]", "[1" + strings.Repeat("0", 308) + ", "} {
		if !strings.Contains(got, part) {
			t.Errorf("there is no %s in %s", part, got)
		}
	}
}

// Folds cannot make documents or states that are printed at many times their length, either.
func TestFoldsCannotMakeLongNumbers(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("a")
	const fold = `{"all": event.data.l.map(x, double(x) * 1.5e300)}`
	for name, mode := range map[string]string{"async": "async", "live": "live"} {
		a.post("/v1/projections", object{"name": name, "mode": mode, "on": object{"T": fold}}).want(201)
	}
	a.send("PUT", "/v1/aggregates/order", object{"on": object{"T": fold}}).want(200, 201)
	a.post("/v1/streams/order-1/events", `[{"type":"T","data":{"l":[1`+strings.Repeat(",1", 8000)+`]}}]`).want(201)
	a.get("/v1/streams/order-1/state").wantProblem(409, domain.CodeFaulted, "state")
	if detail := a.get("/v1/projections/live/documents/order-1").want(409).text("detail"); !strings.Contains(detail, "1e300") {
		t.Errorf("the live projection says %s", detail)
	}
	if detail := a.get("/v1/projections/async/documents/order-1?minPosition=1").want(409).text("detail"); !strings.Contains(detail, "1e300") {
		t.Errorf("the projection says %s", detail)
	}
}
