package systemtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// accounts is an aggregate whose balance must not become negative.
var accounts = map[string]any{
	"initial": map[string]any{"balance": 0},
	"on":      map[string]string{"Deposited": "{'balance': state.balance + event.data.amount}", "Withdrawn": "{'balance': state.balance - event.data.amount}"},
	"commands": map[string]any{
		"Deposit":  map[string]any{"emit": []any{map[string]string{"Deposited": "{'amount': command.amount}"}}},
		"Withdraw": map[string]any{"require": []any{map[string]string{"if": "state.balance >= command.amount", "reject": "overdrawn"}}, "emit": []any{map[string]string{"Withdrawn": "{'amount': command.amount}"}}},
	},
}

// outcome is what an answer to a command says.
type outcome struct {
	Outcome  string
	Reason   string
	Position int64
	Version  int64
}

// Two processes are killed in turn while clients take money from a few accounts. Each command, repeated until it is
// answered and once more, has one outcome, has effect once if it was accepted, and no account is overdrawn.
func TestKillsDuringCommands(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	both := serveTwo(t, db)
	_, u := newTenant(t, newUser(t, both, operatorKey), "acme")
	u.must(t, 200, nil, "PUT", "/v1/aggregates/account", accounts)
	const streams, funds, clients, each = 3, 40, 6, 30
	for i := range streams {
		u.must(t, 200, nil, "POST", fmt.Sprintf("/v1/aggregates/account/%d/commands/Deposit", i), map[string]any{"data": map[string]int{"amount": funds}}, "Idempotency-Key", "first")
	}
	var accepted [streams]atomic.Int64
	var sent atomic.Int64
	var sending sync.WaitGroup
	for i := range clients {
		sending.Go(func() {
			for n := range each {
				account := (i + n) % streams
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
			pauseBriefly(t.Context())
		}
		both[round%2].kill()
		both[round%2].start()
	}
	sending.Wait()
	for i := range streams {
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

// A process is killed between its decision and its answer, at each step of the append. The same command with the same
// key, sent to another process twice, has one outcome, also where that differs from what the killed process had
// decided.
func TestKillBetweenDecisionAndAnswer(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	network := pgtest.NewNetwork(t, db)
	killed := serve(t, db, "MANIFOLD_DATABASE_APP_URL="+network.URL(t, db, migrations.RoleApp))
	_, u := newTenant(t, newUser(t, services{killed, serve(t, db)}, operatorKey), "acme")
	u.must(t, 200, nil, "PUT", "/v1/aggregates/account", accounts)
	const move, insert = "manifold_move_head", "manifold_insert_event"
	type hold = func(*pgtest.Statement) bool
	for _, c := range []struct {
		at        string
		fault     func(hold) pgtest.Fault
		contender bool   // takes the money meanwhile
		want      string // the outcome of the command
		duplicate bool   // the killed process has committed it
	}{
		{at: "before the append", fault: func(h hold) pgtest.Fault { return pgtest.Fault{Statement: move, Before: h} }, want: "accepted"},
		{at: "before the append, with a contender", fault: func(h hold) pgtest.Fault { return pgtest.Fault{Statement: move, Before: h} }, contender: true, want: "rejected"},
		{at: "before the commit", fault: func(h hold) pgtest.Fault { return pgtest.Fault{Statement: insert, Commit: h} }, want: "accepted"},
		{at: "after the commit", fault: func(h hold) pgtest.Fault { return pgtest.Fault{Statement: insert, Ended: h} }, want: "accepted", duplicate: true},
		{at: "after the commit, with a contender", fault: func(h hold) pgtest.Fault { return pgtest.Fault{Statement: insert, Ended: h} }, contender: true, want: "accepted", duplicate: true},
	} {
		id := strings.NewReplacer(" ", "", ",", "").Replace(c.at)
		path := "/v1/aggregates/account/" + id + "/commands/"
		u.must(t, 200, nil, "POST", path+"Deposit", map[string]any{"data": map[string]int{"amount": 40}})
		withdraw := func(process int, key string) (answer, error) {
			return u.once(t.Context(), process, "POST", path+"Withdraw", map[string]any{"data": map[string]int{"amount": 30}}, "Idempotency-Key", key)
		}
		reached, killedNow := make(chan struct{}), make(chan struct{})
		var armed atomic.Bool
		network.On(c.fault(func(*pgtest.Statement) bool {
			if !armed.CompareAndSwap(true, false) {
				return true
			}
			close(reached)
			<-killedNow
			return false
		}))
		armed.Store(true)
		cut := make(chan error, 1)
		go func() {
			a, err := withdraw(0, "k")
			if err == nil {
				err = fmt.Errorf("answered %s", a)
			} else {
				err = nil
			}
			cut <- err
		}()
		<-reached
		taken := 0
		if c.contender {
			a, err := withdraw(1, "other")
			if err != nil {
				t.Fatal(err)
			}
			if a.status == http.StatusOK {
				taken = 30
			}
			if (taken > 0) == c.duplicate {
				t.Errorf("%s: the contender is answered %s", c.at, a)
			}
		}
		killed.kill()
		close(killedNow)
		if err := <-cut; err != nil {
			t.Fatalf("%s: the killed process has %v", c.at, err)
		}
		var first outcome
		for again := range 2 {
			a, err := withdraw(1, "k")
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				outcome
				Duplicate bool
			}
			if err := json.Unmarshal(a.body, &got); err != nil {
				t.Fatal(err)
			}
			if (a.status == http.StatusOK) != (c.want == "accepted") || c.want == "rejected" && a.code() != "rejected" {
				t.Errorf("%s: the command is answered %s, want %s", c.at, a, c.want)
			}
			if c.want == "accepted" && got.Duplicate != (c.duplicate || again == 1) {
				t.Errorf("%s: answer %d has duplicate %t", c.at, again, got.Duplicate)
			}
			if again == 0 {
				first = got.outcome
			} else if got.outcome != first {
				t.Errorf("%s: the outcome was %+v, and then %+v", c.at, first, got.outcome)
			}
		}
		if c.want == "accepted" {
			taken += 30
		}
		var state client.State
		u.must(t, 200, &state, "GET", "/v1/streams/account-"+id+"/state", nil)
		var data struct{ Balance int }
		if err := json.Unmarshal(state.State, &data); err != nil || data.Balance != 40-taken || state.Version != 2 {
			t.Errorf("%s: the state is %s at version %d, want %d at 2", c.at, state.State, state.Version, 40-taken)
		}
		killed.start()
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
