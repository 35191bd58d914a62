package api_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// remove removes a tenant's events, as a forced retention run does.
func (a *actor) remove(category string, upTo int64, keep ...int64) {
	a.t.Helper()
	tenant, err := domain.ParseTenantID(a.tenantID)
	must(a.t, err)
	a.db.Remove(a.t, tenant, category, upTo, keep...)
}

// Lists report up to where events were removed, and contain all that remain.
func TestListsTellWhatWasRemoved(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.append("order-1", 5)
	a.append("user-1", 1)
	a.append("order-2", 2)
	a.remove("order", 4, 2)
	positions := func(answer *answer) (at []float64) {
		for _, e := range answer.at("events").(list) {
			at = append(at, e.(object)["position"].(float64))
		}
		return at
	}
	for _, c := range []struct {
		path, removed string
		positions     []float64
	}{
		{"/v1/streams/$all", "4", []float64{2, 5, 6, 7, 8}},
		{"/v1/streams/$all?from=4", "4", []float64{5, 6, 7, 8}},
		{"/v1/streams/$all?from=5", "", []float64{5, 6, 7, 8}},
		{"/v1/streams/$all?direction=backward&count=2", "4", []float64{8, 7}},
		{"/v1/streams/$all?categories=user", "", []float64{6}},
		{"/v1/categories/order/events?count=1", "4", []float64{2}},
		{"/v1/categories/user/events", "", []float64{6}},
		{"/v1/streams/order-1", "4", []float64{2, 5}},
		{"/v1/streams/order-1?from=5", "", []float64{5}},
		{"/v1/streams/order-1?direction=backward", "4", []float64{5, 2}},
		{"/v1/streams/order-1?direction=backward&from=4", "4", []float64{2}},
		{"/v1/streams/order-2", "", []float64{7, 8}},
		{"/v1/streams/order-2?direction=backward", "", []float64{8, 7}},
	} {
		got := a.get(c.path).want(200)
		equal(t, c.path, positions(got), c.positions)
		equal(t, "removed from "+c.path, got.header.Get("Manifold-Removed-To"), c.removed)
		lines := a.get(c.path, "Accept", "application/x-ndjson").want(200)
		equal(t, "removed from the lines of "+c.path, lines.header.Get("Manifold-Removed-To"), c.removed)
		if !strings.Contains(c.path, "count") && strings.Count(string(lines.body), "\n") != len(c.positions) {
			t.Errorf("the lines of %s are %s", c.path, lines.body)
		}
	}
	equal(t, "removed from the export", a.get("/v1/export").want(200).header.Get("Manifold-Removed-To"), "4")

	info := a.get("/v1/streams/order-1/metadata").want(200)
	equal(t, "the stream", without(info.json(), "bytes", "firstAt", "lastAt"), object{"stream": "order-1", "version": 5, "events": 2, "firstVersion": 2})
	// A stream without events keeps its version.
	a.remove("order", 8)
	empty := a.get("/v1/streams/order-2").want(200)
	equal(t, "what is left", empty.at("events"), list{})
	equal(t, "its version", empty.header.Get("ETag"), `"2"`)
	equal(t, "what is gone", empty.header.Get("Manifold-Removed-To"), "2")
	equal(t, "backward", a.get("/v1/streams/order-2?direction=backward").want(200).header.Get("Manifold-Removed-To"), "2")
	equal(t, "the metadata", a.get("/v1/streams/order-2/metadata").want(200).json(), object{"stream": "order-2", "version": 2, "events": 0, "bytes": 0})
	a.get("/v1/streams/order-9").wantProblem(404, domain.CodeNotFound, "path streamId")
	appended := a.post("/v1/streams/order-2/events", list{object{"type": "Happened", "data": 1}}, "Expected-Version", "2").want(201)
	equal(t, "the next version", appended.at("version"), 3)
}

// States require the removed events, unless the caller accepts a loss.
func TestStatesTellWhatIsMissing(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.send("PUT", "/v1/aggregates/order", object{"initial": object{"n": 0}, "on": object{"*": `{"n": state.n + 1}`}}).want(200)
	a.append("order-1", 5)
	a.remove("order", 3)
	a.get("/v1/streams/order-1/state").wantProblem(409, domain.CodeEventsRemoved, "")
	a.get("/v1/streams/order-1/state?version=2&acceptLoss=false").wantProblem(409, domain.CodeEventsRemoved, "")
	state := a.get("/v1/streams/order-1/state?acceptLoss=true").want(200)
	equal(t, "the state", state.json(), object{"stream": "order-1", "version": 5, "state": object{"n": 2}, "snapshotVersion": 0, "eventsRead": 2, "loss": object{"removedTo": 3}})
	a.post("/v1/snapshots/order-1", nil).wantProblem(409, domain.CodeEventsRemoved, "")
	snapshot := a.post("/v1/snapshots/order-1?acceptLoss=true", nil).want(201)
	equal(t, "the snapshot's loss", snapshot.at("removedTo"), 3)
	equal(t, "the newest snapshot's", a.get("/v1/snapshots/order-1/latest").want(200).at("removedTo"), 3)
	a.get("/v1/streams/order-1/state").wantProblem(409, domain.CodeEventsRemoved, "")
}

// On every transport, a gap is reported before the events after it, and a client cannot resume from a gap.
func TestFollowersAreToldOfGaps(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.append("order-1", 3)
	a.append("user-1", 1)
	a.remove("order", 2)
	for _, transport := range transports {
		f := a.follow(t, transport, "/v1/subscribe/categories/order")
		equal(t, transport+" begins with", f.next().String(), "gap 2")
		equal(t, transport+" continues with", f.next().String(), "event 3")
		f.close()
		f = a.follow(t, transport, "/v1/subscribe/categories/user")
		equal(t, transport+" of what was not removed begins with", f.next().String(), "event 4")
		f.close()
		f = a.follow(t, transport, "/v1/subscribe/$all?from=3")
		equal(t, transport+" behind it begins with", f.next().String(), "event 3")
		f.close()
	}
	body := a.open("GET", "/v1/subscribe/streams/order-1", nil, "Accept", "text/event-stream").Body
	defer body.Close()
	text := make([]byte, 0, 4096)
	for !strings.Contains(string(text), "event: event") {
		part := make([]byte, 512)
		n, err := body.Read(part)
		must(t, err)
		text = append(text, part[:n]...)
	}
	if !strings.Contains(string(text), "\n\nevent: gap\ndata: {\"from\":1,\"to\":2,\"categories\":[\"order\"]}\n\nid: 3\nevent: event\n") {
		t.Errorf("server-sent events are %s", text)
	}
	lines := a.open("GET", "/v1/subscribe/streams/order-1", nil, "Accept", "application/x-ndjson, application/cloudevents+json").Body
	defer lines.Close()
	part := make([]byte, 64)
	for text = text[:0]; !strings.Contains(string(text), "\n"); {
		n, err := lines.Read(part)
		must(t, err)
		text = append(text, part[:n]...)
	}
	if !strings.HasPrefix(string(text), `{"specversion":"1.0","id":"gap-1-2","source":"/v1/subscribe","type":"manifold.gap","datacontenttype":"application/json","data":{"from":1,"to":2,"categories":["order"]}}`+"\n") {
		t.Errorf("as CloudEvents: %s", text)
	}

	g := a.gateway()
	g.ask("SUBSCRIBE", object{"subscription": "orders", "source": object{"categories": list{"order"}}})
	equal(t, "the gateway's gap", without(g.come("GAP", "orders"), "op", "subscription"), object{"from": 1, "to": 2, "categories": list{"order"}})
	equal(t, "the gateway's event", g.come("EVENT", "orders")["event"].(object)["position"], 3)
}

// A group reports what was removed from its source, and so does the first event after it.
func TestGroupsTellWhatWasRemoved(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.append("order-1", 3)
	a.remove("order", 2)
	a.send("PUT", "/v1/subscriptions/late", object{"source": object{"categories": list{"order"}}}).want(201)
	equal(t, "the group's", a.get("/v1/subscriptions/late").want(200).at("removedTo"), 2)
	a.send("PUT", "/v1/subscriptions/other", object{"source": object{"categories": list{"user"}}}).want(201)
	listed := a.get("/v1/subscriptions").want(200)
	equal(t, "in the list", listed.at("subscriptions", 0, "removedTo"), 2)
	if _, there := listed.at("subscriptions", 1).(object)["removedTo"]; there {
		t.Errorf("the other group says %s", listed.body)
	}
	first := a.post("/v1/subscriptions/late/receive", object{"batch": 1}).want(200)
	equal(t, "the gap", first.at("deliveries", 0, "gap"), object{"from": 1, "to": 2, "categories": list{"order"}})
	equal(t, "the event", first.at("deliveries", 0, "event", "position"), 3)
}

// Documents that would lack events are built only if the caller accepts that, and they report the loss.
func TestDocumentsTellWhatTheyLack(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	definition := object{"source": object{"categories": list{"order"}}, "on": object{"*": `{"n": doc.?n.orValue(0) + 1}`}}
	a.send("PUT", "/v1/projections/p", definition).want(201)
	a.append("order-1", 5)
	a.get("/v1/projections/p/documents/order-1?minPosition=5&timeout=20").want(200)
	a.remove("order", 3)
	lacks := list{object{"category": "order", "removedTo": 3}}
	changed := object{"source": object{"categories": list{"order"}}, "on": object{"*": `{"m": doc.?m.orValue(0) + 1}`}}
	a.post("/v1/projections/p/rebuilds", nil).wantProblem(409, domain.CodeEventsRemoved, "")
	a.send("PUT", "/v1/projections/p", changed).wantProblem(409, domain.CodeEventsRemoved, "")
	a.post("/v1/projections/p/reset", nil).wantProblem(409, domain.CodeEventsRemoved, "")
	if _, there := a.get("/v1/projections/p/state").want(200).json()["loss"]; there {
		t.Error("what has seen everything lacks something")
	}
	started := a.send("PUT", "/v1/projections/p?acceptLoss=true", changed).want(202)
	equal(t, "it accepts", started.at("acceptLoss"), true)
	a.rebuilt("p", started.text("id"))
	equal(t, "the rebuild's loss", a.get("/v1/projections/p/rebuilds/"+started.text("id")).want(200).at("loss"), lacks)
	state := a.get("/v1/projections/p/state").want(200)
	equal(t, "the projection's", state.at("loss"), lacks)
	equal(t, "the document", a.get("/v1/projections/p/documents/order-1").want(200).at("document"), object{"m": 2})
	// The old documents contain everything, so a rollback requires no consent.
	back := a.post("/v1/projections/p/rebuilds/"+started.text("id")+"/rollback", nil).want(202)
	a.rebuilt("p", back.text("id"))
	equal(t, "the old document", a.get("/v1/projections/p/documents/order-1").want(200).at("document"), object{"n": 5})
	a.post("/v1/projections/p/reset?acceptLoss=true", nil).want(200)
	a.get("/v1/projections/p/documents/order-1?minPosition=5&timeout=20").want(200)
	equal(t, "behind a reset", a.get("/v1/projections/p/state").want(200).at("loss"), lacks)
}

// A read of a period reports removed events that may have been recorded in it, even if none is left.
func TestReadsOfAPeriodReportRemovedEvents(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.append("keep-1", 1)
	a.append("order-1", 3)
	a.append("keep-1", 1)
	at := func(position int) string {
		return url.QueryEscape(a.get(fmt.Sprintf("/v1/streams/$all?from=%d&count=1", position)).want(200).text("events", 0, "recordedAt"))
	}
	since, until := "since="+at(2), "until="+at(5)
	a.remove("order", 4)
	for query, want := range map[string]string{
		since: "4", since + "&" + until: "4", until: "4", "direction=backward&" + since + "&" + until: "4", since + "&categories=keep,other": "",
		"since=2999-01-01T00:00:00Z": "",
	} {
		equal(t, query, a.get("/v1/streams/$all?"+query).want(200).header.Get("Manifold-Removed-To"), want)
	}
	equal(t, "an export", a.get("/v1/export?"+since).want(200).header.Get("Manifold-Removed-To"), "4")
}
