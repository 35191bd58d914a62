package api_test

import (
	"encoding/json"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// testReports runs the documented requests of reports, and disables them again.
func testReports(t *testing.T, documented *documentation, a *actor) {
	t.Helper()
	enabled := documented.run(a, "putReports", 200)
	if enabled.text("since") == "" || enabled.number("maxLag") != 600 {
		t.Errorf("enabled, the reports are %s", enabled.body)
	}
	equal(t, "the reports", documented.run(a, "getReports", 200).json(), enabled.json())
	a.send("PUT", "/v1/reports", object{"enabled": false}).want(200)
}

func TestReports(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a, other := w.tenant("acme"), w.tenant("umbrella")
	const path = "/v1/reports"
	off := object{"enabled": false}
	equal(t, "at first", a.get(path).want(200).json(), off)
	since := a.send("PUT", path, object{"enabled": true}).want(200).text("since")
	equal(t, "enabled twice", a.send("PUT", path, object{"enabled": true}).want(200).text("since"), since)
	equal(t, "another tenant's", other.get(path).want(200).json(), off)
	equal(t, "disabled", a.send("PUT", path, off).want(200).json(), off)
	a.send("PUT", path, object{"enabled": true, "maxLag": 60}).want(200)
	equal(t, "the limit", a.get(path).want(200).number("maxLag"), 60)
	equal(t, "without a limit", without(a.send("PUT", path, object{"enabled": true}).want(200).json(), "since"), object{"enabled": true})
	a.send("PUT", path, object{"enabled": true, "maxLag": 9}).wantProblem(400, domain.CodeInvalidRequest, "maxLag")
	a.send("PUT", path, object{"enabled": false, "maxLag": 60}).wantProblem(400, domain.CodeInvalidRequest, "maxLag")
	a.send("PUT", path, object{}).wantProblem(400, domain.CodeInvalidRequest, "enabled")
	a.send("PUT", path, object{"enabled": true, "kinds": list{}}).wantProblem(400, domain.CodeInvalidRequest, "body")

	limited := w.tenant("limited", "events:read", "subscriptions:write", "projections:write")
	limited.get(path).wantProblem(403, domain.CodeForbidden, "")
	limited.send("PUT", path, object{"enabled": true}).wantProblem(403, domain.CodeForbidden, "")
}

// A dead letter and a stopped projection arrive at a webhook. Only the service appends reports, and keys for some
// categories read only theirs.
func TestReportsArriveAtAWebhook(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.send("PUT", "/v1/reports", object{"enabled": true}).want(200)
	e := newEndpoint(t, 200)
	a.webhook("pager", e.URL, object{"source": object{"categories": list{"dlq.send_mail", "manifold.alerts"}}})
	consumer := a.consumer("send-mail", object{"source": object{"categories": list{"order"}}, "from": "start"})
	a.append("order-1", 1)
	consumer.answer("nack", object{"action": "park", "reason": "no such address"}, consumer.receive(1)...)
	reported := func(eventType, field, value string) {
		t.Helper()
		var got struct {
			Type string
			Data struct{ Event struct{ Data object } }
		}
		must(t, json.Unmarshal(e.next(t).body, &got))
		if got.Type != eventType || got.Data.Event.Data[field] != value {
			t.Errorf("the report is %+v, want %s of %s", got, eventType, value)
		}
	}
	reported("EventDeadLettered", "reason", "no such address")
	a.faulty("stopping", "stop")
	reported("ProjectionStopped", "projection", "stopping")

	for _, stream := range []string{"dlq.send_mail-1", "manifold.alerts-1", "manifold.more-1"} {
		a.post("/v1/streams/"+stream+"/events", list{object{"type": "Forged", "data": 1}}).wantProblem(400, domain.CodeInvalidRequest, "stream")
	}
	a.post("/v1/publish", object{"topic": "manifold.alerts", "payload": 1}).wantProblem(400, domain.CodeInvalidRequest, "")
	a.post("/v1/append", object{"streams": list{
		object{"stream": "order-1", "events": list{object{"type": "A", "data": 1}}}, object{"stream": "dlq.x-1", "events": list{object{"type": "A", "data": 1}}},
	}}).wantProblem(400, domain.CodeInvalidRequest, "streams[1].stream")

	some := &actor{w, w.keyOf(a.tenantID, "events:read:dlq.send_mail"), a.tenantID}
	if events := objects(some.get("/v1/categories/dlq.send_mail/events").want(200).at("events")); len(events) != 1 {
		t.Errorf("read are %v", events)
	}
	some.get("/v1/categories/manifold.alerts/events").wantProblem(403, domain.CodeForbidden, "")
}
