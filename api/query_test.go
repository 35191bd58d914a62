package api_test

import (
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

func TestConditionsAndQueries(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	send := func(eventType string, condition any, tags ...any) *answer {
		t.Helper()
		body := object{"streams": list{object{"stream": "course-1", "events": list{object{"type": eventType, "data": object{}, "tags": append(list{}, tags...)}}}}}
		if condition != nil {
			body["condition"] = condition
		}
		return a.post("/v1/append", body)
	}
	send("Defined", nil, "course:c1").want(201)
	send("Subscribed", nil, "student:s1", "course:c1", "course:c1").want(201)
	send("Renamed", nil).want(201)
	query := object{"items": list{object{"types": list{"Defined", "Subscribed"}, "tags": list{"course:c1"}}}}
	page := a.post("/v1/query", object{"query": query}).want(200)
	equal(t, "the position", page.at("position"), 3)
	equal(t, "whether there is more", page.at("more"), false)
	equal(t, "the tags", page.at("events", 1, "tags"), list{"course:c1", "student:s1"})
	equal(t, "how many there are", len(page.at("events").(list)), 2)
	first := a.post("/v1/query", object{"query": query, "count": 1}).want(200)
	equal(t, "the position of a part", list{first.at("position"), first.at("more")}, list{1, true})
	second := a.post("/v1/query", object{"query": query, "count": 1, "after": 1}).want(200)
	equal(t, "the rest", list{second.at("position"), second.at("more"), second.at("events", 0, "type")}, list{3, false, "Subscribed"})
	last := a.post("/v1/query", object{"query": query, "count": 1, "direction": "backward"}).want(200)
	equal(t, "the newest", list{last.at("position"), last.at("more"), last.at("events", 0, "position")}, list{3, true, 2})
	before := a.post("/v1/query", object{"query": query, "before": 2, "direction": "backward"}).want(200)
	equal(t, "what is before it", list{before.at("position"), before.at("events", 0, "position")}, list{1, 1})
	lines := a.post("/v1/query", object{"query": query}, "Accept", ndjson).want(200)
	equal(t, "the lines", strings.Count(string(lines.body), "\n"), 2)
	equal(t, "their position", lines.header.Get("Manifold-Position"), "3")
	part := a.post("/v1/query", object{"query": query, "count": 1}, "Accept", ndjson).want(200)
	equal(t, "the position of a part of the lines", list{strings.Count(string(part.body), "\n"), part.header.Get("Manifold-Position")}, list{1, ""})
	part = a.post("/v1/query", object{"query": query, "count": 1, "direction": "backward"}, "Accept", ndjson).want(200)
	equal(t, "the position of the newest line", part.header.Get("Manifold-Position"), "3")
	cloud := a.post("/v1/query", object{"query": query}, "Accept", "application/cloudevents+json").want(200)
	if !strings.Contains(string(cloud.body), `"manifoldtags":"course:c1 student:s1"`) {
		t.Errorf("as CloudEvents: %s", cloud.body)
	}

	condition := object{"failIfEventsMatch": query, "after": 1}
	refused := send("Subscribed", condition, "course:c1")
	refused.wantProblem(409, domain.CodeConditionFailed, "condition")
	equal(t, "the position to decide from", refused.at("failedCondition", "position"), 3)
	equal(t, "the failed conditions", refused.at("failedCondition", "conditions"), list{0})
	equal(t, "the events", refused.at("failedCondition", "events"), list{without(page.at("events", 1).(object), "data", "recordedAt")})
	condition["after"] = 3
	send("Subscribed", list{condition, object{"failIfEventsMatch": object{"items": list{object{"tags": list{"student:s9"}}}}}}, "course:c1").want(201)

	a.post("/v1/append", `{"streams":[{"stream":"order-1","events":[{"type":"A","data":1,"tags":["a b"]}]}]}`).wantProblem(400, domain.CodeInvalidRequest, "streams[0].events[0].tags")
	send("A", object{"failIfEventsMatch": object{"items": list{object{"tags": list{"a", 1}}}}}).wantProblem(400, domain.CodeInvalidRequest, "condition.failIfEventsMatch.items[0].tags")
	send("A", list{object{"after": 1}}).wantProblem(400, domain.CodeInvalidRequest, "condition[0].failIfEventsMatch")
	a.post("/v1/query", object{"query": query, "count": 1001}).wantProblem(400, domain.CodeInvalidRequest, "count")

	// Whether something matches would reveal categories that a key may not read.
	limited := &actor{w, w.keyOf(a.tenantID, "events:read:course", "events:append"), a.tenantID}
	limited.post("/v1/query", object{"query": query}).wantProblem(403, domain.CodeForbidden, "")
	body := object{"streams": list{object{"stream": "course-1", "events": list{object{"type": "A", "data": 1}}}}, "condition": condition}
	limited.post("/v1/append", body).wantProblem(403, domain.CodeForbidden, "condition")
	delete(body, "condition")
	limited.post("/v1/append", body).want(201)
}

// A page that finds nothing for long ends early, and says where to continue.
func TestQueryWithRareMatches(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	events := make(list, 1000)
	for range 3 {
		for i := range events {
			events[i] = object{"type": "Common", "data": 1}
		}
		a.post("/v1/streams/order-1/events", events).want(201)
	}
	a.post("/v1/streams/order-1/events", list{object{"type": "Rare", "data": 1}}).want(201)
	items := list{object{"types": list{"Rare"}}}
	for len(items) < domain.MaxQueryItems { // so many tags that each read looks at a hundred events
		items = append(items, object{"tags": list{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}})
	}
	query := object{"items": items}
	first := a.post("/v1/query", object{"query": query}).want(200)
	equal(t, "an empty page", list{first.at("events"), first.at("position"), first.at("more"), first.at("next")}, list{list{}, 1000, true, 1000})
	equal(t, "its header", first.header.Get("Manifold-Next"), "1000")
	last := a.post("/v1/query", object{"query": query, "after": 2001}).want(200)
	equal(t, "the last page", list{last.at("events", 0, "position"), last.at("position"), last.at("more")}, list{3001, 3001, false})
	backward := a.post("/v1/query", object{"query": query, "before": 3001, "direction": "backward"}).want(200)
	equal(t, "backward", list{backward.at("events"), backward.at("position"), backward.at("more"), backward.at("next")}, list{list{}, 3000, true, 2001})
	lines := a.post("/v1/query", object{"query": query}, "Accept", ndjson).want(200)
	equal(t, "the lines", strings.Count(string(lines.body), "\n"), 1)
}

// Tags survive an export and an import, in both forms.
func TestTagsAreExportedAndImported(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.post("/v1/streams/order-1/events", list{object{"type": "A", "data": 1, "tags": list{"b:2", "a:1"}}, object{"type": "B", "data": 2}}).want(201)
	a.send("POST", "/v1/streams/order-2/events", "{}", "Content-Type", "application/json", "ce-specversion", "1.0", "ce-id", "x", "ce-source", "/s", "ce-type", "C", "ce-manifoldtags", "c:3%20d:4").want(201)
	a.post("/v1/publish", `{"topic":"beat","payload":1,"tags":["e:5"]}`).want(201)
	tags := func(a *actor) (all list) {
		for _, event := range a.get("/v1/streams/$all").want(200).at("events").(list) {
			all = append(all, event.(object)["tags"])
		}
		return all
	}
	want := list{list{"a:1", "b:2"}, nil, list{"c:3", "d:4"}, list{"e:5"}}
	equal(t, "the tags", tags(a), want)
	for i, accept := range []string{ndjson, "application/cloudevents+json"} {
		exported := a.get("/v1/export", "Accept", accept).want(200)
		other := w.tenant("other" + string(rune('a'+i)))
		other.importLines("", string(exported.body))
		equal(t, "the tags after an import", tags(other), want)
	}
}
