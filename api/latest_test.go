package api_test

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

func latestPath(category string, keys ...string) string {
	return "/v1/categories/" + category + "/latest?keys=" + url.QueryEscape(strings.Join(keys, ","))
}

// The newest event of each key is returned, in the order of the keys. Keys without events are left out.
func TestLatest(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a, other := w.tenant("acme"), w.tenant("umbrella")
	other.append("order-4", 1)
	for i, key := range []string{"1", "2", "1", "a,b", "1", "2"} {
		a.post("/v1/publish", object{"topic": "order", "key": key, "payload": i}).want(201)
	}
	a.post("/v1/publish", object{"topic": "orders", "key": "1", "payload": 0}).want(201)
	data := func(got *answer) (all list) {
		for _, event := range objects(got.want(200).at("events")) {
			all = append(all, event["data"])
		}
		return all
	}
	equal(t, "the newest", data(a.get(latestPath("order", "2", "3", "1", "4", "2", `a\,b`))), list{5, 4, 3})
	equal(t, "the newest of what does not exist", a.get(latestPath("none", "1")).want(200).json(), object{"events": list{}})
	lines := a.get(latestPath("order", "1", "3", "2"), "Accept", ndjson).want(200)
	equal(t, "the lines", list{lines.lines()[0]["data"], lines.lines()[1]["data"], len(lines.lines())}, list{4, 5, 2})
	equal(t, "the type of lines", lines.header.Get("Content-Type"), ndjson)

	a.get("/v1/categories/order/latest").wantProblem(400, domain.CodeInvalidRequest, "query keys")
	empty := a.get("/v1/categories/order/latest?keys=1,,2").wantProblem(400, domain.CodeInvalidRequest, "query keys")
	equal(t, "what is said of an empty key", empty["detail"], "a key is empty; give one or more, with a comma between two")
	for _, keys := range []string{"1,,2", "1,", "a b", "a/b", `a\b`, strings.Repeat("k", domain.MaxStreamBytes)} {
		a.get("/v1/categories/order/latest?keys="+url.QueryEscape(keys)).wantProblem(400, domain.CodeInvalidRequest, "query keys")
	}
	var many []string
	for i := range 1001 {
		many = append(many, fmt.Sprint("k", i))
	}
	a.get(latestPath("order", many...)).wantProblem(413, domain.CodeTooLarge, "query keys")
	equal(t, "the newest of many", data(a.get(latestPath("order", append(many[2:], "1")...))), list{4})
}

// A page of large events ends early, and links to the rest.
func TestLatestInPages(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	var keys []string
	for i := range 20 {
		key := fmt.Sprint("a,", i)
		a.post("/v1/publish", object{"topic": "large", "key": key, "payload": fmt.Sprint(i, strings.Repeat("x", 900_000))}).want(201)
		keys = append(keys, fmt.Sprint(`a\,`, i), fmt.Sprint("none-", i))
	}
	count := 0
	pages := a.pages(latestPath("large", keys...))
	for _, page := range pages {
		for _, event := range objects(page.at("events")) {
			equal(t, "the key", event["stream"], fmt.Sprint("large-a,", count))
			count++
		}
	}
	equal(t, "the events", count, 20)
	if len(pages) < 2 || len(pages) > 4 {
		t.Errorf("18 MB come in %d pages", len(pages))
	}
	equal(t, "the lines", len(a.get(latestPath("large", keys...), "Accept", ndjson).want(200).lines()), 20)
}

// An event can be read by its id, and only by its own tenant.
func TestReadEvent(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a, other := w.tenant("acme"), w.tenant("umbrella")
	id := domain.NewEventID().String()
	a.post("/v1/publish", object{"topic": "order", "payload": 1, "id": id}).want(201)
	got := a.get("/v1/events/" + id).want(200)
	equal(t, "the event", got.json(), a.get("/v1/streams/$all").at("events", 0))
	equal(t, "the event by capitals", a.get("/v1/events/"+strings.ToUpper(id)).want(200).json(), got.json())
	head := a.send("HEAD", "/v1/events/"+id, nil).want(200)
	equal(t, "the length of HEAD's answer", len(head.body), 0)
	other.get("/v1/events/"+id).wantProblem(404, domain.CodeNotFound, "eventId")
	a.get("/v1/events/x").wantProblem(400, domain.CodeInvalidRequest, "eventId")
}
