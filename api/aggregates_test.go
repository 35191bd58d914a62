package api_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// The first instant of year 1 means "none" within the service. A request for that moment must not mean "now".
func TestStateAtTheBeginningOfTimeIsNotTheNewest(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.append("order-1", 2)
	a.send("PUT", "/v1/aggregates/order", `{"on": {"*": "{\"seen\": true}"}}`).want(200, 201, 204)
	a.get("/v1/streams/order-1/state").want(200)
	for _, at := range []string{"0001-01-01T00:00:00Z", "0000-01-01T00:00:00Z"} {
		a.get("/v1/streams/order-1/state?at="+at).wantProblem(400, domain.CodeInvalidRequest, "query at")
	}
	a.get("/v1/streams/order-1/state?at=0002-01-01T00:00:00Z").wantProblem(404, domain.CodeNotFound, "at")
}

// A moment of occurrence selects the state by occurrence time, and cannot be combined with another moment.
func TestStateByWhenEventsHappened(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.post("/v1/streams/order-1/events", list{
		object{"type": "A", "data": object{"n": 1}, "occurredAt": "2020-01-01T00:00:00Z"},
		object{"type": "A", "data": object{"n": 2}, "occurredAt": "2020-03-01T00:00:00Z"},
		object{"type": "A", "data": object{"n": 3}, "occurredAt": "2020-02-01T00:00:00Z"},
	}).want(201)
	a.send("PUT", "/v1/aggregates/order", `{"on": {"*": "{\"n\": event.data.n}"}}`).want(200)
	got := a.get("/v1/streams/order-1/state?occurredAt=2020-02-15T00:00:00Z").want(200)
	equal(t, "the state", got.at("state"), object{"n": 3})
	equal(t, "its version", got.number("version"), 3)
	for _, other := range []string{"version=1", "at=2020-02-15T00:00:00Z"} {
		a.get("/v1/streams/order-1/state?occurredAt=2020-02-15T00:00:00Z&"+other).wantProblem(400, domain.CodeInvalidRequest, "query occurredAt")
	}
	a.get("/v1/streams/order-1/state?occurredAt=0001-01-01T00:00:00Z").wantProblem(400, domain.CodeInvalidRequest, "query occurredAt")
	a.get("/v1/streams/order-1/state?occurredAt=2019-01-01T00:00:00Z").wantProblem(404, domain.CodeNotFound, "occurredAt")
}

// A caller that may only append can have a snapshot taken, but learns nothing from it of what others have appended.
func TestASnapshotTellsNothingToWhoMayOnlyAppend(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	appends := &actor{w, w.key(a.tenantID, auth.ScopeEventsAppend), a.tenantID}
	a.send("PUT", "/v1/aggregates/order", `{"on": {"*": "{\"n\": event.data.n, \"secret\": event.data.secret}"}}`).want(200)
	a.post("/v1/streams/order-1/events", list{object{"type": "A", "data": object{"n": 1, "secret": "s3cret"}}}).want(201)
	got := appends.post("/v1/snapshots/order-1", nil).want(201)
	equal(t, "the state for who may only append", got.at("state"), nil)
	equal(t, "its version", got.number("version"), 1)
	equal(t, "the state for who may read", a.post("/v1/snapshots/order-1", nil).want(201).at("state"), object{"n": 1, "secret": "s3cret"})

	own := `{"state":{"mine":true},"version":1,"tag":"x"}`
	appends.send("POST", "/v1/snapshots/order-1", own).want(201)
	equal(t, "what was put", a.get("/v1/snapshots/order-1/latest").want(200).at("state"), object{"mine": true})

	a.post("/v1/streams/order-2/events", list{object{"type": "A", "data": object{"n": "s3cret"}}}).want(201)
	a.send("PUT", "/v1/aggregates/order", `{"on": {"*": "{\"n\": timestamp(event.data.n)}"}}`).want(200)
	told := a.post("/v1/snapshots/order-2", nil).want(409).text("detail")
	hidden := appends.post("/v1/snapshots/order-2", nil).want(409).text("detail")
	if !strings.Contains(told, "s3cret") || strings.Contains(hidden, "s3cret") {
		t.Errorf("a key that may read sees %q; one that may only append sees %q", told, hidden)
	}
}

// Snapshots are listed page by page, and read by version and tag.
func TestSnapshotsByVersion(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.append("order-1", 5)
	a.get("/v1/snapshots/order-1").want(200)
	for version, tags := range [][]string{{}, {"x"}, {}, {"y"}, {"x"}, {"y", "x"}} {
		for _, tag := range tags {
			a.post("/v1/snapshots/order-1", object{"state": object{"v": version}, "version": version, "tag": tag}).want(201)
		}
	}
	var listed []string
	for path := "/v1/snapshots/order-1?pageSize=2"; path != ""; {
		page := a.get(path).want(200)
		for _, one := range page.at("snapshots").(list) {
			listed = append(listed, fmt.Sprint(one.(object)["version"], one.(object)["tag"]))
		}
		path = page.next()
	}
	equal(t, "the snapshots", listed, []string{"5x", "5y", "4x", "3y", "1x"})
	for query, want := range map[string]any{"": 5, "?version=4": 4, "?version=3": 3, "?version=4&tag=y": 3, "?tag=y": 5, "?version=2": 1} {
		equal(t, query, a.get("/v1/snapshots/order-1/latest"+query).want(200).at("state", "v"), want)
	}
	a.get("/v1/snapshots/order-1/latest?version=2&tag=y").wantProblem(404, domain.CodeNotFound, "stream")
	a.get("/v1/snapshots/order-1/latest?version=0").wantProblem(400, domain.CodeInvalidRequest, "query version")
	a.get("/v1/snapshots/order-1?pageToken=bm5v").wantProblem(400, domain.CodeInvalidRequest, "query pageToken")
	equal(t, "of no stream", a.get("/v1/snapshots/order-9").want(200).at("snapshots"), list{})
}

// The contract states the same limits as the service.
func TestTheContractHasTheBoundsOfSnapshots(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	for every, status := range map[int]int{
		aggregate.MinSnapshotEvery - 1: 400, aggregate.MinSnapshotEvery: 200, aggregate.MaxSnapshotEvery: 200, aggregate.MaxSnapshotEvery + 1: 400,
	} {
		a.send("PUT", "/v1/aggregates/order", fmt.Sprintf(`{"on": {"*": "state"}, "snapshotEvery": %d}`, every)).want(status)
	}
}
