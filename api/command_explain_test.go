package api_test

import (
	"testing"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

func TestExplainedCommands(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.send("PUT", "/v1/aggregates/account", object{
		"initial": object{"balance": 5, "status": "open"}, "on": object{"Withdrawn": `merge(state, {"balance": state.balance - event.data.amount})`},
		"commands": object{"Withdraw": object{
			"require": list{
				object{"if": `state.status == "open" && !has(state.frozen)`, "reject": "closed"},
				object{"if": "state.balance >= command.amount", "reject": "overdrawn", "message": `"<" + string(state.balance) + ">"`},
				object{"if": "command.note.size() < 2000", "reject": "long"},
			},
			"emit": list{object{"Withdrawn": `{"amount": command.amount}`}},
		}},
	}).want(200)
	if got := a.get("/v1/aggregates/account").want(200).at("commands", "Withdraw", "require", 0, "if"); got != `state.status == "open" && !has(state.frozen)` {
		t.Errorf("the definition has %v", got)
	}
	const path = "/v1/aggregates/account/1/commands/Withdraw"
	const explain = path + "?dryRun=true&explain=true"
	first := object{"rule": 0, "if": `state.status == "open" && !has(state.frozen)`, "holds": true, "code": "closed", "values": object{"state.status": "open"}, "missing": list{"state.frozen"}}

	rejected := a.post(explain, object{"data": object{"amount": 7, "note": ""}}).want(200)
	equal(t, "the outcome", rejected.at("outcome"), "rejected")
	equal(t, "the rules", rejected.at("rules"), list{first, object{
		"rule": 1, "if": "state.balance >= command.amount", "holds": false, "code": "overdrawn", "message": "<5>", "values": object{"state.balance": 5, "command.amount": 7},
	}})

	note := make([]byte, 1500)
	for i := range note {
		note[i] = '<'
	}
	accepted := a.post(explain, object{"data": object{"amount": 4, "note": string(note)}}, "Idempotency-Key", "k").want(200)
	equal(t, "the outcome", accepted.at("outcome"), "accepted")
	equal(t, "the events", accepted.at("events"), list{object{"stream": "account-1", "type": "Withdrawn", "data": object{"amount": 4}}})
	equal(t, "the last rule", accepted.at("rules", 2), object{
		"rule": 2, "if": "command.note.size() < 2000", "holds": true, "code": "long", "values": object{"command.note": `"` + string(note[:999])}, "clipped": list{"command.note"},
	})

	// An earlier outcome of the key is not explained: the command is decided again.
	a.post(path, object{"data": object{"amount": 4, "note": ""}}, "Idempotency-Key", "k").want(200)
	again := a.post(explain, object{"data": object{"amount": 4, "note": ""}}, "Idempotency-Key", "k").want(200)
	equal(t, "the values", again.at("rules", 1, "values"), object{"state.balance": 1, "command.amount": 4})
	if plain := a.post(path+"?dryRun=true", object{"data": object{"amount": 1, "note": ""}}).want(200).json(); plain["rules"] != nil {
		t.Errorf("without explain there are rules: %v", plain)
	}

	data := object{"data": object{"amount": 1, "note": ""}}
	a.post(path+"?explain=true", data).wantProblem(400, domain.CodeInvalidRequest, "query explain")
	a.post(path+"?explain=true&dryRun=false", data).wantProblem(400, domain.CodeInvalidRequest, "query explain")
	a.post(path+"?dryRun=true&explain=1", data).wantProblem(400, domain.CodeInvalidRequest, "query explain")
	// The values of a state are for those who may read events.
	sends := &actor{w, w.key(a.tenantID, auth.ScopeCommandsSend), a.tenantID}
	sends.post(path+"?dryRun=true", data).want(200)
	sends.post(explain, data).wantProblem(403, domain.CodeForbidden, "query explain")
	other := &actor{w, w.key(a.tenantID, auth.ScopeCommandsSend, "events:read:other"), a.tenantID}
	other.post(explain, data).wantProblem(403, domain.CodeForbidden, "query explain")
}
