package api_test

import (
	"fmt"
	"testing"
)

// A filter or an order with a field that no document can have is answered, with a warning that names the field.
func TestAMisspeltFieldIsWarnedOf(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("acme")
	a.append("order-1", 2)
	for name, on := range map[string]string{
		"shown": "merge(doc, {'total': 5, ?'note': doc.?note})", "hidden": "{'total': 5, event.type: 1}",
	} {
		a.post("/v1/projections", object{"name": name, "initial": object{"first": 1}, "on": object{"*": on}}).want(201)
	}
	ask := func(name, query string) any {
		t.Helper()
		return a.get("/v1/projections/" + name + "/documents?minPosition=2&timeout=20&" + query).want(200).json()["warnings"]
	}
	equal(t, "misspelt", ask("shown", "filter=doc.totl+==+5+%7C%7C+has(doc.totl)&orderBy=frist,note"), list{
		`filter: no document of projection "shown" can have a field "totl"; did you mean total?`,
		`orderBy: no document of projection "shown" can have a field "frist"; did you mean first?`,
	})
	for name, query := range map[string]string{"shown": "filter=doc.total+==+5+%26%26+doc.first+==+1&orderBy=note", "hidden": "filter=doc.totl+==+5"} {
		if got := ask(name, query); got != nil {
			t.Errorf("%s, %s: warned of %v", name, query, got)
		}
	}
}

// A projection that has seen all of its source is where the lag says it is, though the log has grown by events of others.
func TestStateAndLagAgree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("acme")
	a.post("/v1/projections", object{"name": "orders", "source": object{"categories": list{"order"}}, "on": object{"*": "{'n': 1}"}}).want(201)
	a.append("order-1", 2)
	a.get("/v1/projections/orders/documents/order-1?minPosition=2&timeout=20").want(200)
	a.append("note-1", 3)
	state := a.get("/v1/projections/orders/state").want(200)
	lag := a.get("/v1/lag").want(200).at("consumers", 0).(object)
	equal(t, "the state", state.at("state"), "caught-up")
	for name, said := range map[string]string{"checkpoint": "position", "lagEvents": "events", "lagSeconds": "seconds"} {
		if fmt.Sprint(state.at(name)) != fmt.Sprint(lag[said]) {
			t.Errorf("the state says %s %v, and the lag %s %v", name, state.at(name), said, lag[said])
		}
	}
	equal(t, "the position", lag["position"], 5.0)
}
