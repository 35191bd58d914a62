package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// explode makes an event unreadable, directly in the database, like an event accepted by an earlier release: numbers of
// 131 kB each. It also removes the mark of an unreadable event.
func (a *actor) explode(super *pgxpool.Pool, position, numbers int) {
	a.t.Helper()
	// The event's own column is in the expression, because a cluster's coordinator would print a constant.
	_, err := super.Exec(a.t.Context(), "update manifold.events set event_data = (left(event_type, 0) || $3)::jsonb, gap = null where tenant_id = $1 and position = $2",
		a.tenantID, position, `{"n":0,"l":[1`+strings.Repeat(",1e131071", numbers)+`]}`)
	must(a.t, err)
}

// Each reader skips an unreadable event and reports why, even if it is the first to read it. Other tenants are not
// affected.
func TestReadersStepOverUnreadableEvents(t *testing.T) {
	t.Parallel()
	// PostgreSQL prints 52 MB for each reader, which takes seconds on a slow machine.
	w := setup{alone: true, change: func(c *api.Config) { c.Timeout = patience }}.start(t)
	a, other := w.tenant("a"), w.tenant("b")
	super := w.db.Pool(t, pgtest.RoleSuperuser, 1)
	a.append("order-1", 3)
	a.append("order-2", 1)
	other.append("order-1", 3)
	id := a.get("/v1/streams/order-1?from=2&count=1").want(200).text("events", 0, "id")
	const bad = 2
	// hold checks an event.
	hold := func(what string, event any) {
		t.Helper()
		e, _ := event.(object)
		gap, _ := e["gap"].(object)
		if e["position"] != float64(bad) || e["type"] != "Happened" || e["stream"] != "order-1" || e["version"] != float64(2) || e["data"] != nil || e["metadata"] != nil ||
			gap["reason"] != "unreadable" || gap["message"] == "" || gap["at"] == "" {
			t.Errorf("%s: the event is %v", what, event)
		}
	}
	// Each kind of reader is the first to meet the event. 400 numbers are 52 MB, more than this process accepts for one
	// row.
	a.explode(super, bad, 400)
	first := func() {
		t.Helper()
		_, err := super.Exec(t.Context(), "update manifold.events set gap = null where tenant_id = $1 and position = $2", a.tenantID, bad)
		must(t, err)
	}
	for _, c := range []struct {
		path  string
		index int
		count int
	}{
		{"/v1/streams/order-1", 1, 3}, {"/v1/streams/order-1?direction=backward", 1, 3}, {"/v1/streams/$all", 1, 4},
		{"/v1/streams/$all?types=Happened&categories=order,x", 1, 4}, {"/v1/categories/order/events?direction=backward", 2, 4},
	} {
		first()
		got := a.get(c.path).want(200)
		hold(c.path, got.at("events", c.index))
		equal(t, "the events of "+c.path, len(got.at("events").(list)), c.count)
	}
	first()
	hold("the event by its id", a.get("/v1/events/"+id).want(200).json())
	hold("the lines", a.get("/v1/streams/$all", "Accept", ndjson).want(200).lines()[1])
	first()
	hold("the export", a.get("/v1/export").want(200).lines()[1])
	cloud := a.get("/v1/streams/order-1", "Accept", "application/x-ndjson, application/cloudevents-batch+json").want(200).lines()[1]
	equal(t, "the CloudEvent", list{cloud["manifoldgap"], cloud["data"], cloud["manifoldposition"]}, list{"unreadable", nil, "2"})
	first()
	metadata := a.get("/v1/streams/order-1/metadata").want(200)
	equal(t, "the stream's versions and bytes", list{metadata.at("version"), metadata.at("events"), metadata.at("bytes")}, list{3, 3, 2 * len(`{"n": 0}`)})
	first()
	for _, transport := range []string{"lines", "sse", "websocket"} { // which read in the same way
		f := a.follow(t, transport, "/v1/subscribe/categories/order?from=1&filter=event.data.n+%3E%3D+0")
		var events []object
		for range 4 {
			all := f.until("event")
			events = append(events, all[len(all)-1].event)
		}
		hold("following by "+transport, events[1])
		f.close()
	}
	first()
	g := a.gateway()
	g.ask("SUBSCRIBE", object{"subscription": "s", "source": object{"stream": "order-1"}, "from": "start"})
	hold("the gateway", g.events("s", 3)[1]["event"])

	first()
	c := a.consumer("mail", object{"from": "start", "maxAttempts": 1, "filter": "event.data.n >= 0"})
	received := c.receive(10)
	equal(t, "what is received", len(received), 4)
	hold("the group", received[1]["event"])
	c.answer("ack", nil, received[0], received[2], received[3])
	c.answer("nack", nil, received[1])
	first()
	hold("the dead letters", a.get(c.path("/dead-letters")).want(200).at("deadLetters", 0, "event"))

	first()
	e := newEndpoint(t, 200)
	a.webhook("hook", e.URL, nil)
	var sent []string
	for range 4 {
		sent = append(sent, string(e.next(t).body))
	}
	if all := strings.Join(sent, "\n"); !strings.Contains(all, `"gap":{"reason":"unreadable"`) {
		t.Errorf("the webhook has sent %s", all)
	}

	// Folds: the documents come from the other events.
	counts := func(name, mode string) {
		t.Helper()
		first()
		a.post("/v1/projections", object{"name": name, "mode": mode, "on": object{"Happened": `{"count": doc.?count.orValue(0) + 1, "n": event.data.n}`}}).want(201)
		got := a.get("/v1/projections/" + name + "/documents/order-1?minPosition=4&timeout=30").want(200)
		equal(t, "the document of "+name, got.at("document", "count"), 2)
	}
	counts("async", "async")
	counts("live", "live")
	first()
	equal(t, "the live list", a.get("/v1/projections/live/documents").want(200).at("documents", 0, "document", "count"), 2)
	first()
	path := a.post("/v1/projections/async/rebuilds", object{}).want(202).header.Get("Location")
	rebuilt := a.until(path, func(got *answer) bool {
		state := got.text("state")
		return state == "swapped" || state == "failed"
	})
	equal(t, "the rebuild", rebuilt.at("state"), "swapped")
	first()
	preview := a.post("/v1/projections/preview", object{"definition": object{"name": "p", "on": object{"Happened": `{"count": doc.?count.orValue(0) + 1}`}}, "source": object{"stream": "order-1"}}).want(200)
	equal(t, "the preview's documents", preview.at("documents", 0, "document", "count"), 2)

	a.send("PUT", "/v1/aggregates/order", object{"on": object{"Happened": `{"count": state.?count.orValue(0) + 1}`}}).want(200, 201)
	first()
	problem := a.get("/v1/streams/order-1/state").wantProblem(409, domain.CodeEventsRemoved, "")
	if detail := problem["detail"].(string); !strings.Contains(detail, "event 2 of order-1 is unreadable") {
		t.Errorf("the state says %s", detail)
	}
	first()
	equal(t, "the state of what is left", a.get("/v1/streams/order-1/state?acceptLoss=true").want(200).at("state", "count"), 2)
	first()
	a.post("/v1/snapshots/order-1?acceptLoss=true", nil).want(201)
	equal(t, "another stream's state", a.get("/v1/streams/order-2/state").want(200).at("state", "count"), 1)

	_, err := super.Exec(t.Context(), "update manifold.snapshots set state = $1::jsonb", `[1`+strings.Repeat(",1e131071", 400)+`]`)
	must(t, err)
	a.get("/v1/snapshots/order-1/latest").wantProblem(404, domain.CodeNotFound, "") // it is folded again from the events

	// Appending continues, and the other tenant's log is unchanged.
	a.append("order-1", 1)
	got := other.get("/v1/streams/order-1").want(200)
	if len(got.at("events").(list)) != 3 || strings.Contains(string(got.body), "gap") {
		t.Errorf("the other tenant reads %s", got.body)
	}
	if text := w.log.String(); strings.Contains(text, "status=500") {
		t.Errorf("there were faults: %s", text)
	}
}

// PostgreSQL cannot print the event at all, since it would need more than 1 GB. Reads continue, and the operator can
// redact the event.
func TestTheOperatorRedactsWhatCannotBeRead(t *testing.T) {
	// Not parallel: PostgreSQL writes 1 GB of memory for each try, and must end before the request does.
	w := setup{alone: true, change: func(c *api.Config) { c.Timeout = 2 * time.Minute }}.start(t)
	a, operator := w.tenant("a"), w.operator()
	super := w.db.Pool(t, pgtest.RoleSuperuser, 1)
	a.append("order-1", 3)
	redact := func(position any) string { return fmt.Sprintf("/v1/tenants/%s/events/%v/redact", a.tenantID, position) }
	reason := object{"reason": "9000 numbers of 131 kB each"}
	operator.post(redact(2), reason).wantProblem(409, domain.CodeConflict, "path position")
	operator.post(redact(9), reason).wantProblem(404, domain.CodeNotFound, "path position")
	operator.post(redact(0), reason).want(400)
	operator.post(redact(2), object{"reason": ""}).want(400)
	a.post(redact(2), reason).want(403)
	a.explode(super, 2, 9000)
	got := a.get("/v1/streams/order-1").want(200)
	equal(t, "why it cannot be read", got.at("events", 1, "gap", "reason"), "unreadable")
	var text string
	must(t, super.QueryRow(t.Context(), "select left((event_data #>> '{l,1}'), 3) from manifold.events where tenant_id = $1 and position = 2", a.tenantID).Scan(&text))
	equal(t, "its data in the database", text, "100")

	a.explode(super, 2, 9000) // even one that no reader has met yet
	redacted := operator.post(redact(2), reason).want(200)
	event := a.get("/v1/streams/order-1").want(200).at("events", 1).(object)
	equal(t, "the answer", redacted.json(), event)
	before := got.at("events", 1).(object)
	equal(t, "the event", without(event, "gap"), without(before, "gap"))
	equal(t, "its gap", without(event["gap"].(object), "at"), object{"reason": "redacted", "message": reason["reason"]})
	equal(t, "to do it once more", operator.post(redact(2), object{"reason": "another"}).want(200).json(), event)
	must(t, super.QueryRow(t.Context(), "select event_data::text from manifold.events where tenant_id = $1 and position = 2", a.tenantID).Scan(&text))
	equal(t, "its data in the database", text, "null")
	if log := w.log.String(); !strings.Contains(log, "the operator has redacted an event") || !strings.Contains(log, "131 kB each") {
		t.Errorf("the log has no line about it: %s", log)
	}
	// An exported gap cannot be imported as an event.
	lines := a.get("/v1/export").want(200).body
	imported := a.post("/v1/import", lines, "Content-Type", ndjson)
	if !strings.Contains(string(imported.body), "leave the line out") {
		t.Errorf("the import is answered %s", imported.body)
	}
}
