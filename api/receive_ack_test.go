package api_test

import (
	"strconv"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// A receive acknowledges first, and reports what it could not acknowledge.
func TestReceiveAcknowledges(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.append("order-1", 3)
	c := a.consumer("g", object{"ordering": "stream"})
	ack := func(deliveries ...object) list {
		var ids list
		for _, d := range deliveries {
			ids = append(ids, object{"id": d["event"].(object)["id"], "attempt": d["attempt"]})
		}
		return ids
	}
	first := c.receive(10)
	equal(t, "the first", of(first), list{1})
	got := c.post(c.path("/receive"), object{"ack": ack(first...)}).want(200)
	second := objects(got.at("deliveries"))
	equal(t, "the second", of(second), list{2})
	equal(t, "its fields", without(got.json(), "deliveries"), object{})
	equal(t, "the length", got.header.Get("Content-Length"), strconv.Itoa(len(got.body)))
	again := ack(first[0], second[0])
	got = c.post(c.path("/receive"), object{"batch": 5, "ack": again}).want(200)
	equal(t, "the third", of(objects(got.at("deliveries"))), list{3})
	equal(t, "what was not acknowledged", got.at("unacknowledged"), list{
		object{"id": again[0].(object)["id"], "attempt": 1, "outcome": "not-in-flight"},
	})
	third := ack(objects(got.at("deliveries"))...)
	cloud := c.post(c.path("/receive"), object{"ack": third}, "Accept", "application/cloudevents-batch+json")
	cloud.wantProblem(400, domain.CodeInvalidRequest, "ack")
	equal(t, "the end", c.post(c.path("/receive"), object{"ack": third}).want(200).json(), object{"deliveries": list{}})
	equal(t, "what is in flight", a.get(c.path("")).at("progress", 0, "inFlight"), 0)
}
