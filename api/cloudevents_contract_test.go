package api_test

import (
	"encoding/json"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// The contract's examples of CloudEvents are accepted, and answers conform to its schemas, in each form.
func TestDocumentedCloudEventsWork(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	spec := loadContract(t)
	documented := documentation{t: t, spec: spec}
	for id, path := range map[string]string{"appendToStream": "/v1/streams/order-1001/events", "publish": "/v1/publish?topic=order"} {
		_, _, _, op := documented.find(id)
		tried := 0
		for kind, media := range op.RequestBody.Value.Content {
			switch kind {
			case "application/json":
				continue
			case "*/*":
				a.post(path, media.Example, "Content-Type", "text/plain", "ce-specversion", "1.0", "ce-id", "of "+id, "ce-source", "s", "ce-type", "T").want(201)
			default:
				a.post(path, media.Example, "Content-Type", kind).want(200, 201)
			}
			tried++
		}
		equal(t, "how many forms "+id+" has", tried, 3)
	}
	id := domain.NewEventID().String()
	a.post("/v1/streams/order-1001/events", list{object{"id": id, "type": "A", "data": 1, "metadata": object{"a": 1}}}).want(201)
	a.send("PUT", "/v1/subscriptions/all", object{"source": object{"categories": list{"order"}}}).want(201)
	dead := a.consumer("dead", object{"source": object{"categories": list{"order"}}})
	dead.answer("nack", object{"action": "park", "reason": "no"}, dead.receive(10)...)

	const structured, batch = "application/cloudevents+json", "application/cloudevents-batch+json"
	for _, c := range []struct{ id, method, path, accept, kind string }{
		{"readStream", "GET", "/v1/streams/order-1001", batch, batch},
		{"readAll", "GET", "/v1/streams/$all", batch, batch},
		{"readCategory", "GET", "/v1/categories/order/events", batch, batch},
		{"readLatest", "GET", "/v1/categories/order/latest?keys=1001", batch, batch},
		{"readEvent", "GET", "/v1/events/" + id, structured, structured},
		{"listDeadLetters", "GET", dead.path("/dead-letters"), batch, batch},
		{"receive", "POST", "/v1/subscriptions/all/receive", batch, batch},
	} {
		_, _, _, op := documented.find(c.id)
		got := a.send(c.method, c.path, nil, "Accept", c.accept).want(200)
		media := op.Responses.Status(200).Value.Content[c.kind]
		if got.header.Get("Content-Type") != c.kind || media == nil {
			t.Errorf("%s answers with %s", c.id, got.header.Get("Content-Type"))
			continue
		}
		var value any
		must(t, json.Unmarshal(got.body, &value))
		if err := media.Schema.Value.VisitJSON(value); err != nil {
			t.Errorf("the answer of %s does not keep to the contract: %v", c.id, err)
		}
		if events, ok := value.([]any); ok && len(events) == 0 {
			t.Errorf("the answer of %s has no events", c.id)
		}
	}
}
