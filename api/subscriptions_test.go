package api_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// consumer receives from a group and answers.
type consumer struct {
	*actor
	group string
}

// consumer creates a group and returns a consumer of it.
func (a *actor) consumer(name string, definition object) consumer {
	a.t.Helper()
	a.send("PUT", "/v1/subscriptions/"+name, definition).want(201)
	return consumer{a, name}
}

func (c consumer) path(rest string) string { return "/v1/subscriptions/" + c.group + rest }

// receive returns the due events, or those that arrive within the longest allowed wait.
func (c consumer) receive(batch int) []object {
	c.t.Helper()
	got := c.post(c.path("/receive"), object{"batch": batch, "wait": 30}).want(200)
	return objects(got.at("deliveries"))
}

// nothing fails the test if an event is due.
func (c consumer) nothing() {
	c.t.Helper()
	equal(c.t, "what is due", c.post(c.path("/receive"), nil).want(200).json(), object{"deliveries": list{}})
}

// answer answers deliveries, and returns the outcomes.
func (c consumer) answer(how string, more object, deliveries ...object) []string {
	c.t.Helper()
	ids := make(list, len(deliveries))
	for i, d := range deliveries {
		ids[i] = object{"id": d["event"].(object)["id"], "attempt": d["attempt"]}
	}
	body := object{"ids": ids}
	for name, value := range more {
		body[name] = value
	}
	var outcomes []string
	for i, result := range objects(c.post(c.path("/"+how), body).want(200).at("results")) {
		equal(c.t, "which is answered", without(result, "outcome"), ids[i])
		outcomes = append(outcomes, result["outcome"].(string))
	}
	return outcomes
}

func (c consumer) progress() object {
	c.t.Helper()
	all := objects(c.get(c.path("")).want(200).at("progress"))
	equal(c.t, "the number of partitions", len(all), 1)
	return all[0]
}

func objects(values any) []object {
	all := make([]object, len(values.(list)))
	for i, value := range values.(list) {
		all[i] = value.(object)
	}
	return all
}

// of returns the positions of deliveries.
func of(deliveries []object) []int {
	all := make([]int, len(deliveries))
	for i, d := range deliveries {
		all[i] = int(d["event"].(object)["position"].(float64))
	}
	return all
}

func TestLifeOfAGroup(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.append("order-1", 3)
	a.append("bill-1", 1)
	definition := object{"source": object{"categories": list{"order"}}, "filter": "event.data.n < 2 && true", "ackTimeout": 12.5, "backoff": object{"min": 0.25}}
	made := a.send("PUT", "/v1/subscriptions/mail", definition).want(201)
	again := a.send("PUT", "/v1/subscriptions/mail", definition).want(200)
	equal(t, "the group, put again", again.json(), made.json())
	if !strings.Contains(string(made.body), "event.data.n < 2 && true") {
		t.Errorf("the filter is not given as it was written: %s", made.body)
	}
	c := consumer{a, "mail"}
	equal(t, "the group", without(a.get(c.path("")).want(200).json(), "createdAt", "updatedAt"), object{
		"name": "mail", "source": object{"categories": list{"order"}}, "filter": "event.data.n < 2 && true", "from": "start",
		"batchSize": 100, "maxInFlight": 1000, "ackTimeout": 12.5, "maxAttempts": 5, "backoff": object{"min": 0.25, "max": 300},
		"ordering": "none", "paused": false, "head": 4,
		"progress": list{object{"partition": 0, "checkpoint": 0, "readTo": 0, "inFlight": 0, "retrying": 0, "deadLetters": 0}},
	})

	raw := c.post(c.path("/receive"), nil).want(200)
	deliveries := objects(raw.at("deliveries"))
	equal(t, "what is delivered", of(deliveries), list{1, 2})
	equal(t, "the kind of answer", list{raw.header.Get("Content-Type"), raw.header.Get("Cache-Control")}, list{"application/json", "no-store"})
	first := deliveries[0]
	equal(t, "the event", first["event"], a.get("/v1/streams/$all?count=1").want(200).at("events", 0))
	if at, err := time.Parse(time.RFC3339Nano, first["ackDeadline"].(string)); err != nil || time.Until(at) > 13*time.Second || time.Until(at) < 0 {
		t.Errorf("the deadline is %v", first["ackDeadline"])
	}
	equal(t, "the rest of a delivery", without(first, "event", "ackDeadline"),
		object{"attempt": 1, "attempts": 1, "maxAttempts": 5, "group": "mail", "cursor": 0})
	c.nothing()
	equal(t, "the later one's ack", c.answer("ack", nil, deliveries[1]), list{"done"})
	equal(t, "the progress", without(c.progress(), "readTo"), object{"partition": 0, "checkpoint": 0, "oldest": 1, "inFlight": 1, "retrying": 0, "deadLetters": 0})
	one := c.post(c.path("/ack/"+first["event"].(object)["id"].(string)+"?attempt=1"), nil).want(200)
	equal(t, "the earlier one's ack", one.json(), object{"id": first["event"].(object)["id"], "attempt": 1, "outcome": "done"})
	equal(t, "acks again", c.answer("ack", nil, deliveries...), list{"not-in-flight", "not-in-flight"})
	c.nothing()
	c.append("order-1", 1)
	equal(t, "what came since", of(c.receive(10)), list{5})

	a.send("DELETE", c.path(""), nil).want(204)
	for _, path := range []string{"", "/dead-letters", "/members"} {
		a.get(c.path(path)).wantProblem(404, domain.CodeNotFound, "")
	}
	a.post(c.path("/receive"), object{"wait": 5}).wantProblem(404, domain.CodeNotFound, "")
	a.post(c.path("/ack"), object{"ids": list{object{"id": domain.NewEventID().String(), "attempt": 1}}}).wantProblem(404, domain.CodeNotFound, "")
	a.send("DELETE", c.path(""), nil).wantProblem(404, domain.CodeNotFound, "")
	// A new group with the same name has no state of the old one.
	equal(t, "where a new one begins", of(a.consumer("mail", object{"from": "4"}).receive(10)), list{4, 5})
}

func TestGroupsAreListedInPages(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	equal(t, "no groups", a.get("/v1/subscriptions").want(200).json(), object{"subscriptions": list{}})
	for _, name := range []string{"c", "a", "b"} {
		a.consumer(name, object{})
	}
	var names list
	for path := "/v1/subscriptions?pageSize=2"; path != ""; {
		page := a.get(path).want(200)
		for _, group := range objects(page.at("subscriptions")) {
			names = append(names, group["name"])
		}
		path = page.next()
	}
	equal(t, "the groups", names, list{"a", "b", "c"})
	a.get("/v1/subscriptions?pageToken=abc").wantProblem(400, domain.CodeInvalidRequest, "query pageToken")
	a.get("/v1/subscriptions?page=2").wantProblem(400, domain.CodeInvalidRequest, "query page")
}

// A late answer counts while no other consumer has the event, and has no effect afterwards.
func TestStaleAnswers(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.append("order-1", 1)
	c := a.consumer("g", object{"ackTimeout": 1})
	first := c.receive(1)[0]
	again := c.receive(1)[0] // waits until the lease expires
	equal(t, "the attempts", list{first["attempt"], again["attempt"]}, list{1, 2})
	for _, how := range []string{"ack", "nack", "extend"} {
		equal(t, "the old attempt's "+how, c.answer(how, nil, first), list{"stale"})
	}
	equal(t, "the progress", c.progress()["inFlight"], 1)
	equal(t, "the extension", c.answer("extend", object{"by": 60}, again), list{"done"})
	c.nothing()
	equal(t, "the new attempt's ack", c.answer("ack", nil, again), list{"done"})
	equal(t, "the old attempt's ack", c.answer("ack", nil, first), list{"not-in-flight"})
	equal(t, "an answer to what was never delivered", c.answer("ack", nil, object{"event": object{"id": domain.NewEventID().String()}, "attempt": 7}), list{"not-in-flight"})
}

func TestNack(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.append("order-1", 4)
	c := a.consumer("g", object{"maxAttempts": 2, "backoff": object{"min": 0, "max": 3600}})
	d := c.receive(10)
	equal(t, "an ack of a later event, before", c.answer("ack", nil, d[3]), list{"done"})
	equal(t, "retry with a delay", c.answer("nack", object{"delay": 0.2, "reason": "later"}, d[0]), list{"done"})
	equal(t, "park", c.answer("nack", object{"action": "park", "reason": "bad <mail> & more"}, d[1]), list{"done"})
	equal(t, "skip", c.answer("nack", object{"action": "skip"}, d[2]), list{"done"})
	equal(t, "the progress", c.progress(), object{"partition": 0, "checkpoint": 4, "readTo": 4, "oldest": 1, "inFlight": 0, "retrying": 1, "deadLetters": 1})
	equal(t, "answers again", c.answer("ack", nil, d...), list{"stale", "not-in-flight", "not-in-flight", "not-in-flight"})
	again := c.receive(10)
	equal(t, "the redelivery", list{of(again), again[0]["attempt"]}, list{list{1}, 2})
	equal(t, "the last attempt", c.answer("nack", object{"reason": "no"}, again[0]), list{"done"})
	c.nothing()

	page := a.get(c.path("/dead-letters?pageSize=1")).want(200)
	letter := page.at("deadLetters", 0).(object)
	equal(t, "the first dead letter", list{letter["attempts"], letter["replays"], letter["reason"], letter["event"]}, list{2, 0, "no", d[0]["event"]})
	page = a.get(page.next()).want(200)
	equal(t, "the last page's link", page.next(), "")
	equal(t, "the second", page.at("deadLetters", 0, "reason"), "bad <mail> & more")
	if !strings.Contains(string(page.body), "bad <mail> & more") {
		t.Errorf("the reason is not given as it was sent: %s", page.body)
	}
	if parked, ok := letter["parkedAt"].(string); !ok || parked != letter["firstParkedAt"] || letter["replayAt"] != nil {
		t.Errorf("the dead letter is %v", letter)
	}
	a.get(c.path("/dead-letters?pageToken=bjA")).wantProblem(400, domain.CodeInvalidRequest, "query pageToken")
}

func TestDeadLettersAreReplayedAndDiscarded(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.append("order-1", 3)
	c := a.consumer("g", object{"ordering": "stream"})
	park := func(d ...object) {
		t.Helper()
		for _, outcome := range c.answer("nack", object{"action": "park"}, d...) {
			equal(t, "the park", outcome, "done")
		}
	}
	var ids []string
	for range 3 {
		d := c.receive(10)
		equal(t, "of a stream at a time", len(d), 1)
		park(d...)
		ids = append(ids, d[0]["event"].(object)["id"].(string))
	}
	first := a.get(c.path("/dead-letters")).want(200).text("deadLetters", 1, "firstParkedAt")

	equal(t, "one replay", a.post(c.path("/dead-letters/"+ids[1]+"/replay"), nil).want(202).json(), object{"replayed": 1})
	d := c.receive(10)
	equal(t, "the replay", list{of(d), d[0]["attempt"], d[0]["replays"]}, list{list{2}, 2, 1})
	equal(t, "the dead letters meanwhile", c.progress()["deadLetters"], 2)
	a.post(c.path("/dead-letters/"+ids[1]+"/replay"), nil).wantProblem(404, domain.CodeNotFound, "eventId")
	park(d...)
	back := a.get(c.path("/dead-letters")).want(200).at("deadLetters", 1).(object)
	equal(t, "the dead letter that came back", list{back["replays"], back["attempts"], back["firstParkedAt"]}, list{1, 1, first})

	a.send("DELETE", c.path("/dead-letters/"+ids[0]), nil).want(204)
	a.send("DELETE", c.path("/dead-letters/"+ids[0]), nil).wantProblem(404, domain.CodeNotFound, "eventId")
	a.send("DELETE", c.path("/dead-letters/"+domain.EventID{}.String()), nil).wantProblem(400, domain.CodeInvalidRequest, "path eventId")
	equal(t, "what is left", a.get(c.path("/dead-letters")).want(200).at("deadLetters", 0, "event", "id"), ids[1])
	equal(t, "all replays", a.post(c.path("/dead-letters/replay"), nil).want(202).json(), object{"replayed": 2})
	for _, id := range ids[1:] {
		d := c.receive(10)
		equal(t, "the replay", d[0]["event"].(object)["id"], id)
		c.answer("ack", nil, d...)
	}
	equal(t, "none to discard", a.send("DELETE", c.path("/dead-letters"), nil).want(200).json(), object{"discarded": 0})
	a.append("order-1", 1)
	park(c.receive(1)...)
	equal(t, "one to discard", a.send("DELETE", c.path("/dead-letters"), nil).want(200).json(), object{"discarded": 1})
	c.nothing()
}

func TestSeek(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.append("order-1", 2)
	a.append("order-2", 2)
	third := a.get("/v1/streams/order-2").want(200).text("events", 0, "recordedAt")
	c := a.consumer("g", object{"from": third})
	d := c.receive(10)
	equal(t, "from a time", of(d), list{3, 4})
	c.answer("nack", object{"action": "park"}, d[1])
	sought := a.post(c.path("/seek"), object{"position": 2}).want(200)
	equal(t, "the progress behind a seek", sought.at("progress", 0), object{"partition": 0, "checkpoint": 1, "readTo": 1, "inFlight": 0, "retrying": 0, "deadLetters": 1})
	equal(t, "an answer from before", c.answer("ack", nil, d[0]), list{"stale"})
	again := c.receive(2)
	equal(t, "from a position", of(again), list{2, 3})
	if attempt := again[1]["attempt"].(float64); attempt <= d[0]["attempt"].(float64) {
		t.Errorf("the attempt behind a seek is %v", attempt)
	}
	c.answer("ack", nil, again...)
	a.post(c.path("/seek"), object{"timestamp": third}).want(200)
	equal(t, "to a time", of(c.receive(1)), list{3})
	a.post(c.path("/seek"), object{"position": 6}).want(200)
	c.nothing()
	a.append("order-1", 2)
	equal(t, "beyond the head", of(c.receive(10)), list{6})
	// A time is kept without trailing zeros.
	kept, err := time.Parse(time.RFC3339Nano, a.get(c.path("")).want(200).text("from"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "from, as it was", domain.FormatTime(kept), third)
}

func TestPause(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.append("order-1", 2)
	c := a.consumer("g", object{})
	first := c.receive(1)
	equal(t, "the pause", a.post(c.path("/pause"), nil).want(200).at("paused"), true)
	c.nothing()
	equal(t, "an answer meanwhile", c.answer("ack", nil, first...), list{"done"})
	waiting := make(chan []int, 1)
	go func() { waiting <- of(c.receive(1)) }()
	equal(t, "the group meanwhile", a.get(c.path("")).want(200).at("paused"), true)
	equal(t, "the end of the pause", a.post(c.path("/resume"), nil).want(200).at("paused"), false)
	equal(t, "what somebody waits for", <-waiting, list{2})
}

// A waiting receive is answered as soon as there is an event, long before its time limit, and with nothing after it.
func TestReceiveWaits(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	c := a.consumer("g", object{})
	begin := time.Now()
	equal(t, "what comes in a moment", c.post(c.path("/receive"), object{"wait": 0.05}).want(200).json(), object{"deliveries": list{}})
	if took := time.Since(begin); took < 50*time.Millisecond {
		t.Errorf("it has waited for %s only", took)
	}
	for round := range 3 {
		got := make(chan []int, 1)
		go func() { got <- of(c.receive(10)) }()
		a.append("order-1", 1)
		equal(t, "what was waited for", <-got, list{round + 1})
	}
}

// Events for a client that has disconnected meanwhile go to the next client, and their attempts do not count. The
// service knows of the disconnection before the event is appended.
func TestAClientThatGoesAwayWhileItWaits(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	c := a.consumer("g", object{"ackTimeout": 3600})
	for round := range 5 {
		ctx, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
		request := a.request("POST", c.path("/receive"), object{"wait": 30}).WithContext(ctx)
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			a.handler.ServeHTTP(httptest.NewRecorder(), request)
		}()
		goneFirst := round%2 == 0
		if goneFirst {
			<-gone
		}
		leave()
		a.append("order-1", 1)
		<-gone
		d := c.receive(10)
		if goneFirst {
			equal(t, "the number of deliveries", d[0]["attempt"], 1)
		}
		equal(t, "what the next one gets", list{of(d), d[0]["attempts"]}, list{list{round + 1}, 1})
		c.answer("ack", nil, d...)
	}
}

// A key that is revoked while a receive waits gets nothing. The events go to the next consumer.
func TestAKeyThatIsRevokedWhileItWaits(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.Recheck = time.Millisecond })
	a := w.tenant("acme")
	c := a.consumer("g", object{})
	made := a.post("/v1/keys", object{"name": "consumer", "scopes": list{"events:consume"}}).want(201)
	other := &actor{w, made.text("key"), a.tenantID}
	got := make(chan *answer, 1)
	go func() { got <- other.post(c.path("/receive"), object{"wait": 30}) }()
	other.post(c.path("/receive"), nil).want(200) // a moment for the other request to start
	a.send("DELETE", "/v1/keys/"+made.text("id"), nil).want(204)
	a.append("order-1", 1)
	(<-got).wantProblem(401, domain.CodeUnauthenticated, "")
	equal(t, "what the next one gets", of(c.receive(10)), list{1})
}

// Receives end when the process is about to stop. They still acknowledge, and report that.
func TestReceiveAtTheEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("acme")
	c := a.consumer("g", object{})
	got := make(chan *answer, 1)
	a.append("order-1", 2)
	var acks []list
	for _, d := range c.receive(2) {
		acks = append(acks, list{object{"id": d["event"].(object)["id"], "attempt": 1}})
	}
	inFlight := func(n string) {
		a.until(c.path(""), func(got *answer) bool { return fmt.Sprint(got.at("progress", 0, "inFlight")) == n })
	}
	go func() { got <- a.post(c.path("/receive"), object{"wait": 30, "ack": acks[0]}) }()
	inFlight("1")
	w.server.Stop()
	ended := object{"deliveries": list{}, "searching": true}
	equal(t, "the answer", (<-got).want(200).json(), ended)
	equal(t, "a later answer", a.post(c.path("/receive"), object{"wait": 30, "ack": acks[1]}).want(200).json(), ended)
	inFlight("0")
	if web.Timeout < 30*time.Second {
		t.Fatal("the test proves nothing")
	}
}

func TestLag(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a, other := w.tenant("acme"), w.tenant("other")
	equal(t, "nobody's lag", a.get("/v1/lag").want(200).json(), object{"head": 0, "consumers": list{}})
	w.operator().send("PUT", "/v1/projections/counts", object{"name": "counts", "on": object{"*": `{"n": doc.?n.orValue(0) + 1}`}}).want(201)
	a.post("/v1/projections", object{"name": "own", "on": object{"*": "doc"}, "mode": "live"}).want(201)
	a.append("order-1", 3)
	other.append("order-1", 7)
	a.post("/v1/projections/counts/catch-up?timeout=20", nil).want(200)
	c := a.consumer("mail", object{})
	parted := object{"partitions": 2}
	a.consumer("parted", parted)
	c.answer("ack", nil, c.receive(2)[0])
	equal(t, "the cursors", a.get("/v1/cursors").want(200).json(), object{"cursors": list{
		object{"kind": "projection", "name": "counts", "position": 3},
		object{"kind": "group", "name": "mail", "position": 1},
		object{"kind": "group", "name": "parted", "partition": 0, "position": 0},
		object{"kind": "group", "name": "parted", "partition": 1, "position": 0},
	}})
	got := a.get("/v1/lag").want(200)
	equal(t, "the head", got.number("head"), 3)
	all := objects(got.at("consumers"))
	equal(t, "the projection", all[0], object{"kind": "projection", "name": "counts", "position": 3, "lagPositions": 0, "events": 0, "seconds": 0, "faulted": false})
	equal(t, "the group", without(all[1], "seconds"), object{"kind": "group", "name": "mail", "position": 1, "lagPositions": 2, "events": 2, "inFlight": 1, "retrying": 0, "deadLetters": 0})
	second, err := time.Parse(time.RFC3339Nano, a.get("/v1/streams/order-1?from=2&count=1").want(200).text("events", 0, "recordedAt"))
	must(t, err)
	if age := time.Since(second).Seconds(); all[1]["seconds"].(float64) <= 0 || all[1]["seconds"].(float64) > age {
		t.Errorf("the group is %v s behind; the event is %v s old", all[1]["seconds"], age)
	}
	equal(t, "the partitions", list{all[2]["partition"], all[3]["partition"], len(all)}, list{0, 1, 4})
	limited := &actor{w, w.keyOf(a.tenantID, "events:read:bill"), a.tenantID}
	equal(t, "what a key for other categories sees", limited.get("/v1/lag").want(200).at("consumers"), list{})
}

// The operator sees the lag of one tenant, or of all, page by page, or what needs attention anywhere.
func TestLagForTheOperator(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	operator, tenants := w.operator(), []*actor{w.tenant("acme"), w.tenant("other")}
	slices.SortFunc(tenants, func(a, b *actor) int { return strings.Compare(a.tenantID, b.tenantID) })
	operator.send("PUT", "/v1/projections/counts", object{"name": "counts", "on": object{"*": `{"n": event.data.missing}`}}).want(201)
	for _, tenant := range tenants {
		tenant.consumer("mail", object{})
		tenant.append("order-1", 1)
	}
	ofFirst := "?tenant=" + tenants[0].tenantID
	for path, consumers := range map[string]string{"/v1/lag": "consumers", "/v1/cursors": "cursors"} {
		equal(t, path, operator.get(path+ofFirst).want(200).at(consumers, 1, "name"), "mail")
		operator.get(path).wantProblem(400, domain.CodeInvalidRequest, "query tenant")
		tenants[1].get(path+ofFirst).wantProblem(403, domain.CodeForbidden, "query tenant")
	}
	state := "/v1/projections/counts/state"
	operator.until(state+ofFirst, func(got *answer) bool { return got.text("state") == "faulted" })
	operator.get(state).wantProblem(400, domain.CodeInvalidRequest, "query tenant")
	tenants[1].get(state+ofFirst).wantProblem(403, domain.CodeForbidden, "query tenant")

	tenants[0].get("/v1/admin/lag").wantProblem(403, domain.CodeForbidden, "")
	first := operator.get("/v1/admin/lag?pageSize=1").want(200)
	second := operator.get(first.next()).want(200)
	for i, page := range []*answer{first, second} {
		equal(t, "a page", list{page.at("tenants", 0, "tenant"), len(page.at("tenants").(list)), len(page.at("tenants", 0, "consumers").(list))}, list{tenants[i].tenantID, 1, 2})
	}
	equal(t, "what is after the last page", second.next(), "")

	const attention = "/v1/admin/lag?behind=3600"
	operator.until(attention, func(got *answer) bool { return len(got.at("tenants").(list)) == 2 }) // both are stopped
	operator.post("/v1/projections/counts/skip"+ofFirst, object{"position": 1, "reason": "a test"}).want(200)
	tenants[0].post("/v1/projections/counts/catch-up?timeout=20", nil).want(200)
	left := operator.get(attention).want(200)
	equal(t, "what needs attention then", list{left.at("tenants", 0, "tenant"), len(left.at("tenants").(list)), left.at("tenants", 0, "consumers", 0, "name")},
		list{tenants[1].tenantID, 1, "counts"})
	equal(t, "what lags at all", operator.get("/v1/admin/lag?behind=0").want(200).at("tenants", 0, "consumers", 0, "name"), "mail")
}

// An error about an invalid request says where it is and what to do.
func TestProblemsOfGroups(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a := w.tenant("acme")
	a.append("order-1", 1)
	a.consumer("g", object{"ordering": "stream"})
	a.consumer("parted", object{"partitions": 2})
	id := domain.NewEventID().String()
	ids := func(n int) string {
		return `"ids":[` + strings.TrimSuffix(strings.Repeat(fmt.Sprintf(`{"id":%q,"attempt":1},`, id), n), ",") + `]`
	}
	put := func(body string) [3]string { return [3]string{"PUT", "/v1/subscriptions/new", body} }
	post := func(path, body string) [3]string { return [3]string{"POST", "/v1/subscriptions/g/" + path, body} }
	for _, c := range []struct {
		call   [3]string
		status int
		code   domain.Code
		where  string
		detail string
	}{
		{[3]string{"PUT", "/v1/subscriptions/New", "{}"}, 400, domain.CodeInvalidRequest, "path name", "must match"},
		{[3]string{"PUT", "/v1/subscriptions/" + strings.Repeat("n", 101), "{}"}, 400, domain.CodeInvalidRequest, "path name", "100"},
		{put(``), 400, domain.CodeInvalidRequest, "body", "request body missing"},
		{put(`[]`), 400, domain.CodeInvalidRequest, "body", "object"},
		{put(`{"sources":{}}`), 400, domain.CodeInvalidRequest, "body", `unknown field "sources"; expected ackTimeout, backoff, batchSize, `},
		{put(`{"source":{"category":"order"}}`), 400, domain.CodeInvalidRequest, "source", `unknown field "category"; expected categories, stream`},
		{put(`{"source":{"categories":[]}}`), 400, domain.CodeInvalidRequest, "source.categories", "it must have 1 to 100 elements"},
		{put(`{"types":[]}`), 400, domain.CodeInvalidRequest, "types", "it must have 1 to 100 elements"},
		{put(`{"source":{"categories":["a-b"]}}`), 400, domain.CodeInvalidRequest, "source.categories[0]", "a-b"},
		{put(`{"source":{"categories":["a","a"]}}`), 400, domain.CodeInvalidRequest, "source.categories", "duplicate element"},
		{put(`{"source":{"stream":"order"}}`), 400, domain.CodeInvalidRequest, "source.stream", "order"},
		{put(`{"source":{"stream":"order-1","categories":["order"]}}`), 400, domain.CodeInvalidRequest, "source", "not both"},
		{put(`{"types":["Order Placed"]}`), 400, domain.CodeInvalidRequest, "types[0]", "Order Placed"},
		{put(`{"types":"OrderPlaced"}`), 400, domain.CodeInvalidRequest, "types", "array"},
		{put(`{"query":{"items":[]}}`), 400, domain.CodeInvalidRequest, "query.items", "1 to 100"},
		{put(`{"query":{"items":[{"tags":["a b"]}]}}`), 400, domain.CodeInvalidRequest, "query.items[0].tags[0]", "a b"},
		{put(`{"query":{"items":[{"type":"A"}]}}`), 400, domain.CodeInvalidRequest, "query.items[0]", `unknown field "type"`},
		{put(`{"query":[{"tags":["a"]}]}`), 400, domain.CodeInvalidRequest, "query", "object"},
		{put(`{"filter":"event.data.n >"}`), 422, domain.CodeInvalidDefinition, "filter", "line 1"},
		{put(`{"filter":"doc.n > 1"}`), 422, domain.CodeInvalidDefinition, "filter", "doc"},
		{put(`{"filter":"1 + 1"}`), 422, domain.CodeInvalidDefinition, "filter", ""},
		{put(`{"filter":"` + strings.Repeat("x", 8001) + `"}`), 400, domain.CodeInvalidRequest, "filter", "8000"},
		{put(`{"from":"yesterday"}`), 400, domain.CodeInvalidRequest, "from", "yesterday"},
		{put(`{"from":"0"}`), 400, domain.CodeInvalidRequest, "from", "positions begin with 1"},
		{put(`{"from":"` + id + `"}`), 404, domain.CodeNotFound, "from", id},
		{put(`{"batchSize":0}`), 400, domain.CodeInvalidRequest, "batchSize", "1 to 1000"},
		{put(`{"batchSize":1.5}`), 400, domain.CodeInvalidRequest, "batchSize", "whole number"},
		{put(`{"maxInFlight":10001}`), 400, domain.CodeInvalidRequest, "maxInFlight", "1 to 10000"},
		{put(`{"ackTimeout":0.5}`), 400, domain.CodeInvalidRequest, "ackTimeout", "1 to 3600"},
		{put(`{"ackTimeout":-1}`), 400, domain.CodeInvalidRequest, "ackTimeout", "1 to 3600"},
		{put(`{"ackTimeout":"30s"}`), 400, domain.CodeInvalidRequest, "ackTimeout", "a number"},
		{put(`{"ackTimeout":NaN}`), 400, domain.CodeInvalidJSON, "body", ""},
		{put(`{"ackTimeout":1e999}`), 400, domain.CodeInvalidJSON, "body", "/ackTimeout"},
		{put(`{"maxAttempts":1001}`), 400, domain.CodeInvalidRequest, "maxAttempts", "1 to 1000"},
		{put(`{"backoff":{"min":10,"max":5}}`), 400, domain.CodeInvalidRequest, "backoff.min", "above backoff.max"},
		{put(`{"backoff":{"max":86401}}`), 400, domain.CodeInvalidRequest, "backoff.max", "0.001 to 86400"},
		{put(`{"backoff":{"min":0,"max":0}}`), 400, domain.CodeInvalidRequest, "backoff.max", "0.001 to 86400"},
		{put(`{"backoff":5}`), 400, domain.CodeInvalidRequest, "backoff", "object"},
		{put(`{"ordering":"strict"}`), 400, domain.CodeInvalidRequest, "ordering", "none, stream"},
		{put(`{"partitions":257}`), 400, domain.CodeInvalidRequest, "partitions", "0 to 256"},
		{[3]string{"PUT", "/v1/subscriptions/g", `{"ordering":"none"}`}, 409, domain.CodeConflict, "ordering", "another group"},
		{[3]string{"PUT", "/v1/subscriptions/g", `{"ordering":"stream","from":"end"}`}, 409, domain.CodeConflict, "from", "seek"},
		{[3]string{"PUT", "/v1/subscriptions/parted", `{"partitions":3}`}, 409, domain.CodeConflict, "partitions", "another group"},
		{[3]string{"POST", "/v1/subscriptions/none/receive", ``}, 404, domain.CodeNotFound, "", "none"},
		{post("receive", `{"batch":0}`), 400, domain.CodeInvalidRequest, "batch", "1 to 1000"},
		{post("receive", `{"wait":31}`), 400, domain.CodeInvalidRequest, "wait", "0 to 30"},
		{post("receive", `{"wait":-1}`), 400, domain.CodeInvalidRequest, "wait", "0 to 30"},
		{post("receive", `{"memberId":"me"}`), 400, domain.CodeInvalidRequest, "memberId", "me"},
		{post("receive", `{"memberId":"`+id+`"}`), 400, domain.CodeInvalidRequest, "memberId", "partitions"},
		{post("receive", `{"ack":[]}`), 400, domain.CodeInvalidRequest, "ack", "1 to 1000"},
		{post("receive", `{"ack":[{"id":"`+id+`"}]}`), 400, domain.CodeInvalidRequest, "ack[0]", "attempt"},
		{post("receive", `{"batch":1.5}`), 400, domain.CodeInvalidRequest, "batch", "whole"},
		{post("receive", `{"timeout":1}`), 400, domain.CodeInvalidRequest, "body", `unknown field "timeout"`},
		{[3]string{"POST", "/v1/subscriptions/parted/receive", `{}`}, 400, domain.CodeInvalidRequest, "memberId", "join"},
		{[3]string{"POST", "/v1/subscriptions/parted/receive", `{"memberId":"` + id + `"}`}, 404, domain.CodeNotFound, "memberId", "join"},
		{post("ack", `{}`), 400, domain.CodeInvalidRequest, "ids", "required field missing: ids"},
		{post("ack", `{"ids":[]}`), 400, domain.CodeInvalidRequest, "ids", "1 to 1000"},
		{post("ack", `{`+ids(1001)+`}`), 400, domain.CodeInvalidRequest, "ids", "1 to 1000"},
		{post("ack", `{"ids":["`+id+`"]}`), 400, domain.CodeInvalidRequest, "ids[0]", "object"},
		{post("ack", `{"ids":[{"id":"`+id+`"}]}`), 400, domain.CodeInvalidRequest, "ids[0]", "required field missing: attempt"},
		{post("ack", `{"ids":[{"id":"7","attempt":1}]}`), 400, domain.CodeInvalidRequest, "ids[0].id", "not a UUID such as"},
		{post("ack", `{"ids":[{"id":"`+id+`","attempt":0}]}`), 400, domain.CodeInvalidRequest, "ids[0].attempt", "at least 1"},
		{post("ack/"+id, ``), 400, domain.CodeInvalidRequest, "query attempt", "required, but missing"},
		{post("ack/"+id+"?attempt=x", ``), 400, domain.CodeInvalidRequest, "query attempt", "whole number"},
		{post("ack/x?attempt=1", ``), 400, domain.CodeInvalidRequest, "path eventId", "must look like"},
		{post("nack", `{`+ids(1)+`,"action":"later"}`), 400, domain.CodeInvalidRequest, "action", "retry, park, skip"},
		{post("nack", `{`+ids(1)+`,"action":"park","delay":5}`), 400, domain.CodeInvalidRequest, "delay", "parked"},
		{post("nack", `{`+ids(1)+`,"delay":86401}`), 400, domain.CodeInvalidRequest, "delay", "0 to 86400"},
		{post("nack", `{`+ids(1)+`,"reason":"`+strings.Repeat("é", 600)+`"}`), 400, domain.CodeInvalidRequest, "reason", "1000"},
		{post("nack", `{`+ids(1)+`,"reason":"`+strings.Repeat("r", 1001)+`"}`), 400, domain.CodeInvalidRequest, "reason", "1000"},
		{post("extend", `{`+ids(1)+`,"by":0}`), 400, domain.CodeInvalidRequest, "by", "1 to 3600"},
		{post("extend", `{`+ids(1)+`,"by":3601}`), 400, domain.CodeInvalidRequest, "by", "1 to 3600"},
		{post("seek", `{}`), 400, domain.CodeInvalidRequest, "body", "position or timestamp"},
		{post("seek", `{"position":1,"timestamp":"2026-03-01T09:30:00Z"}`), 400, domain.CodeInvalidRequest, "timestamp", "one of them"},
		{post("seek", `{"position":0}`), 400, domain.CodeInvalidRequest, "position", "at least 1"},
		{post("seek", `{"timestamp":"today"}`), 400, domain.CodeInvalidRequest, "timestamp", "2026-03-01T09:30:00Z"},
		{post("members", `{"label":"mailer-1"}`), 409, domain.CodeConflict, "", "partitions"},
		{[3]string{"POST", "/v1/subscriptions/parted/members", `{"label":" x"}`}, 400, domain.CodeInvalidRequest, "label", "spaces"},
		{[3]string{"PUT", "/v1/subscriptions/parted/members/" + id, ``}, 404, domain.CodeNotFound, "", "join"},
		{[3]string{"DELETE", "/v1/subscriptions/parted/members/x", ``}, 400, domain.CodeInvalidRequest, "path memberId", "must look like"},
		{post("dead-letters/"+id+"/replay", ``), 404, domain.CodeNotFound, "eventId", id},
		{[3]string{"GET", "/v1/lag?group=g", ``}, 400, domain.CodeInvalidRequest, "query group", "unknown parameter"},
	} {
		var body any
		if c.call[2] != "" {
			body = c.call[2]
		}
		got := a.send(c.call[0], c.call[1], body)
		what := fmt.Sprintf("%s %s %.80s", c.call[0], c.call[1], c.call[2])
		if got.status != c.status {
			t.Errorf("%s is answered %d %s, want %d", what, got.status, got.body, c.status)
			continue
		}
		problem := got.json()
		where, _ := problem["where"].(string)
		detail, _ := problem["detail"].(string)
		if problem["code"] != string(c.code) || !strings.Contains(where, c.where) || !strings.Contains(detail, c.detail) {
			t.Errorf("%s is answered %s;\nwant code %s at %q, and %q", what, got.body, c.code, c.where, c.detail)
		}
	}
	nobody := &actor{world: w}
	nobody.post("/v1/subscriptions/g/receive", nil).wantProblem(401, domain.CodeUnauthenticated, "Authorization")
	w.operator().post("/v1/subscriptions/g/receive", nil).wantProblem(403, domain.CodeForbidden, "Authorization")
	reader := &actor{w, w.key(a.tenantID, auth.ScopeEventsRead), a.tenantID}
	reader.get("/v1/subscriptions/g").want(200)
	reader.post("/v1/subscriptions/g/receive", nil).wantProblem(403, domain.CodeForbidden, "Authorization")
	reader.send("DELETE", "/v1/subscriptions/g", nil).wantProblem(403, domain.CodeForbidden, "Authorization")
	equal(t, "a receive by GET", a.get("/v1/subscriptions/g/receive").status, http.StatusMethodNotAllowed)
}

// A key for some categories can use only their groups, even if a group's selection changes meanwhile.
func TestAGroupThatBecomesOneOfOtherEvents(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.append("order-1", 1)
	a.append("bill-1", 1)
	limited := consumer{&actor{w, w.keyOf(a.tenantID, "events:consume:order", "subscriptions:write:order"), a.tenantID}, "g"}
	of := func(category string) object { return object{"source": object{"categories": list{category}}} }
	limited.send("PUT", limited.path(""), of("order")).want(201)
	equal(t, "what it gets", len(limited.receive(1)), 1)
	for _, body := range []object{of("bill"), {}, {"source": object{"categories": list{"order", "bill"}}}, {"source": object{"stream": "bill-1"}}} {
		limited.send("PUT", limited.path(""), body).wantProblem(403, domain.CodeForbidden, "source")
	}
	a.send("PUT", limited.path(""), of("bill")).want(200)
	a.post(limited.path("/seek"), object{"position": 1}).want(200)
	limited.post(limited.path("/receive"), nil).wantProblem(403, domain.CodeForbidden, "")
	limited.get(limited.path("/dead-letters")).wantProblem(403, domain.CodeForbidden, "")
	limited.send("PUT", limited.path(""), of("order")).wantProblem(403, domain.CodeForbidden, "")
	limited.send("DELETE", limited.path(""), nil).wantProblem(403, domain.CodeForbidden, "")
	equal(t, "what it sees", limited.get("/v1/subscriptions").want(200).at("subscriptions"), list{})
	a.send("PUT", limited.path(""), of("order")).want(200)
	a.post(limited.path("/seek"), object{"position": 1}).want(200)
	equal(t, "what it gets again", len(limited.receive(1)), 1)
}

// testGroups runs the documented requests of groups, after the documented appends.
func testGroups(t *testing.T, documented *documentation, a *actor) {
	made := documented.run(a, "putSubscription", 201)
	equal(t, "the group, put again", documented.run(a, "putSubscription", 200).json(), made.json())
	equal(t, "the group", documented.run(a, "getSubscription", 200).json(), made.json())
	equal(t, "the groups", documented.run(a, "listSubscriptions", 200).at("subscriptions", 0), made.json())

	next := documented.run(a, "peekSubscription", 200).at("next", 0, "event")
	received := documented.run(a, "receive", 200)
	equal(t, "what was next", received.at("deliveries", 0, "event"), next)
	id := received.text("deliveries", 0, "event", "id")
	documented.params["eventId"] = id
	for _, operation := range []string{"extendEvents", "nackEvents", "ackEvents"} {
		equal(t, "whose answer it is", documented.run(a, operation, 200).text("results", 0, "id"), id)
	}
	equal(t, "what became of an ack", documented.run(a, "ackEvent", 200).at("outcome"), "stale")

	documented.run(a, "listDeadLetters", 200)
	documented.run(a, "seekSubscription", 200)
	c := consumer{a, "send-mail"}
	d := c.receive(1)
	c.answer("nack", object{"action": "park", "reason": "no"}, d...)
	equal(t, "the dead letter", documented.run(a, "listDeadLetters", 200).at("deadLetters", 0, "event", "id"), id)
	documented.run(a, "replayDeadLetters", 202)
	equal(t, "one replay", documented.run(a, "replayDeadLetter", 202).at("replayed"), 1)
	documented.run(a, "discardDeadLetter", 204)
	equal(t, "how many are left", documented.run(a, "discardDeadLetters", 200).at("discarded"), 0)
	delete(documented.params, "eventId")

	equal(t, "the pause", documented.run(a, "pauseSubscription", 200).at("paused"), true)
	equal(t, "its end", documented.run(a, "resumeSubscription", 200).at("paused"), false)
	documented.run(a, "listCursors", 200)
	documented.run(a, "getLag", 200)

	documented.params["name"] = "parted"
	a.consumer("parted", object{"partitions": 8})
	member := documented.run(a, "joinSubscription", 201)
	documented.params["memberId"] = member.text("memberId")
	documented.run(a, "heartbeatSubscription", 200)
	equal(t, "the members", len(documented.run(a, "listSubscriptionMembers", 200).at("members").(list)), 1)
	documented.run(a, "leaveSubscription", 204)
	delete(documented.params, "memberId")
	delete(documented.params, "name")
	documented.run(a, "deleteSubscription", 204)
}
