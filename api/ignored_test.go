package api_test

import (
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// An operation without a body refuses a request with one, since it would ignore the content. It accepts an empty
// object, which many clients send by habit.
func TestABodyThatNobodyReadsIsRefused(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.append("order-1", 2)
	c := a.consumer("mail", object{})
	dead := c.receive(10)
	c.answer("nack", object{"action": "park"}, dead...)
	id := dead[0]["event"].(object)["id"]
	for _, body := range []string{`{"ids":["` + id.(string) + `"]}`, `[]`, "x", "{}" + strings.Repeat(" ", 100), "{", strings.Repeat("x", 3_000_000)} {
		a.post(c.path("/dead-letters/replay"), body).wantProblem(400, domain.CodeInvalidRequest, "body")
		a.send("DELETE", c.path("/dead-letters"), body).wantProblem(400, domain.CodeInvalidRequest, "body")
		a.send("GET", "/v1/streams/order-1", body).wantProblem(400, domain.CodeInvalidRequest, "body")
		a.send("GET", "/v1/subscribe/$all", body).wantProblem(400, domain.CodeInvalidRequest, "body")
	}
	equal(t, "the dead letters", len(objects(a.get(c.path("/dead-letters")).at("deadLetters"))), 2)
	for _, body := range []string{"", "{}", " {}\n", "null"} {
		a.send("GET", "/v1/streams/order-1", body).want(200)
		a.post(c.path("/pause"), body).want(200)
		a.post(c.path("/resume"), body).want(200)
	}
	equal(t, "what is discarded", a.send("DELETE", c.path("/dead-letters"), "{}").want(200).json(), object{"discarded": 2})
}

// HEAD for a follower's path answers as GET would, even if the request is refused.
func TestHeadOfAFollowerIsHeldToTheSame(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	a.append("order-1", 1)
	for query, status := range map[string]int{
		"": 200, "?from=end": 200, "?filter=event.position+%3E+1": 200,
		"?filter=event.": 400, "?filter=1": 400, "?from=x": 400, "?types=a+b": 400, "?from=" + domain.NewEventID().String(): 404,
	} {
		for _, path := range []string{"/v1/subscribe/$all", "/v1/subscribe/streams/order-1", "/v1/subscribe/categories/order"} {
			got := a.send("HEAD", path+query, nil)
			if got.status != status || len(got.body) > 0 {
				t.Errorf("HEAD %s%s is answered %d %s, want %d", path, query, got.status, got.body, status)
			}
		}
	}
}
