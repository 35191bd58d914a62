package api_test

import (
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// A document is returned as it is, with a tag that changes exactly when the document does.
func TestSnap(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a, other := w.tenant("acme"), w.tenant("umbrella")
	keeping(a, "state")
	keeping(other, "state")
	first := a.set(map[string]any{"order-1": object{"total": 1}, "order-2": object{"total": 2}})
	path := "/v1/snap/state/order-1"
	got := a.get(path + "?minPosition=2&timeout=20").want(200)
	equal(t, "the body", got.json(), object{"total": 1})
	equal(t, "its type", got.header.Get("Content-Type"), "application/json")
	equal(t, "its position", got.header.Get("Manifold-Position"), "1")
	tag := got.header.Get("ETag")
	head := a.send("HEAD", path, nil).want(200)
	equal(t, "HEAD's tag", head.header.Get("ETag"), tag)
	equal(t, "HEAD's body", len(head.body), 0)
	for _, header := range []string{tag, "W/" + tag, `"x", ` + tag, "*"} {
		for _, method := range []string{"GET", "HEAD"} {
			same := a.send(method, path, nil, "If-None-Match", header).want(304)
			equal(t, "the tag of a 304", same.header.Get("ETag"), tag)
			equal(t, "the body of a 304", len(same.body), 0)
		}
	}
	a.get(path, "If-None-Match", `"x"`).want(200)
	a.get(path, "If-None-Match", tag[:len(tag)-1]).want(200)

	next := a.set(map[string]any{"order-1": object{"total": 5}})
	if next != first+1 {
		t.Fatalf("the position is %d", next)
	}
	changed := a.get(path+"?minPosition=3&timeout=20", "If-None-Match", tag).want(200)
	equal(t, "the new body", changed.json(), object{"total": 5})
	equal(t, "the other's tag", a.get("/v1/snap/state/order-2", "If-None-Match", changed.header.Get("ETag")).want(200).json(), object{"total": 2})

	a.get("/v1/snap/state/order-9").wantProblem(404, domain.CodeNotFound, "key")
	a.get("/v1/snap/none/order-1").wantProblem(404, domain.CodeNotFound, "projection")
	other.get(path+"?timeout=0").wantProblem(404, domain.CodeNotFound, "")
	a.get(path+"?minPosition=99&timeout=0").wantProblem(503, domain.CodeNotCaughtUp, "")
	a.get(path+"?fields=total").wantProblem(400, domain.CodeInvalidRequest, "query fields")
}

// A rebuild makes a different document from the same events, at the same position, and its tag differs.
func TestSnapAfterARebuild(t *testing.T) {
	t.Parallel()
	a := newWorld(t, nil).tenant("acme")
	keeping(a, "state")
	a.set(map[string]any{"order-1": object{"total": 1}})
	path := "/v1/snap/state/order-1?minPosition=1&timeout=20"
	before := a.get(path).want(200)
	rebuild := a.post("/v1/projections/state/rebuilds", object{"definition": object{"name": "state", "on": object{"Set": "{'all': event.data.total}"}}}).want(202)
	a.get("/v1/projections/state/rebuilds/" + rebuild.text("id") + "/progress").want(200) // until it has ended
	after := a.get(path, "If-None-Match", before.header.Get("ETag")).want(200)
	equal(t, "the document", after.json(), object{"all": 1})
	equal(t, "its position", after.header.Get("Manifold-Position"), before.header.Get("Manifold-Position"))
}
