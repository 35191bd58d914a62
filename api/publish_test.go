package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/domain"
)

const someTraceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// A message becomes an event of its topic: in the stream of its key, or in a new stream without a key.
func TestPublish(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	id, cause := domain.NewEventID().String(), domain.NewEventID().String()
	message := object{
		"topic": "heartbeat.web", "key": "web-1", "payload": object{"load": 0.5}, "id": id, "type": "Beat",
		"headers": object{"region": "eu"}, "tags": list{"canary", "blue"}, "caused_by": cause, "sid": "s-1", "ts": "2026-03-01T10:30:00+01:00",
	}
	first := a.post("/v1/publish", message).want(201)
	equal(t, "the answer", first.json(), object{"position": 1, "events": list{object{"id": id, "stream": "heartbeat.web-web-1", "version": 1, "position": 1}}})
	again := a.post("/v1/publish", message).want(200)
	equal(t, "the answer to a repeat", again.json(), first.json())
	equal(t, "the event", without(a.get("/v1/events/"+id).want(200).json(), "recordedAt"), object{
		"id": id, "stream": "heartbeat.web-web-1", "version": 1, "position": 1, "type": "Beat", "data": object{"load": 0.5},
		"tags": list{"blue", "canary", "cause:" + cause}, "metadata": object{"headers": object{"region": "eu"}, "tags": list{"canary", "blue"}, "caused_by": cause, "sid": "s-1"}, "occurredAt": "2026-03-01T09:30:00.000000Z",
	})

	bare := a.post("/v1/publish", `{"topic":"ping","payload":null}`).want(201)
	got := a.get("/v1/events/" + bare.text("events", 0, "id")).want(200)
	equal(t, "a message with what is needed alone", without(got.json(), "recordedAt", "id"), object{
		"stream": "ping-" + got.text("id"), "version": 1, "position": 2, "type": "ping", "data": nil,
	})
	if got.text("id")[14] != '7' {
		t.Errorf("the id %s is no UUIDv7", got.text("id"))
	}
	traced := a.post("/v1/publish", `{"topic":"ping","payload":1,"sid":"s"}`, "Traceparent", someTraceparent).want(201)
	equal(t, "the metadata", a.get("/v1/events/"+traced.text("events", 0, "id")).at("metadata"), object{"sid": "s", "traceparent": someTraceparent})
}

// A batch is published completely and in order, even if its streams alternate.
func TestPublishBatches(t *testing.T) {
	t.Parallel()
	var published []int
	a := newWorld(t, func(c *api.Config) {
		c.Observer.Published = func(transport string, events int) {
			if transport != "http" {
				t.Errorf("published by %s", transport)
			}
			published = append(published, events)
		}
	}).tenant("acme")
	batch := list{}
	for i, key := range []string{"1", "2", "1", "1", "", "2"} {
		message := object{"topic": "order", "payload": i}
		if key != "" {
			message["key"] = key
		}
		batch = append(batch, message)
	}
	first := a.post("/v1/publish", batch, "Idempotency-Key", "k-1").want(201)
	equal(t, "the position", first.at("position"), 6)
	for i, event := range objects(first.at("events")) {
		got := a.get("/v1/events/" + event["id"].(string)).want(200)
		equal(t, "the event", list{got.at("data"), got.at("position"), got.at("version"), got.at("stream")}, list{i, i + 1, event["version"], event["stream"]})
	}
	equal(t, "the answer to a repeat", a.post("/v1/publish", batch, "Idempotency-Key", "k-1").want(200).json(), first.json())
	a.post("/v1/publish", append(batch, object{"topic": "order", "payload": 7}), "Idempotency-Key", "k-1").wantProblem(409, domain.CodePartialDuplicate, "")
	a.post("/v1/publish", append(batch, object{"topic": "or-der", "payload": 7})).wantProblem(400, domain.CodeInvalidRequest, "messages[6].topic")
	id := domain.NewEventID().String()
	twice := object{"topic": "order", "key": "9", "payload": 1, "id": id}
	a.post("/v1/publish", append(batch, twice, twice)).wantProblem(400, domain.CodeDuplicateID, "messages[7].id")
	a.post("/v1/publish", twice).want(201)
	a.post("/v1/publish", object{"topic": "order", "key": "9", "payload": 2, "id": id}).wantProblem(409, domain.CodeEventIDConflict, "id")
	equal(t, "the announcements", published, []int{6, 1})
	equal(t, "the log", positions(a.get("/v1/streams/$all").at("events")), []int{1, 2, 3, 4, 5, 6, 7})

	many := make(list, 1000)
	for i := range many {
		many[i] = object{"topic": "many", "payload": i}
	}
	equal(t, "the position", a.post("/v1/publish", many).want(201).at("position"), 1007)
	a.post("/v1/publish", append(many, many[0])).wantProblem(413, domain.CodeTooLarge, "messages")
}

// Only appends accept an expected version. Publishing would ignore it, so it is refused.
func TestPublishTakesNoExpectedVersion(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	for name, value := range map[string]string{"Expected-Version": "none", "If-Match": `"1"`, "If-None-Match": "*"} {
		problem := a.post("/v1/publish", object{"topic": "order", "key": "1", "payload": 1}, name, value).wantProblem(400, domain.CodeInvalidRequest, name)
		if !strings.Contains(problem["detail"].(string), "POST /v1/streams/{streamId}/events") {
			t.Errorf("it is not said what to do: %v", problem)
		}
		event := object{"specversion": "1.0", "id": "1", "source": "s", "type": "order"}
		a.post("/v1/publish", event, "Content-Type", "application/cloudevents+json", name, value).wantProblem(400, domain.CodeInvalidRequest, name)
		body := object{"streams": list{object{"stream": "order-1", "events": list{object{"type": "A", "data": 1}}}}}
		problem = a.post("/v1/append", body, name, value).wantProblem(400, domain.CodeInvalidRequest, name)
		if !strings.Contains(problem["detail"].(string), "expectedVersion") {
			t.Errorf("it is not said what to do: %v", problem)
		}
	}
	equal(t, "the log", len(objects(a.get("/v1/streams/$all").at("events"))), 0)
}

// An event is found by each of its causes, in one message or several. A cause is a tag, and counts as one.
func TestEventsAreFoundByTheirCauses(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	first, second := domain.NewEventID().String(), domain.NewEventID().String()
	a.post("/v1/publish", list{
		object{"topic": "order", "key": "1", "payload": 1, "caused_by": strings.ToUpper(first)},
		object{"topic": "order", "key": "2", "payload": 1, "caused_by": list{first, second, first}, "tags": list{"cause:" + second, "blue"}},
		object{"topic": "order", "key": "3", "payload": 1, "tags": list{"blue"}},
	}).want(201)
	for cause, want := range map[string]list{first: {"order-1", "order-2"}, second: {"order-2"}, domain.NewEventID().String(): {}} {
		found := list{}
		for _, event := range objects(a.post("/v1/query", object{"query": object{"items": list{object{"tags": list{"cause:" + cause}}}}}).want(200).at("events")) {
			found = append(found, event["stream"])
		}
		equal(t, "what "+cause+" has caused", found, want)
	}

	tags, causes := list{}, list{}
	for i := range domain.MaxTags {
		tags = append(tags, fmt.Sprintf("t:%d", i))
		causes = append(causes, domain.NewEventID().String())
	}
	message := func(tags, causes list) list {
		return list{object{"topic": "order", "payload": 1, "tags": tags, "caused_by": causes}}
	}
	a.post("/v1/publish", message(tags[1:], causes[:1])).want(201)
	a.post("/v1/publish", message(list{}, causes)).want(201)
	for _, refused := range []list{message(tags, causes[:1]), message(list{"t"}, causes), message(list{}, append(causes, causes[0]))} {
		if problem := a.post("/v1/publish", refused).wantProblem(413, domain.CodeTooLarge, ""); problem["where"] != "messages[0].caused_by" {
			t.Errorf("too many tags are refused at %v", problem["where"])
		}
	}
}

// An error in a message names the message's own fields, and nothing is published.
func TestPublishRefuses(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	for _, c := range []struct {
		body  string
		code  domain.Code
		where string
	}{
		{`{"topic":"order"}`, domain.CodeInvalidRequest, "payload"},
		{`{"payload":1}`, domain.CodeInvalidRequest, "topic"},
		{`{"topic":"","payload":1}`, domain.CodeInvalidRequest, "topic"},
		{`{"topic":"order-1","payload":1}`, domain.CodeInvalidRequest, "topic"},
		{`{"topic":7,"payload":1}`, domain.CodeInvalidRequest, "topic"},
		{`{"topic":"order","key":"","payload":1}`, domain.CodeInvalidRequest, "key"},
		{`{"topic":"order","key":"a b","payload":1}`, domain.CodeInvalidRequest, "key"},
		{`{"topic":"order","key":null,"payload":1}`, domain.CodeInvalidRequest, "key"},
		{`{"topic":"order","type":"a b","payload":1}`, domain.CodeInvalidRequest, "type"},
		{`{"topic":"order","id":"x","payload":1}`, domain.CodeInvalidRequest, "id"},
		{`{"topic":"order","ts":"today","payload":1}`, domain.CodeInvalidRequest, "ts"},
		{`{"topic":"order","caused_by":"x","payload":1}`, domain.CodeInvalidRequest, "caused_by"},
		{`{"topic":"order","caused_by":[],"payload":1}`, domain.CodeInvalidRequest, "caused_by"},
		{`{"topic":"order","caused_by":{},"payload":1}`, domain.CodeInvalidRequest, "caused_by"},
		{`{"topic":"order","caused_by":["` + domain.NewEventID().String() + `",1],"payload":1}`, domain.CodeInvalidRequest, "caused_by"},
		{`{"topic":"order","sid":"","payload":1}`, domain.CodeInvalidRequest, "sid"},
		{`{"topic":"order","sid":"` + strings.Repeat("é", 101) + `","payload":1}`, domain.CodeInvalidRequest, "sid"},
		{`{"topic":"order","headers":[],"payload":1}`, domain.CodeInvalidRequest, "headers"},
		{`{"topic":"order","headers":{"a":1},"payload":1}`, domain.CodeInvalidRequest, "headers"},
		{`{"topic":"order","tags":{},"payload":1}`, domain.CodeInvalidRequest, "tags"},
		{`{"topic":"order","tags":["a",1],"payload":1}`, domain.CodeInvalidRequest, "tags"},
		{`{"topic":"order","payload":1,"data":1}`, domain.CodeInvalidRequest, "body"},
		{`{"topic":"order","topic":"order","payload":1}`, domain.CodeInvalidRequest, "topic"},
		{`{"topic":"order","payload":"\u0000"}`, domain.CodeInvalidJSON, "payload"},
		{`{"topic":"order","payload":1`, domain.CodeInvalidJSON, ""},
		{`{"topic":"order","payload":1}{}`, domain.CodeInvalidJSON, ""},
		{`7`, domain.CodeInvalidRequest, "body"},
		{``, domain.CodeInvalidJSON, "body"},
		{`[]`, domain.CodeInvalidRequest, "messages"},
		{`[7]`, domain.CodeInvalidRequest, "messages[0]"},
		{`[{"topic":"order","payload":1},{"topic":"order","key":"a b","payload":1}]`, domain.CodeInvalidRequest, "messages[1].key"},
		{`[{"topic":"order","payload":1},{"topic":"order"}]`, domain.CodeInvalidRequest, "messages[1].payload"},
		{`[{"topic":"order","payload":1},{"topic":"order","payload":1,"tag":1}]`, domain.CodeInvalidRequest, "messages[1]"},
	} {
		problem := a.post("/v1/publish", c.body).wantProblem(400, c.code, c.where)
		if place, _ := problem["where"].(string); c.where != "" && place != c.where {
			t.Errorf("%s is refused at %q, want %q", c.body, place, c.where)
		}
	}
	large := `{"topic":"order","payload":"` + strings.Repeat("x", domain.MaxEventBytes-10) + `","sid":"12345678"}`
	a.post("/v1/publish", large).wantProblem(413, domain.CodeTooLarge, "payload")
	a.post("/v1/publish", `{"topic":"order","payload":1}`, "Content-Type", "text/plain").wantProblem(415, "unsupported-media-type", "Content-Type")
	a.post("/v1/publish?topic=a", `{"topic":"order","payload":1}`).wantProblem(400, domain.CodeInvalidRequest, "query")
	equal(t, "what was published", a.get("/v1/streams/$all").at("events"), list{})
}
