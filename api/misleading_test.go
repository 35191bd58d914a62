package api_test

import "testing"

// A filter or an order with a field that no document can have gets an answer with a warning that names the field.
func TestAMisspeltFieldIsWarnedOf(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.append("order-1", 2)
	for name, on := range map[string]string{
		"shown": "merge(doc, {'total': 5, 'to': merge(doc.?to.orValue({}), {'street': 'a', 'any': event.data}), ?'note': doc.?note})", "hidden": "{'total': 5, event.type: 1}",
	} {
		a.post("/v1/projections", object{"name": name, "initial": object{"first": 1}, "on": object{"*": on}}).want(201)
	}
	ask := func(name, query string) any {
		t.Helper()
		return a.get("/v1/projections/" + name + "/documents?minPosition=2&timeout=20&" + query).want(200).json()["warnings"]
	}
	equal(t, "misspelt", ask("shown", "filter=doc.totl+==+5+%7C%7C+has(doc.totl)&orderBy=frist,note"), list{
		`filter: no document of projection "shown" can have a field "totl"; known are first, note, to, total`,
		`orderBy: no document of projection "shown" can have a field "frist"; known are first, note, to, total`,
	})
	equal(t, "misspelt further down", ask("shown", "filter=doc.to.steet+==+'a'+%7C%7C+doc.to.any.n+==+1&orderBy=total.x&fields=first,to.stret,to.street,note.a"), list{
		`filter: no document of projection "shown" can have a field "to.steet"; known are any, street`,
		`orderBy: no document of projection "shown" can have a field "total.x"`,
		`fields: no document of projection "shown" can have a field "to.stret"; known are any, street`,
		`fields: no document of projection "shown" can have a field "note.a"`,
	})
	for name, query := range map[string]string{"shown": "filter=doc.total+==+5+%26%26+doc.first+==+1&orderBy=note", "hidden": "filter=doc.totl+==+5"} {
		if got := ask(name, query); got != nil {
			t.Errorf("%s, %s: warned of %v", name, query, got)
		}
	}
}

// The operator's list of all tenants' documents warns of fields that no document of these tenants can have.
func TestAMisspeltFieldOfAllTenantsIsWarnedOf(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a, operator := w.tenant("acme"), w.operator()
	operator.send("PUT", "/v1/projections/totals", object{"name": "totals", "on": object{"*": "{'total': 5}"}}).want(201)
	a.append("order-1", 2)
	a.post("/v1/projections/totals/catch-up", nil).want(200)
	answer := operator.get("/v1/admin/projections/totals/documents?filter=doc.totl+==+5&fields=toal").want(200).json()
	equal(t, "warnings", answer["warnings"], list{
		`filter: no document of projection "totals" can have a field "totl"; known are total`,
		`fields: no document of projection "totals" can have a field "toal"; known are total`,
	})
	equal(t, "nothing to warn of", operator.get("/v1/admin/projections/totals/documents?filter=doc.total+==+5&fields=total").want(200).json()["warnings"], nil)
}

// A projection's state and its lag agree, both when it has processed all of its source and when only events of other
// sources arrive.
func TestStateAndLagAgree(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.post("/v1/projections", object{"name": "orders", "source": object{"categories": list{"order"}}, "on": object{"*": "{'n': 1 / (event.data.n - 9)}"}}).want(201)
	agree := func(what string, want object) {
		t.Helper()
		first := a.get("/v1/projections/orders/state").want(200)
		lag := a.get("/v1/lag").want(200).at("consumers", 0).(object)
		state := a.get("/v1/projections/orders/state").want(200)
		for name, value := range want {
			equal(t, what+": "+name, state.at(name), value)
		}
		for name, said := range map[string]string{"checkpoint": "position", "lagPositions": "lagPositions"} {
			equal(t, what+": "+said, lag[said], state.at(name))
		}
		equal(t, what+": events", lag["events"], state.at("lagPositions"))
		if before, seconds, after := first.at("lagSeconds").(float64), lag["seconds"].(float64), state.at("lagSeconds").(float64); seconds < before || seconds > after {
			t.Errorf("%s: the lag says %g s, the state %g s before and %g s after", what, seconds, before, after)
		}
	}
	a.append("note-1", 3)
	a.append("order-1", 2)
	a.append("note-1", 3)
	a.post("/v1/projections/orders/catch-up", nil).want(200)
	agree("caught up", object{"state": "caught-up", "checkpoint": 8.0, "lagEvents": 0.0, "lagPositions": 0.0, "lagSeconds": 0.0})
	a.post("/v1/streams/order-1/events", list{object{"type": "Added", "data": object{"n": 9}}}).want(201)
	a.append("note-1", 3)
	a.append("order-1", 2)
	a.post("/v1/projections/orders/catch-up", nil).want(409)
	agree("standing still", object{"state": "faulted", "checkpoint": 8.0, "lagEvents": 3.0, "lagPositions": 6.0})
}
