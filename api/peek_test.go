package api_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// A consumer that drains a group until it receives nothing has received everything, however many events of other
// sources come before.
func TestDrainingAGroupFindsWhatIsFarAhead(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	for n := range 6 {
		lines := strings.Repeat(`{"stream":"other-`+fmt.Sprint(n)+`","type":"Happened","data":1}`+"\n", 10_000)
		a.send("POST", fmt.Sprint("/v1/import?name=others-", n), lines, "Content-Type", ndjson).want(200)
	}
	a.append("order-1", 3)
	c := a.consumer("g", object{"source": object{"categories": list{"order"}}})
	got := c.post(c.path("/receive"), object{}).want(200)
	for deadline := time.Now().Add(time.Minute); got.header.Get("Manifold-Searching") == "true" && time.Now().Before(deadline); {
		equal(t, "what the body says", got.json(), object{"deliveries": list{}, "searching": true})
		got = c.post(c.path("/receive"), object{}).want(200)
	}
	equal(t, "what is delivered", of(objects(got.at("deliveries"))), list{60_001, 60_002, 60_003})
	c.nothing()
}

func TestPeek(t *testing.T) {
	t.Parallel()
	a := newWorld(t, nil).tenant("acme")
	a.append("order-1", 4)
	c := a.consumer("g", object{"maxAttempts": 2})
	peek := func() object {
		t.Helper()
		return a.get(c.path("/peek")).want(200).json()
	}
	first := a.get("/v1/streams/$all?count=1").want(200).at("events", 0)
	for range 5 {
		shown := peek()
		equal(t, "the next events", of(objects(shown["next"])), list{1, 2, 3, 4})
		equal(t, "the first", objects(shown["next"])[0], object{"event": first, "attempt": 1})
	}
	d := c.receive(2)
	c.answer("nack", object{"delay": 3600, "reason": "later"}, d[0])
	for range 5 {
		shown := peek()
		equal(t, "the next events then", of(objects(shown["next"])), list{3, 4})
		equal(t, "what is in flight", shown["inFlight"], list{object{"event": d[1]["event"], "attempt": 1, "ackDeadline": d[1]["ackDeadline"]}})
		retry := objects(shown["retrying"])[0]
		equal(t, "what waits for a retry", without(retry, "dueAt"), object{"event": first, "attempt": 1, "reason": "later"})
		if due, err := time.Parse(time.RFC3339Nano, retry["dueAt"].(string)); err != nil || time.Until(due) < 50*time.Minute {
			t.Errorf("it is due at %v", retry["dueAt"])
		}
	}
	equal(t, "the dead letters", c.progress()["deadLetters"], 0)
	equal(t, "the attempts", c.receive(10)[0]["attempt"], 1)

	a.consumer("orders", object{"source": object{"categories": list{"order"}}})
	a.get(c.path("/peek?limit=0")).wantProblem(400, domain.CodeInvalidRequest, "query limit")
	a.get(c.path("/peek?limit=101")).wantProblem(400, domain.CodeInvalidRequest, "query limit")
	a.get(c.path("/peek?partition=1")).wantProblem(400, domain.CodeInvalidRequest, "partition")
	a.get(c.path("/peek?partition=9223372036854775808")).wantProblem(400, domain.CodeInvalidRequest, "query partition")
	// A caller that may only define groups sees no events.
	(&actor{a.world, a.keyOf(a.tenantID, "subscriptions:write"), a.tenantID}).get(c.path("/peek")).wantProblem(403, domain.CodeForbidden, "Authorization")
	(&actor{a.world, a.keyOf(a.tenantID, "events:read:bill"), a.tenantID}).get(c.path("/peek")).wantProblem(403, domain.CodeForbidden, "Authorization")
	equal(t, "what a key of the category sees", len((&actor{a.world, a.keyOf(a.tenantID, "events:read:order"), a.tenantID}).
		get("/v1/subscriptions/orders/peek").want(200).at("next").(list)), 4)
	a.get("/v1/subscriptions/other/peek").wantProblem(404, domain.CodeNotFound, "")
}
