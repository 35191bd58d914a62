package api_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/manifold-es/manifold/domain"
)

func TestAppendToAStream(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	id := domain.NewEventID().String()
	body := list{object{"id": id, "type": "OrderPlaced", "data": object{"n": 1}, "metadata": object{"by": "me"}, "occurredAt": "2026-03-01T10:30:00.123456789+01:00"}}

	first := a.post("/v1/streams/order-1/events", body, "Expected-Version", "none").want(201)
	equal(t, "the answer", first.json(), object{
		"stream": "order-1", "version": 1, "position": 1, "events": list{object{"id": id, "version": 1, "position": 1}},
	})
	equal(t, "the ETag", first.header.Get("ETag"), `"1"`)
	again := a.post("/v1/streams/order-1/events", body, "Expected-Version", "none").want(200)
	equal(t, "the answer to a repeat", again.json(), first.json())

	event := a.get("/v1/streams/order-1").want(200).at("events", 0).(object)
	equal(t, "the event", without(event, "recordedAt"), object{
		"id": id, "stream": "order-1", "version": 1, "position": 1, "type": "OrderPlaced", "data": object{"n": 1},
		"metadata": object{"by": "me"}, "occurredAt": "2026-03-01T09:30:00.123456Z",
	})

	conflict := a.post("/v1/streams/order-1/events", list{object{"type": "X", "data": 1}}, "Expected-Version", "none").
		wantProblem(409, domain.CodeVersionConflict, "")
	equal(t, "the current version", conflict["currentVersion"], 1)
	failed := a.post("/v1/streams/order-1/events", list{object{"type": "X", "data": 1}}, "If-None-Match", "*").
		wantProblem(412, domain.CodePreconditionFailed, "")
	equal(t, "the current version", failed["currentVersion"], 1)
	a.post("/v1/streams/order-1/events", list{object{"type": "X", "data": 1}}, "If-Match", `"2"`).wantProblem(412, domain.CodePreconditionFailed, "")
	a.post("/v1/streams/order-9/events", list{object{"type": "X", "data": 1}}, "If-Match", `*`).wantProblem(412, domain.CodePreconditionFailed, "")
	for i, headers := range [][]string{{"If-Match", `"1"`}, {"If-Match", "*"}, {"Expected-Version", "3"}, {"Expected-Version", "exists"}, {"Expected-Version", "any"}, nil} {
		got := a.post("/v1/streams/order-1/events", list{object{"type": "X", "data": nil}}, headers...).want(201).number("version")
		equal(t, "the version", got, i+2)
	}
	a.post("/v1/streams/order-1/events", list{object{"id": id, "type": "Other", "data": 1}}).wantProblem(409, domain.CodeEventIDConflict, "")
	a.post("/v1/streams/order-1/events", append(body, object{"type": "X", "data": 1})).wantProblem(409, domain.CodePartialDuplicate, "")
	a.post("/v1/streams/order-2/events", append(body, body...)).wantProblem(400, domain.CodeDuplicateID, "events[1].id")
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	body := list{object{"type": "A", "data": 1}, object{"type": "A", "data": 1}}
	first := a.post("/v1/streams/order-1/events", body, "Idempotency-Key", "k-1").want(201)
	equal(t, "a repeat", a.post("/v1/streams/order-1/events", body, "Idempotency-Key", "k-1").want(200).json(), first.json())
	a.post("/v1/streams/order-1/events", list{object{"type": "B", "data": 1}}, "Idempotency-Key", "k-1").wantProblem(409, domain.CodeEventIDConflict, "")
	a.post("/v1/streams/order-1/events", body, "Idempotency-Key", "k-2").want(201)
	several := object{"streams": list{object{"stream": "a-1", "events": body}, object{"stream": "b-1", "events": body}}}
	made := a.post("/v1/append", several, "Idempotency-Key", "k-1").want(201)
	equal(t, "a repeat over streams", a.post("/v1/append", several, "Idempotency-Key", "k-1").want(200).json(), made.json())
	for _, key := range []string{"two words", strings.Repeat("k", 201)} {
		a.post("/v1/streams/order-1/events", body, "Idempotency-Key", key).wantProblem(400, domain.CodeInvalidRequest, "Idempotency-Key")
	}
}

func TestAppendToSeveralStreamsIsAllOrNothing(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	one := func(stream string, expected any) object {
		return object{"stream": stream, "expectedVersion": expected, "events": list{object{"type": "T", "data": object{}}}}
	}
	answer := a.post("/v1/append", object{"streams": list{one("a-1", "none"), one("b-1", 0), one("c-1", "any")}}).want(201)
	equal(t, "the position", answer.number("position"), 3)
	equal(t, "the streams", []string{answer.text("streams", 0, "stream"), answer.text("streams", 2, "stream")}, []string{"a-1", "c-1"})

	problem := a.post("/v1/append", object{"streams": list{one("d-1", "none"), one("a-1", 7)}}).wantProblem(409, domain.CodeVersionConflict, "")
	equal(t, "the stream meant", list{problem["stream"], problem["currentVersion"]}, list{"a-1", 1})
	a.get("/v1/streams/d-1").wantProblem(404, domain.CodeNotFound, "")
}

// Each refusal names the event and the field, and nothing is written.
func TestAppendRefuses(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	good := `{"type":"T","data":{}}`
	big := `"` + strings.Repeat("x", domain.MaxEventBytes) + `"`
	many := "[" + strings.Repeat(good+",", domain.MaxRequestEvents) + good + "]"
	for _, c := range []struct {
		body   string
		status int
		code   domain.Code
		where  string
	}{
		{``, 400, domain.CodeInvalidJSON, "events"},
		{`[`, 400, domain.CodeInvalidJSON, "events"},
		{`{}`, 400, domain.CodeInvalidRequest, "events"},
		{`[]`, 400, domain.CodeInvalidRequest, "events"},
		{`[1]`, 400, domain.CodeInvalidRequest, "events[0]"},
		{`[` + good + `] x`, 400, domain.CodeInvalidJSON, "body"},
		{`[` + good + `,{"type":"T"}]`, 400, domain.CodeInvalidRequest, "events[1].data"},
		{`[` + good + `,{"data":1}]`, 400, domain.CodeInvalidRequest, "events[1].type"},
		{`[` + good + `,{"type":"T","data":1,"topic":2}]`, 400, domain.CodeInvalidRequest, "events[1]"},
		{`[` + good + `,{"type":"T","data":1,"data":2}]`, 400, domain.CodeInvalidRequest, "events[1].data"},
		{`[{"type":"T T","data":1}]`, 400, domain.CodeInvalidRequest, "events[0].type"},
		{`[{"type":5,"data":1}]`, 400, domain.CodeInvalidRequest, "events[0].type"},
		{`[{"type":null,"data":1}]`, 400, domain.CodeInvalidRequest, "events[0].type"},
		{`[{"type":"` + strings.Repeat("t", 201) + `","data":1}]`, 400, domain.CodeInvalidRequest, "events[0].type"},
		{`[{"id":"x","type":"T","data":1}]`, 400, domain.CodeInvalidRequest, "events[0].id"},
		{`[{"id":"00000000-0000-0000-0000-000000000000","type":"T","data":1}]`, 400, domain.CodeInvalidRequest, "events[0].id"},
		{`[{"type":"T","data":1,"occurredAt":"yesterday"}]`, 400, domain.CodeInvalidRequest, "events[0].occurredAt"},
		{`[{"type":"T","data":1,"occurredAt":"0001-01-01T00:00:00Z"}]`, 400, domain.CodeInvalidRequest, "events[0].occurredAt"},
		{`[{"type":"T","data":"\u0000"}]`, 400, domain.CodeInvalidJSON, "events[0].data"},
		{`[{"type":"T","data":1,"metadata":{"a":["\u0000"]}}]`, 400, domain.CodeInvalidJSON, "events[0].metadata"},
		{`[{"type":"T","data":1e999999}]`, 400, domain.CodeInvalidJSON, "events[0].data"},
		{`[{"type":"T","data":[1` + strings.Repeat(",1e300", 7000) + `]}]`, 400, domain.CodeInvalidJSON, "events[0].data"},
		{`[` + strings.Repeat(`{"type":"T","data":[1`+strings.Repeat(",1e300", 700)+`]},`, 20) + good + `]`, 400, domain.CodeInvalidJSON, "body"},
		{`[{"type":"T","data":"` + "\xff" + `"}]`, 400, domain.CodeInvalidJSON, "events[0].data"},
		{`[{"type":"T","data":` + strings.Repeat("[", 200) + strings.Repeat("]", 200) + `}]`, 400, domain.CodeInvalidJSON, "events[0].data"},
		{`[` + good + `,{"type":"T","data":` + big + `}]`, 413, domain.CodeTooLarge, "events[1].data"},
		{many, 413, domain.CodeTooLarge, "events"},
		{`[` + good + strings.Repeat(" ", domain.MaxRequestBytes) + `]`, 413, domain.CodeTooLarge, "body"},
	} {
		answer := a.post("/v1/streams/order-1/events", c.body)
		if answer.status != c.status || answer.wantProblem(c.status, c.code, c.where)["detail"] == "" {
			t.Errorf("the body %.60q is answered %d %s", c.body, answer.status, answer.body)
		}
	}
	for _, c := range []struct {
		body  string
		where string
	}{
		{`{}`, "streams"},
		{`{"streams":[]}`, "streams"},
		{`{"streams":{}}`, "streams"},
		{`{"streams":[{"stream":"a-1"}]}`, "streams[0]"},
		{`{"streams":[{"stream":"a-1","events":[]}]}`, "streams[0].events"},
		{`{"streams":[{"stream":"a","events":[` + good + `]}]}`, "streams[0].stream"},
		{`{"streams":[{"stream":"a-1","events":[` + good + `]},{"stream":"a-1","events":[` + good + `]}]}`, "streams[1].stream"},
		{`{"streams":[{"stream":"a-1","expectedVersion":-1,"events":[` + good + `]}]}`, "streams[0].expectedVersion"},
		{`{"streams":[{"stream":"a-1","expectedVersion":1.5,"events":[` + good + `]}]}`, "streams[0].expectedVersion"},
		{`{"streams":[{"stream":"a-1","expectedVersion":"some","events":[` + good + `]}]}`, "streams[0].expectedVersion"},
		{`{"streams":[{"stream":"a-1","events":[` + good + `,{"type":"T"}]}]}`, "streams[0].events[1].data"},
		{`{"streams":[{"stream":"a-1","version":1,"events":[` + good + `]}]}`, "streams[0]"},
		{`{"streams":[{"stream":"a-1","events":[` + good + `]}],"x":1}`, "body"},
	} {
		a.post("/v1/append", c.body).wantProblem(400, domain.CodeInvalidRequest, c.where)
	}
	for _, c := range []struct {
		path    string
		headers []string
		status  int
		code    domain.Code
		where   string
	}{
		{"/v1/streams/order/events", nil, 400, domain.CodeInvalidRequest, "path streamId"},
		{"/v1/streams/order-%20/events", nil, 400, domain.CodeInvalidRequest, "path streamId"},
		{"/v1/streams/order-1/events?x=1", nil, 400, domain.CodeInvalidRequest, "query"},
		{"/v1/streams/order-1/events", []string{"Expected-Version", "-1"}, 400, domain.CodeInvalidRequest, "Expected-Version"},
		{"/v1/streams/order-1/events", []string{"If-Match", "1"}, 400, domain.CodeInvalidRequest, "If-Match"},
		{"/v1/streams/order-1/events", []string{"If-None-Match", `"1"`}, 400, domain.CodeInvalidRequest, "If-None-Match"},
		{"/v1/streams/order-1/events", []string{"If-Match", "*", "Expected-Version", "any"}, 400, domain.CodeInvalidRequest, "If-Match"},
		{"/v1/streams/order-1/events", []string{"Content-Type", "text/plain"}, 415, "unsupported-media-type", "Content-Type"},
		{"/v1/streams/order-1/events", []string{"Content-Type", "application/json; charset=latin1"}, 415, "unsupported-media-type", "Content-Type"},
		{"/v1/streams/order-1/events", []string{"Content-Encoding", "br"}, 415, "unsupported-media-type", "Content-Encoding"},
		{"/v1/streams/order-1/events", []string{"Content-Encoding", "gzip"}, 400, domain.CodeInvalidRequest, "body"},
	} {
		a.post(c.path, "["+good+"]", c.headers...).wantProblem(c.status, c.code, c.where)
	}
	equal(t, "what was written", a.get("/v1/streams/$all").want(200).json(), object{"events": list{}})
}

func TestAppendTakesCompressedBodies(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	for encoding, compress := range map[string]func([]byte) []byte{"gzip": gzipped, "zstd": zstded} {
		a.post("/v1/streams/order-1/events", compress([]byte(`[{"type":"T","data":{"a":1}}]`)), "Content-Encoding", encoding).want(201)
		// A small body that is too large after decompression is refused, too.
		bomb := compress(fmt.Appendf(nil, `[{"type":"T","data":"%s"}]`, strings.Repeat("x", 2*domain.MaxRequestBytes)))
		a.post("/v1/streams/order-1/events", bomb, "Content-Encoding", encoding).wantProblem(413, domain.CodeTooLarge, "body")
		a.post("/v1/streams/order-1/events", "nothing compressed", "Content-Encoding", encoding).wantProblem(400, domain.CodeInvalidRequest, "body")
	}
	equal(t, "the version", a.get("/v1/streams/order-1/metadata").want(200).number("version"), 2)
}

func gzipped(text []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(text); err != nil {
		panic(err)
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func zstded(text []byte) []byte {
	w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	return w.EncodeAll(text, nil)
}

// A request's traceparent is stored with its events, and is ignored when a repeated request is compared.
func TestAppendKeepsTraceparent(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	const trace, other = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b8-01"
	id := domain.NewEventID().String()
	events := list{object{"id": id, "type": "A", "data": 1}, object{"id": domain.NewEventID().String(), "type": "B", "data": 2, "metadata": object{"user": "u"}}}
	a.post("/v1/streams/order-1/events", events, "traceparent", trace).want(201)
	a.post("/v1/streams/order-1/events", events, "traceparent", other).want(200)
	a.post("/v1/streams/order-1/events", events).want(200)
	a.post("/v1/append", object{"streams": list{object{"stream": "order-1", "events": list{object{"type": "C", "data": 3}}}}}, "traceparent", trace).want(201)
	a.post("/v1/streams/order-1/events", list{object{"type": "D", "data": 4}}, "traceparent", "nonsense").want(201)
	var metadata list
	for _, event := range a.get("/v1/streams/order-1").want(200).at("events").(list) {
		metadata = append(metadata, event.(object)["metadata"])
	}
	equal(t, "metadata", metadata, list{object{"traceparent": trace}, object{"traceparent": trace, "user": "u"}, object{"traceparent": trace}, nil})
}
