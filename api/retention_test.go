package api_test

import (
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// testRetention runs the documented requests of retention policies. The policies keep events for a while, so that none
// are removed.
func testRetention(t *testing.T, documented *documentation, a *actor) {
	t.Helper()
	a.send("PUT", "/v1/subscriptions/audit", object{"source": object{"categories": list{"elsewhere"}}}).want(201)
	made := documented.run(a, "putRetention", 201)
	equal(t, "the policy", without(made.json(), "createdAt", "updatedAt"), object{
		"category": "order", "maxAge": 2592000, "maxCount": 1000000, "compact": false, "force": object{"groups": list{"audit"}},
		"removedTo": 0, "removed": 0, "spared": 0, "heldBy": list{},
	})
	equal(t, "the policy, put again", documented.run(a, "putRetention", 200).json(), made.json())
	equal(t, "the policy, read", documented.run(a, "getRetention", 200).json(), made.json())
	equal(t, "the policies", documented.run(a, "listRetention", 200).at("policies"), list{made.json()})
	equal(t, "a try", documented.run(a, "runRetention", 200).json(), object{"events": 0, "complete": true, "heldBy": list{}})
	if asked := a.post("/v1/retention/order/run", object{}).want(202); asked.text("askedAt") == "" {
		t.Errorf("asked for, the policy is %s", asked.body)
	}
	a.post("/v1/retention/order/run", nil).want(202)
	documented.run(a, "deleteRetention", 204)
	a.send("DELETE", "/v1/subscriptions/audit", nil).want(204)
}

func TestRetention(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a, other := w.tenant("acme"), w.tenant("umbrella")
	a.append("order-1", 5)
	other.append("order-1", 5)
	const path = "/v1/retention/order"

	a.get(path).wantProblem(404, domain.CodeNotFound, "category")
	a.send("DELETE", path, nil).wantProblem(404, domain.CodeNotFound, "category")
	a.post(path+"/run", nil).wantProblem(404, domain.CodeNotFound, "category")
	a.post(path+"/run", object{"dryRun": true}).wantProblem(404, domain.CodeNotFound, "category")
	equal(t, "no policies", a.get("/v1/retention").want(200).json(), object{"policies": list{}})

	a.send("PUT", path, object{}).wantProblem(400, domain.CodeInvalidRequest, "")
	a.send("PUT", path, object{"maxAge": 0}).wantProblem(400, domain.CodeInvalidRequest, "maxAge")
	a.send("PUT", path, object{"maxAge": 1.5}).wantProblem(400, domain.CodeInvalidRequest, "maxAge")
	a.send("PUT", path, object{"maxAge": 3153600001}).wantProblem(400, domain.CodeInvalidRequest, "maxAge")
	a.send("PUT", path, object{"maxCount": -1}).wantProblem(400, domain.CodeInvalidRequest, "maxCount")
	a.send("PUT", path, object{"maxCount": 1e12}).wantProblem(400, domain.CodeInvalidRequest, "maxCount")
	huge := a.send("PUT", path, `{"maxCount":99999999999999999999}`).wantProblem(400, domain.CodeInvalidRequest, "maxCount")
	equal(t, "what is said of a number that no field can have", huge["detail"], "the number is too large; give one below 9223372036854775808")
	a.send("PUT", path, object{"compact": true, "force": object{"groups": list{"a b"}}}).wantProblem(400, domain.CodeInvalidRequest, "force.groups[0]")
	a.send("PUT", path, object{"compact": true, "force": object{"webhooks": list{"a"}}}).wantProblem(400, domain.CodeInvalidRequest, "force")
	a.send("PUT", "/v1/retention/a-b", object{"compact": true}).wantProblem(400, domain.CodeInvalidRequest, "path category")
	a.post(path+"/run", object{"policy": object{"maxCount": 3}}).wantProblem(400, domain.CodeInvalidRequest, "policy")
	a.post(path+"/run", object{"dryRun": true, "policy": object{}}).wantProblem(400, domain.CodeInvalidRequest, "policy")

	// A policy can be tried before it is stored. The preview shows readers that are not done, and the policy can name
	// those to ignore.
	try := func(policy object) *answer {
		return a.post(path+"/run", object{"dryRun": true, "policy": policy}).want(200)
	}
	equal(t, "a try", try(object{"maxCount": 2}).json(), object{"events": 3, "complete": true, "heldBy": list{}})
	equal(t, "a try", try(object{"compact": true}).json(), object{"events": 4, "complete": true, "heldBy": list{}})
	a.send("PUT", "/v1/subscriptions/mail", object{"source": object{"categories": list{"order"}}, "from": "start"}).want(201)
	a.send("PUT", "/v1/projections/seen", object{"name": "seen", "on": object{"Never": "doc"}, "mode": "live"}).want(201)
	equal(t, "a try that is held", try(object{"maxCount": 2}).json(), object{"events": 0, "complete": true, "heldBy": list{
		object{"kind": "group", "name": "mail", "position": 0}, object{"kind": "projection", "name": "seen", "position": 0},
	}})
	slip := object{"maxCount": 2, "force": object{"groups": list{"mial"}}}
	a.send("PUT", path, slip).wantProblem(400, domain.CodeInvalidRequest, "force.groups")
	a.post(path+"/run", object{"dryRun": true, "policy": slip}).wantProblem(400, domain.CodeInvalidRequest, "policy.force.groups")
	equal(t, "a try by force", try(object{"maxCount": 2, "force": object{"groups": list{"mail"}, "projections": list{"seen"}}}).json(),
		object{"events": 3, "complete": true, "heldBy": list{}})
	equal(t, "events", len(a.get("/v1/streams/order-1").want(200).at("events").(list)), 5)

	a.send("PUT", path, object{"maxCount": 2}).want(201)
	equal(t, "the other's", other.get("/v1/retention").want(200).json(), object{"policies": list{}})
	other.get(path).wantProblem(404, domain.CodeNotFound, "category")
	changed := a.send("PUT", path, object{"maxCount": 4}).want(200)
	equal(t, "what is kept", list{changed.at("maxCount"), changed.json()["force"]}, list{4, nil})
	a.send("DELETE", path, nil).want(204)
	a.get(path).want(404)
}
