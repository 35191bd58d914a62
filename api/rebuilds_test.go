package api_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// testRebuilds runs the contract's examples about rebuilds. The actor has a projection with the examples' name, and
// events.
func testRebuilds(t *testing.T, documented *documentation, a *actor) {
	t.Helper()
	rebuild := documented.run(a, "startRebuild", 202)
	documented.params["rebuildId"] = rebuild.text("id")
	documented.run(a, "getRebuild", 200)
	documented.run(a, "listRebuilds", 200)
	documented.run(a, "watchRebuild", 200) // until it has ended
	equal(t, "its state", documented.run(a, "getRebuild", 200).at("state"), "swapped")
	documented.run(a, "listRebuildTenants", 200)
	for _, id := range []string{"cancelRebuild", "approveRebuild", "pauseRebuild", "resumeRebuild", "exportDifference"} {
		documented.run(a, id, 409)
	}
	back := documented.run(a, "rollbackRebuild", 202)
	equal(t, "what is undone", back.at("rollbackOf"), rebuild.text("id"))
	documented.params["rebuildId"] = back.text("id")
	documented.run(a, "watchRebuild", 200)
	path := "/v1/projections/" + back.text("projection") + "/rebuilds"
	held := a.post(path, object{"approve": "manual"}).want(202)
	documented.params["rebuildId"] = held.text("id")
	documented.run(a, "pauseRebuild", 202)
	documented.run(a, "resumeRebuild", 202)
	documented.run(a, "approveRebuild", 202)
	documented.run(a, "watchRebuild", 200)
	last := a.post(path, object{"approve": "manual", "definition": object{"on": object{"OrderPlaced": `{"n": 12345678901234567}`}}}).want(202)
	documented.params["rebuildId"] = last.text("id")
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for documented.run(a, "getRebuild", 200).at("state") != "awaiting-approval" {
		<-tick.C
	}
	if lines := string(documented.run(a, "exportDifference", 200).body); !strings.Contains(lines, `"kind":"changed"`) || !strings.Contains(lines, `"built":{"n":12345678901234567}`) {
		t.Errorf("the difference is %s", lines)
	}
	one := path + "/" + last.text("id") + "/difference"
	a.get(one+"?after="+documented.params["rebuildId"]).wantProblem(400, domain.CodeInvalidRequest, "query after")
	a.get(one+"?tenant="+documented.params["rebuildId"]).wantProblem(403, domain.CodeForbidden, "query tenant")
	documented.run(a, "cancelRebuild", 202)
	documented.run(a, "watchRebuild", 200)
}

// event is a server-sent event.
type event struct {
	name string
	data object
}

// events reads server-sent events until their end.
func events(t *testing.T, response *http.Response, each func(event)) {
	t.Helper()
	defer response.Body.Close()
	if kind := response.Header.Get("Content-Type"); response.StatusCode != 200 || kind != "text/event-stream" {
		t.Fatalf("answered %d with %s", response.StatusCode, kind)
	}
	var e event
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		switch line := lines.Text(); {
		case line == "":
			if e.name != "" {
				each(e)
			}
			e = event{}
		case strings.HasPrefix(line, "event: "):
			e.name = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			must(t, json.Unmarshal([]byte(line[len("data: "):]), &e.data))
		case !strings.HasPrefix(line, ":"):
			t.Errorf("a line is %q", line)
		}
	}
}

// A follower of a rebuild sees its states up to the last one, and then the stream ends. A tenant that follows a shared
// projection's rebuild learns nothing of other tenants.
func TestFollowRebuild(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	operator, one, other := w.operator(), w.tenant("one"), w.tenant("other")
	one.append("order-1", 3)
	other.append("order-1", 5)
	operator.post("/v1/projections", object{"name": "counts", "on": object{"*": "{'n': doc.?n.orValue(0) + 1}"}}).want(201)
	for _, a := range []*actor{one, other} {
		a.get("/v1/projections/counts/documents/order-1?minPosition=3&timeout=20").want(200)
	}
	request := object{"approve": "manual", "assertions": list{"doc.n > 0"}, "definition": object{"name": "counts", "on": object{"*": "{'n': doc.?n.orValue(0) + 2}"}}}
	started := operator.post("/v1/projections/counts/rebuilds", request).want(202)
	path := "/v1/projections/counts/rebuilds/" + started.text("id")
	if got := started.header.Get("Location"); got != path {
		t.Errorf("the location is %s", got)
	}
	seen := make(chan []event, 1)
	go func() {
		var all []event
		events(t, one.open("GET", path+"/progress", nil), func(e event) { all = append(all, e) })
		seen <- all
	}()
	waiting := false
	var last event
	events(t, operator.open("GET", path+"/progress", nil), func(e event) {
		last = e
		if e.data["state"] == "awaiting-approval" && !waiting {
			waiting = true
			difference := e.data["difference"].(object)
			if difference["changed"] != 2. || len(difference["examples"].(list)) != 2 {
				t.Errorf("the difference is %v", difference)
			}
			one.post(path+"/approve", nil).wantProblem(403, domain.CodeForbidden, "path name")
			operator.post(path+"/approve", nil).want(202)
		}
	})
	if !waiting || last.name != "ended" || last.data["state"] != "swapped" {
		t.Errorf("it has waited: %v; the last event is %v", waiting, last)
	}
	theirs := <-seen
	if n := len(theirs); n == 0 || theirs[n-1].name != "ended" || theirs[n-1].data["state"] != "swapped" {
		t.Errorf("a tenant sees %v", theirs)
	}
	for _, e := range theirs {
		for _, name := range []string{"difference", "by", "rollbackUntil", "tenants", "faultedTenants", "maxFaultedTenants", "eventsPerSecond", "secondsLeft"} {
			if e.data[name] != nil {
				t.Errorf("a tenant sees %s: %v", name, e.data[name])
			}
		}
		for _, name := range []string{"eventsDone", "eventsTotal", "documents", "liveDocuments"} {
			if e.data[name] != 0. {
				t.Errorf("a tenant sees %s of all tenants: %v", name, e.data[name])
			}
		}
	}
	shown := operator.get(path).want(200)
	equal(t, "who started it", shown.at("by"), "operator")
	if shown.at("rollbackUntil") == nil || shown.at("definition", "name") != "counts" {
		t.Errorf("the operator sees %s", shown.body)
	}
	one.get(path+"/tenants").wantProblem(403, domain.CodeForbidden, "path name")
	page := operator.get(path + "/tenants?pageSize=1").want(200)
	next := operator.get(page.next()).want(200)
	if next.next() != "" || page.at("tenants", 0, "swapped") != true || next.at("tenants", 0, "swapped") != true ||
		page.number("tenants", 0, "head")+next.number("tenants", 0, "head") != 8 {
		t.Errorf("its tenants are %s and %s", page.body, next.body)
	}

	// Only the operator sees a failure, since it names a tenant's document.
	failed := operator.post("/v1/projections/counts/rebuilds", object{"assertions": list{"doc.n < 10"}, "maxFaultedTenants": 0}).want(202)
	path = "/v1/projections/counts/rebuilds/" + failed.text("id")
	events(t, operator.open("GET", path+"/progress", nil), func(e event) { last = e })
	if text, _ := last.data["error"].(string); !strings.Contains(text, other.tenantID) {
		t.Errorf("the operator sees %v", last)
	}
	if mine := one.get(path).want(200); strings.Contains(string(mine.body), other.tenantID) || mine.text("state") != "failed" {
		t.Errorf("a tenant sees %s", mine.body)
	}
	for _, version := range one.get("/v1/projections/counts/versions").want(200).at("versions").(list) {
		equal(t, "who made a version, as a tenant sees it", version.(object)["by"], "")
	}

	// If this tenant may be left behind, the other one is swapped, and the operator sees the fault of this one.
	left := operator.post("/v1/projections/counts/rebuilds", object{"assertions": list{"doc.n < 10"}}).want(202)
	path = "/v1/projections/counts/rebuilds/" + left.text("id")
	events(t, operator.open("GET", path+"/progress", nil), func(e event) { last = e })
	equal(t, "its state", last.data["state"], "swapped")
	shown = operator.get(path).want(200)
	equal(t, "how many are left behind", shown.at("faultedTenants", "count"), 1)
	equal(t, "which", shown.at("faultedTenants", "first", 0, "tenant"), other.tenantID)
	if mine := one.get(path).want(200); strings.Contains(string(mine.body), other.tenantID) || mine.json()["faultedTenants"] != nil {
		t.Errorf("a tenant sees %s", mine.body)
	}
	faulted := operator.get(path + "/tenants?faulted=true&pageSize=1").want(200)
	equal(t, "the faulted tenants", len(faulted.at("tenants").(list)), 1)
	equal(t, "which", faulted.at("tenants", 0, "tenant"), other.tenantID)
	if reason, _ := faulted.at("tenants", 0, "fault", "reason").(string); !strings.Contains(reason, "doc.n < 10") {
		t.Errorf("the reason is %q", reason)
	}
	if state := one.get("/v1/projections/counts/state").want(200).json(); state["leftBehind"] != nil {
		t.Errorf("the state of one that is swapped is %v", state)
	}
	if state := other.get("/v1/projections/counts/state").want(200).json(); state["leftBehind"] == nil {
		t.Errorf("the state of the one that is left behind is %v", state)
	}
	trial := object{"tenants": list{one.tenantID}, "definition": object{"name": "counts", "on": object{"*": "{'n': 7.0}"}}}
	tried := operator.post("/v1/projections/counts/rebuilds", trial).want(202)
	events(t, operator.open("GET", "/v1/projections/counts/rebuilds/"+tried.text("id")+"/progress", nil), func(e event) { last = e })
	equal(t, "its state", last.data["state"], "swapped")
	equal(t, "the one with another definition", one.get("/v1/projections/counts/documents/order-1").want(200).at("document", "n"), 7)
	equal(t, "the other", other.get("/v1/projections/counts/documents/order-1").want(200).at("document", "n"), 10)

	one.get("/v1/projections/none/rebuilds/"+failed.text("id")+"/progress").wantProblem(404, domain.CodeNotFound, "")
	one.get(path + "0/progress").want(400)
}

// Followers of a rebuild are disconnected when the process stops.
func TestFollowersAreLetGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("one")
	a.append("order-1", 3)
	a.post("/v1/projections", object{"name": "counts", "on": object{"*": "{'n': doc.?n.orValue(0) + 1}"}}).want(201)
	started := a.post("/v1/projections/counts/rebuilds", object{"approve": "manual"}).want(202)
	ended := false
	events(t, a.open("GET", "/v1/projections/counts/rebuilds/"+started.text("id")+"/progress", nil), func(e event) {
		w.server.Stop()
		ended = ended || e.name == "ended"
	})
	if ended {
		t.Error("the rebuild has ended")
	}
}

// An invalid request is refused with its place.
func TestRebuildRequests(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	operator, a := w.operator(), w.tenant("one")
	a.post("/v1/projections", object{"name": "own", "on": object{"*": "doc"}}).want(201)
	operator.post("/v1/projections", object{"name": "shared", "on": object{"*": "doc"}}).want(201)
	own, shared := "/v1/projections/own/rebuilds", "/v1/projections/shared/rebuilds"
	a.post(own, object{"tenants": list{a.tenantID}}).wantProblem(400, domain.CodeInvalidRequest, "tenants")
	operator.post(shared, object{"tenants": list{"nobody"}}).want(400)
	operator.post(shared, object{"tenants": list{domain.NewTenantID().String()}}).wantProblem(400, domain.CodeInvalidRequest, "tenants[0]")
	operator.post(shared, object{"tenants": list{a.tenantID}, "database": "default"}).wantProblem(400, domain.CodeInvalidRequest, "tenants")
	a.post(own, object{"keep": "0s"}).wantProblem(400, domain.CodeInvalidRequest, "keep")
	a.post(own, object{"keep": "9999999999h"}).wantProblem(400, domain.CodeInvalidRequest, "keep")
	a.post(own, object{"dryRun": true, "approve": "manual"}).wantProblem(400, domain.CodeInvalidRequest, "approve")
	a.post(own, object{"assertions": list{"true", "doc +"}}).wantProblem(422, domain.CodeInvalidDefinition, "assertions[1]")
	a.post(own, object{"database": "nowhere"}).wantProblem(422, domain.CodeInvalidDefinition, "database")
	a.post(own, object{"maxEventsPerSecond": 0}).want(400)
	a.post(own, object{"approve": "perhaps"}).want(400)
	a.post(shared, object{}).wantProblem(403, domain.CodeForbidden, "path name")
	started := operator.post(shared, object{"tenants": list{a.tenantID}}).want(202)
	equal(t, "its tenants", started.at("tenants"), list{a.tenantID})
}
