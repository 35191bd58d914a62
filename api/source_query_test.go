package api_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

// A follower, a connection to the gateway and a group with a query receive exactly the events that it matches, in the
// log's order: what is in the log, and what is appended meanwhile. The log is long enough to be read by its tags.
func TestSubscriptionsReceiveWhatAQueryMatches(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	var log []domain.Event
	appendEvents := func(events ...domain.Event) {
		streams := make(list, len(events))
		for i, e := range events {
			streams[i] = object{"stream": e.Stream, "events": list{object{"type": e.Type, "data": object{}, "tags": e.Tags}}}
		}
		a.post("/v1/append", object{"streams": streams}).want(201)
		log = append(log, events...)
	}
	number := 0
	draw := func(from *rapid.T, tags []string) domain.Event {
		number++
		return domain.Event{
			Stream: fmt.Sprintf("%s-%d", []string{"course", "student"}[number%2], number),
			Type:   rapid.SampledFrom([]string{"A", "B", "C"}).Draw(from, "type"), Tags: rapid.SliceOfNDistinct(rapid.SampledFrom(tags), 0, 3, rapid.ID).Draw(from, "tags"),
		}
	}
	common := []string{"x:1", "x:2", "x:3", "y:1"}
	for batch := range 4 {
		var events []domain.Event
		for i := range 700 {
			events = append(events, rapid.Custom(func(from *rapid.T) domain.Event {
				tags := common
				if i == 350 {
					tags = []string{"rare", "x:1"}
				}
				return draw(from, tags)
			}).Example(batch*700+i))
		}
		appendEvents(events...)
	}
	run := 0
	item := rapid.Custom(func(from *rapid.T) domain.QueryItem {
		return domain.QueryItem{
			Types: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"A", "B", "C", "D"}), 0, 2, rapid.ID).Draw(from, "types"),
			Tags:  rapid.SliceOfNDistinct(rapid.SampledFrom(append([]string{"rare"}, common...)), 0, 2, rapid.ID).Draw(from, "tags"),
		}
	})
	for seed := range 12 {
		run++
		query := domain.Query(rapid.SliceOfN(item, 1, 3).Example(seed))
		category := []string{"", "course"}[seed%2]
		text, err := json.Marshal(domain.QueryForm{Items: query})
		if err != nil {
			t.Fatal(err)
		}
		var sent any
		if err := json.Unmarshal(text, &sent); err != nil {
			t.Fatal(err)
		}
		wanted := func(after int) (positions []int) {
			for i, e := range log {
				if i+1 > after && query.Matches(e.Type, e.Tags) && strings.HasPrefix(e.Stream, category) {
					positions = append(positions, i+1)
				}
			}
			return positions
		}
		path, source := "/v1/subscribe/$all", object{}
		if category != "" {
			path, source = "/v1/subscribe/categories/"+category, object{"categories": list{category}}
		}
		f := a.follow(t, transports[seed%3], path+"?query="+url.QueryEscape(string(text)))
		group := a.consumer(fmt.Sprintf("group-%d", run), object{"source": source, "query": json.RawMessage(text), "partitions": seed % 4 / 2})
		equal(t, "the group's query", group.get(group.path("")).want(200).json()["query"], sent)
		var got []int
		for _, frame := range f.until("caughtUp") {
			if frame.kind == "event" {
				got = append(got, frame.position)
			}
		}
		equal(t, "what the follower of "+string(text)+" has received", got, wanted(0))
		before := len(log)
		for range 20 {
			appendEvents(rapid.Custom(func(from *rapid.T) domain.Event { return draw(from, common) }).Example(seed))
		}
		last := domain.Event{Stream: fmt.Sprintf("course-last-%d", run), Type: "A", Tags: query[0].Tags}
		if len(query[0].Types) > 0 {
			last.Type = query[0].Types[0]
		}
		appendEvents(last)
		f.want(wanted(before)...)
		f.close()
		if seed%4 >= 2 {
			continue // receiving from partitions needs a member
		}
		var received []int
		for all := wanted(0); len(received) < len(all); {
			deliveries := group.receive(1000)
			for _, d := range deliveries {
				received = append(received, int(d["event"].(object)["position"].(float64)))
			}
			group.answer("ack", nil, deliveries...)
		}
		equal(t, "what the group of "+string(text)+" has received", received, wanted(0))
		group.nothing()
	}

	g := a.gateway()
	g.ask("SUBSCRIBE", object{"subscription": "rare", "source": object{}, "query": object{"items": list{object{"tags": list{"rare"}}}}})
	for i, e := range log {
		if e.Tags != nil && strings.Contains(strings.Join(e.Tags, " "), "rare") {
			equal(t, "the position", g.come("EVENT", "rare")["event"].(object)["position"], i+1)
		}
	}
	g.come("CAUGHT_UP", "rare")
}

// The documents of a projection with a query are those of the events that it matches: those in the log, those that are
// appended later, and, after a change of the query, those of a rebuild. Its position passes the others.
func TestProjectionsFoldWhatAQueryMatches(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	var log []domain.Event
	appendEvents := func(seed int) {
		var streams list
		for i := range 40 {
			e := rapid.Custom(func(from *rapid.T) domain.Event {
				return domain.Event{
					Stream: rapid.SampledFrom([]string{"course-1", "course-2", "student-1"}).Draw(from, "stream"), Type: rapid.SampledFrom([]string{"A", "B", "C"}).Draw(from, "type"),
					Tags: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"x:1", "x:2", "y:1"}), 0, 2, rapid.ID).Draw(from, "tags"),
				}
			}).Example(100*seed + i)
			log = append(log, e)
			streams = append(streams, object{"stream": e.Stream, "events": list{object{"type": e.Type, "data": object{}, "tags": e.Tags}}})
		}
		// The projections have nothing of the last event.
		log = append(log, domain.Event{Stream: "course-1", Type: "D"})
		streams = append(streams, object{"stream": "course-1", "events": list{object{"type": "D", "data": object{}}}})
		for _, s := range streams {
			a.post("/v1/append", object{"streams": list{s}}).want(201)
		}
	}
	definitions := map[string]object{
		"by-stream": {}, "by-category": {"key": "event.category"}, "live": {"mode": "live"}, "in-category": {"source": object{"categories": list{"course"}}},
		"records": {"map": object{"*": "{'n': 1}"}},
	}
	put := func(query domain.Query, status int) {
		for name, given := range definitions {
			d := object{"source": object{}, "on": object{"*": "{'n': doc.?n.orValue(0) + 1}"}}
			for field, value := range given {
				d[field] = value
			}
			if _, maps := d["map"]; maps {
				delete(d, "on")
			}
			d["source"].(object)["query"] = domain.QueryForm{Items: query}
			answer := a.send("PUT", "/v1/projections/"+name, d)
			if answer.status != status && answer.status != 200 {
				t.Fatalf("%s is answered %d: %s", name, answer.status, answer.body)
			}
		}
	}
	check := func(query domain.Query) {
		t.Helper()
		for name := range definitions {
			want := map[string]int{}
			for i, e := range log {
				switch category := domain.Category(e.Stream); {
				case !query.Matches(e.Type, e.Tags) || name == "in-category" && category != "course":
				case name == "by-category":
					want[category]++
				case name == "records":
					want[fmt.Sprint(i+1)] = 1
				default:
					want[e.Stream]++
				}
			}
			a.until(documentsPath(name, "minPosition", fmt.Sprint(len(log)), "timeout", "20", "pageSize", "1000"), func(page *answer) bool {
				got := map[string]int{}
				for _, d := range documentsIn(page.want(200)) {
					var data struct{ N int }
					if err := json.Unmarshal(d.Data, &data); err != nil {
						t.Fatal(err)
					}
					if name == "records" {
						d.ID = fmt.Sprint(d.Version)
					}
					got[d.ID] = data.N
				}
				return maps.Equal(got, want)
			})
			preview := a.post("/v1/projections/preview", object{"definition": object{"source": object{"query": domain.QueryForm{Items: query}}, "on": object{"*": "doc"}}, "source": object{"stream": "course-1"}})
			step := 0
			for _, e := range log {
				if e.Stream != "course-1" {
					continue
				}
				if _, folded := preview.want(200).at("steps", step).(object)["documentId"]; folded != query.Matches(e.Type, e.Tags) {
					t.Fatalf("step %d of the preview of %+v is folded: %t", step, query, folded)
				}
				step++
			}
		}
	}
	first, second := domain.Query{{Tags: []string{"x:1"}}}, domain.Query{{Types: []string{"A", "B"}, Tags: []string{"x:2"}}, {Types: []string{"C"}}}
	appendEvents(1)
	put(first, 201)
	check(first)
	appendEvents(2)
	check(first)
	put(second, 202)
	check(second)
	appendEvents(3)
	check(second)
	shown := a.get("/v1/projections/by-stream").want(200)
	equal(t, "the query", shown.at("definition", "source", "query"), object{"items": list{object{"types": list{"A", "B"}, "tags": list{"x:2"}}, object{"types": list{"C"}}}})
	versions := a.get("/v1/projections/by-stream/versions").want(200)
	equal(t, "the change", versions.at("versions", 0, "changes", 0, "field"), "source.query")
	a.send("PUT", "/v1/projections/by-stream", object{"on": object{"*": "doc"}, "source": object{"query": object{"items": list{object{"tags": list{"a b"}}}}}}).
		wantProblem(400, domain.CodeInvalidRequest, "source.query.items[0].tags[0]")
}

// Events of a group that an index finds come after the gap that retention has left before them.
func TestGapsBeforeWhatAQueryMatches(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.append("order-1", 2200)
	a.post("/v1/streams/order-2/events", list{object{"type": "T", "data": object{}, "tags": list{"x"}}}).want(201)
	a.remove("order", 5)
	deliveries := a.consumer("rare", object{"query": object{"items": list{object{"tags": list{"x"}}}}}).receive(10)
	if len(deliveries) != 1 || deliveries[0]["gap"] == nil {
		t.Errorf("delivered are %v", deliveries)
	}
}
