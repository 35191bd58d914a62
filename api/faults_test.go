package api_test

import (
	"fmt"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// testFaults runs the documented requests about faults, on its own projections.
func testFaults(t *testing.T, documented *documentation, a, operator *actor) {
	t.Helper()
	name, documentID := documented.params["name"], documented.params["documentId"]
	stopped, position := a.faulty("stopping", "stop")
	documented.params["name"] = "stopping"
	documented.run(a, "getProjectionState", 200)
	documented.run(a, "skipEvent", 409) // the fault is at another position
	documented.run(a, "retryProjection", 202)
	a.get(stopped).wantProblem(409, domain.CodeFaulted, "")
	a.post("/v1/projections/stopping/skip", object{"position": position, "reason": "a test"}).want(200)
	documented.run(a, "listSkippedEvents", 200)
	documented.params["position"] = fmt.Sprint(position)
	documented.run(a, "withdrawSkip", 204)
	documented.run(a, "withdrawSkip", 404)
	delete(documented.params, "position")

	parked, _ := a.faulty("parking", "park")
	a.get(parked).want(200)
	documented.params["name"], documented.params["documentId"] = "parking", "parking-1"
	documented.run(a, "listParkedDocuments", 200)
	documented.run(a, "replayParkedDocuments", 200)
	documented.run(a, "replayParkedDocument", 200)
	documented.params["tenant"] = a.tenantID
	documented.run(operator, "listParkedDocuments", 200)
	documented.run(operator, "discardParkedDocument", 204)
	delete(documented.params, "tenant")
	documented.run(a, "discardParkedDocument", 404)

	for _, made := range []string{"stopping", "parking"} {
		a.send("DELETE", "/v1/projections/"+made, nil).want(204)
	}
	delete(documented.params, "name")
	delete(documented.params, "documentId")
	if name != "" {
		documented.params["name"] = name
	}
	if documentID != "" {
		documented.params["documentId"] = documentID
	}
}

// faulty creates a projection and appends two events for one document. The second event cannot be folded. faulty
// returns the path for reading the document after both events, and the position of the second one.
func (a *actor) faulty(name, onError string) (path string, position int) {
	a.t.Helper()
	a.post("/v1/projections", object{
		"name": name, "source": object{"categories": list{name}}, "onError": onError,
		"on": object{"Added": "{'n': doc.?n.orValue(0) + event.data.n, 'more': 1 < 2}"},
	}).want(201)
	stream := name + "-1"
	appended := a.post("/v1/streams/"+stream+"/events", list{
		object{"type": "Added", "data": object{"n": 1}}, object{"type": "Added", "data": object{"n": "one"}},
	}).want(201)
	position = appended.number("position")
	return "/v1/projections/" + name + "/documents/" + stream + "?timeout=30&minPosition=" + fmt.Sprint(position), position
}

// A fault shows everything needed to understand it. Only the tenant can resolve it, or the operator by naming the
// tenant.
func TestFaults(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	operator := w.operator()
	a, other := w.tenant("acme"), w.tenant("umbrella")
	path, position := a.faulty("stopping", "stop")
	a.get(path).wantProblem(409, domain.CodeFaulted, "")
	const state = "/v1/projections/stopping/state"
	fault := a.get(state).want(200).at("fault").(object)
	delete(fault, "at")
	delete(fault, "eventId")
	if retry, _ := fault["nextRetryAt"].(string); retry == "" {
		t.Errorf("the fault is %v", fault)
	}
	delete(fault, "nextRetryAt")
	delete(fault, "retries") // after half a minute it has been tried again
	equal(t, "the fault", fault, object{
		"position": position, "stream": "stopping-1", "type": "Added", "documentId": "stopping-1", "where": "on.Added",
		"expression": "{'n': doc.?n.orValue(0) + event.data.n, 'more': 1 < 2}", "before": object{"n": 1, "more": true},
		"message": "line 1, column 25: + does not take an int and a string; to join strings, write string(x); to add, write double(x) or int(x)",
	})
	skip := object{"position": position, "reason": "a slip of the pen"}
	const skipping = "/v1/projections/stopping/skip"
	a.post(skipping, object{"position": position - 1}).wantProblem(409, domain.CodeConflict, "position")
	a.post(skipping+"?tenant="+other.tenantID, skip).wantProblem(403, domain.CodeForbidden, "query tenant")
	other.post(skipping, skip).wantProblem(404, domain.CodeNotFound, "name")
	operator.post(skipping, skip).wantProblem(400, domain.CodeInvalidRequest, "query tenant")
	operator.post(skipping+"?tenant="+other.tenantID, skip).wantProblem(404, domain.CodeNotFound, "name")
	operator.post(skipping+"?tenant="+domain.NewTenantID().String(), skip).wantProblem(404, domain.CodeNotFound, "")
	skipped := operator.post(skipping+"?tenant="+a.tenantID, skip).want(200)
	equal(t, "who skipped", skipped.at("by"), "operator")
	equal(t, "the reason", skipped.at("reason"), "a slip of the pen")
	equal(t, "the version", skipped.at("version"), 1)
	equal(t, "the document", a.get(path).want(200).at("document"), object{"n": 1, "more": true})
	equal(t, "what is skipped", len(a.get("/v1/projections/stopping/skipped").want(200).at("skipped").(list)), 1)
	a.post(skipping, skip).wantProblem(409, domain.CodeConflict, "position")
	a.post("/v1/projections/stopping/retry", nil).want(202)
	withdrawn := "/v1/projections/stopping/skipped/" + fmt.Sprint(position)
	other.send("DELETE", withdrawn, nil).wantProblem(404, domain.CodeNotFound, "name")
	a.send("DELETE", withdrawn, nil).want(204)
	equal(t, "what is skipped", len(a.get("/v1/projections/stopping/skipped").want(200).at("skipped").(list)), 0)

	path, position = a.faulty("parking", "park")
	equal(t, "the document", a.get(path).want(200).at("document"), object{"n": 1, "more": true})
	equal(t, "the state", a.get("/v1/projections/parking/state").want(200).at("state"), "caught-up")
	listed := a.get("/v1/projections/parking/parked").want(200).at("parked").(list)
	one := listed[0].(object)
	equal(t, "what waits", one["events"], 1)
	equal(t, "its document", one["id"], "parking-1")
	equal(t, "its fault", one["fault"].(object)["position"], position)
	equal(t, "how many are parked", a.get("/v1/projections/parking/state").want(200).at("parked"), 1.0)
	equal(t, "what replaying does", a.post("/v1/projections/parking/parked/replay", nil).want(200).json(), object{"documents": 0, "events": 0, "stillParked": 1})
	other.get("/v1/projections/parking/parked").wantProblem(404, domain.CodeNotFound, "name")
	a.post("/v1/projections/parking/parked/none/replay", nil).wantProblem(404, domain.CodeNotFound, "documentId")
	a.send("DELETE", "/v1/projections/parking/parked/parking-1", nil).want(204)
	a.send("DELETE", "/v1/projections/parking/parked/parking-1", nil).wantProblem(404, domain.CodeNotFound, "documentId")
	equal(t, "what is parked", a.get("/v1/projections/parking/parked").want(200).json(), object{"parked": list{}})
	if state := a.get("/v1/projections/parking/state").want(200).json(); state["parked"] != nil {
		t.Errorf("the state is %v with nothing parked", state)
	}
	last := a.post("/v1/streams/parking-1/events", list{object{"type": "Added", "data": object{"n": 5}}}).want(201)
	equal(t, "the document", a.get("/v1/projections/parking/documents/parking-1?minPosition="+fmt.Sprint(last.number("position"))).want(200).at("document"), object{"n": 6, "more": true})
}

// A live projection stores nothing, but answers like one that does.
func TestLiveProjections(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	on := object{"Added": "{'n': doc.?n.orValue(0) + event.data.n, 'k': event.key}", "Removed": "null"}
	for mode, name := range map[string]string{"live": "alive", "async": "stored"} {
		a.post("/v1/projections", object{"name": name, "source": object{"categories": list{"item"}}, "on": on, "mode": mode}).want(201)
	}
	var last int
	for i, stream := range []string{"item-1", "item-2", "item-3", "other-1", "item-1", "item-4", "item-2"} {
		eventType := "Added"
		if i == 6 {
			eventType = "Removed"
		}
		last = a.post("/v1/streams/"+stream+"/events", list{object{"type": eventType, "data": object{"n": i + 1}}}).want(201).number("position")
	}
	for _, query := range []string{
		"", "/item-1", "/item-2", "/other-1", "?orderBy=n%20desc&count=exact", "?filter=doc.n%20%3E%203&count=exact", "?fields=k",
	} {
		separator := "?"
		if len(query) > 0 && query[0] == '?' {
			separator = "&"
		}
		wait := separator + "minPosition=" + fmt.Sprint(last)
		stored := a.get("/v1/projections/stored/documents" + query + wait)
		alive := a.get("/v1/projections/alive/documents" + query + wait)
		equal(t, "the status of "+query, alive.status, stored.status)
		if stored.status == 200 {
			equal(t, "the answer to "+query, alive.json(), stored.json())
		}
	}
	pages := a.pages("/v1/projections/alive/documents?pageSize=1&orderBy=n")
	if len(pages) != 3 {
		t.Errorf("there are %d pages", len(pages))
	}
	equal(t, "the state", a.get("/v1/projections/alive/state").want(200).at("state"), "caught-up")
	a.get("/v1/projections/alive/documents?minPosition=1000&timeout=1").wantProblem(503, domain.CodeNotCaughtUp, "minPosition")
	bad := a.post("/v1/streams/item-9/events", list{object{"type": "Added", "data": object{}}}).want(201)
	a.get("/v1/projections/alive/documents").wantProblem(409, domain.CodeFaulted, "")
	a.get("/v1/projections/alive/documents/item-1").want(200) // its stream has no fault
	a.post("/v1/projections/alive/skip", object{"position": bad.number("position")}).want(200)
	a.get("/v1/projections/alive/documents").want(200)
	a.send("DELETE", "/v1/projections/alive", nil).want(204)
}
