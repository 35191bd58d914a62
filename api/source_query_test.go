package api_test

import (
	"encoding/json"
	"fmt"
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
	a := newWorld(t, nil).tenant("acme")
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
		text, err := json.Marshal(query)
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
