package systemtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// Two processes are killed in turn while clients take money from a few accounts. Each command, repeated until it is
// answered and once more, has one outcome, has effect once if it was accepted, and no account is overdrawn.
func TestKillsDuringCommands(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	both := services{serve(t, db), serve(t, db)}
	_, u := newTenant(t, newUser(t, both, operatorKey), "acme")
	u.must(t, 200, nil, "PUT", "/v1/aggregates/account", map[string]any{
		"initial": map[string]any{"balance": 0},
		"on":      map[string]string{"Deposited": "{'balance': state.balance + event.data.amount}", "Withdrawn": "{'balance': state.balance - event.data.amount}"},
		"commands": map[string]any{
			"Deposit":  map[string]any{"emit": []any{map[string]string{"Deposited": "{'amount': command.amount}"}}},
			"Withdraw": map[string]any{"require": []any{map[string]string{"if": "state.balance >= command.amount", "reject": "overdrawn"}}, "emit": []any{map[string]string{"Withdrawn": "{'amount': command.amount}"}}},
		},
	})
	const accounts, funds, clients, each = 3, 40, 6, 30
	for i := range accounts {
		u.must(t, 200, nil, "POST", fmt.Sprintf("/v1/aggregates/account/%d/commands/Deposit", i), map[string]any{"data": map[string]int{"amount": funds}}, "Idempotency-Key", "first")
	}
	type outcome struct {
		Outcome  string
		Reason   string
		Position int64
		Version  int64
	}
	var accepted [accounts]atomic.Int64
	var sent atomic.Int64
	var sending sync.WaitGroup
	for i := range clients {
		sending.Go(func() {
			for n := range each {
				account := (i + n) % accounts
				path, key := fmt.Sprintf("/v1/aggregates/account/%d/commands/Withdraw", account), fmt.Sprintf("%d-%d", i, n)
				var first outcome
				for again := range 2 {
					a, err := u.call(t.Context(), i+again, "POST", path, map[string]any{"data": map[string]int{"amount": 1}}, "Idempotency-Key", key)
					if err != nil || a.status != http.StatusOK && a.code() != "rejected" {
						t.Errorf("%s of %s: %v, %s", path, key, err, a)
						return
					}
					var got outcome
					if err := json.Unmarshal(a.body, &got); err != nil {
						t.Error(err)
						return
					}
					if again == 1 && got != first {
						t.Errorf("%s: the outcome of %s was %+v, and then %+v", path, key, first, got)
					}
					first = got
				}
				if first.Outcome == "accepted" {
					accepted[account].Add(1)
				}
				sent.Add(1)
			}
		})
	}
	for round := range 6 {
		for sent.Load() < int64((round+1)*clients*each/8) && !t.Failed() {
			u.must(t, 200, nil, "GET", "/v1/streams/account-0/state", nil) // a pause that makes progress visible
		}
		both[round%2].kill()
		both[round%2].start()
	}
	sending.Wait()
	for i := range accounts {
		var state client.State
		u.must(t, 200, &state, "GET", fmt.Sprintf("/v1/streams/account-%d/state", i), nil)
		var data struct{ Balance int64 }
		if err := json.Unmarshal(state.State, &data); err != nil {
			t.Fatal(err)
		}
		if n := accepted[i].Load(); data.Balance != funds-n || state.Version != 1+n || data.Balance < 0 {
			t.Errorf("account %d has %d after %d accepted withdrawals, at version %d", i, data.Balance, n, state.Version)
		}
	}
}

// FuzzCommand puts arbitrary commands into a definition, and sends them.
func FuzzCommand(f *testing.F) {
	for _, seed := range []struct{ definition, data, id string }{
		{`{"emit":[{"A":"command"}]}`, `{"data":{"n":1}}`, "1"},
		{`{"require":[{"if":"state.n < 10","reject":"full","message":"\"at \" + string(now)"}],"emit":[{"A":"{'n': state.n + 1}"}]}`, `{"data":{},"metadata":{"u":1}}`, "1"},
		{`{"emit":[{"each":"command.list","if":"item != 2","A":"{'item': item, 'uuid': uuid}","metadata":"{'id': id}"},{"stream":"\"other-\" + id","B":"null"}]}`, `{"data":{"list":[1,2,"x",null,[1]]}}`, "a-b"},
		{`{"emit":[{"A":"command.list.map(a, command.list.map(b, command.list.map(c, [a, b, c])))"}]}`, `{"data":{"list":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20]}}`, "1"},
		{`{"boundary":{"b":{"query":[{"tags":"['t:' + command.t]"}],"initial":{"n":0},"on":{"A":"merge(state, {'n': state.n + 1})"}}},"require":[{"if":"boundary.b.n < 2","reject":"many"}],"emit":[{"A":"{}","tags":"['t:' + command.t, id]"}]}`, `{"data":{"t":"x"}}`, "1"},
		{`{"emit":[{"A":"1/0"}]}`, `{"data":{}}`, "1"}, {`{"emit":[{"A":"state.missing"}]}`, `{"data":[]}`, "%2e"}, {`{"emit":[{"stream":"command.to","A":"{}"},{"A":"{}"}]}`, `{"data":{"to":"$all"}}`, "1"},
		{`{"require":[{"if":"command","reject":"r"}],"emit":[{"A":"\"\\u0000\""}]}`, `{"data":{"a":"\u0000"}}`, "1"}, {`{"emit":[]}`, ``, ""}, {`{"emit":[{"if":"true"}]}`, `{}`, "1"}, {`{"input":{"type":"string"},"emit":[{"A":"command"}]}`, `{"data":{}} {}`, "1"},
		{`{"emit":[{"A":"{'t': now + duration(command.d)}"}]}`, `{"data":{"d":"1e99h"}}`, "1"}, {`{"emit":[{"each":"[1, 2].map(x, command)","A":"item"}]}`, `{"data":{"a":1e400}}`, "1"}, {`nul`, `{"data":{"a":` + "\xff" + `}}`, "\xff"},
	} {
		f.Add([]byte(seed.definition), []byte(seed.data), seed.id)
	}
	u := fuzzed(f)
	f.Fuzz(func(t *testing.T, definition, body []byte, id string) {
		text := fmt.Appendf(nil, `{"initial":{"n":0},"on":{"A":"{'n': state.n + 1}"},"commands":{"Do":%s}}`, definition)
		if u.send(t, "PUT", "/v1/aggregates/order", text).status != 200 {
			return
		}
		path := "/v1/aggregates/order/" + url.PathEscape(id) + "/commands/Do"
		dry := u.send(t, "POST", path+"?dryRun=true", body)
		done := u.send(t, "POST", path, body)
		if dry.status == 200 && done.status != 200 && done.code() != "rejected" {
			t.Fatalf("%s with %q is answered %s, and in a dry run %s", definition, body, done, dry)
		}
		u.send(t, "POST", "/v1/commands", fmt.Appendf(nil, `{"commands":[{"stream":"order-1","command":"Do","data":%s}]}`, body))
	})
}
