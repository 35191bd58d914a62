package aggregate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

// account is an aggregate whose commands use every part of a definition.
func account() Definition {
	return Definition{
		Category: "account", Initial: json.RawMessage(`{"balance": 0, "open": true}`),
		On: map[string]string{
			"Deposited": `merge(state, {"balance": state.balance + event.data.amount})`,
			"Withdrawn": `merge(state, {"balance": state.balance - event.data.amount})`,
			"Closed":    `merge(state, {"open": false})`,
		},
		Commands: map[string]CommandDefinition{
			"Deposit": {
				Require: []Requirement{{If: "state.open", Reject: "closed"}},
				Emit:    []Emission{{Type: "Deposited", Each: "command.amounts", If: "item > 0", Data: `{"amount": item}`}},
			},
			"Withdraw": {
				Require: []Requirement{
					{If: "state.open", Reject: "closed"},
					{If: "state.balance >= command.amount", Reject: "overdrawn", Message: `"there are " + string(state.balance)`},
				},
				Emit: []Emission{{Type: "Withdrawn", Data: `{"amount": command.amount}`, Metadata: `{"account": id}`}},
			},
			"Transfer": {
				Require: []Requirement{{If: "state.open && state.balance >= command.amount", Reject: "overdrawn"}},
				Emit: []Emission{
					{Type: "Withdrawn", Data: `{"amount": command.amount}`},
					{Type: "Deposited", Stream: `"account-" + command.to`, Data: `{"amount": command.amount}`},
				},
			},
			"Close": {Emit: []Emission{{Type: "Closed", If: "state.open", Data: `{"at": now, "by": uuid}`}}},
		},
	}
}

// process is a further service process on the same database.
func process(t testing.TB, s *watched) *Commands {
	t.Helper()
	states, err := New(Config{Store: s.Postgres, Events: s.Log})
	must(t, err)
	return NewCommands(states, s.Log, nil)
}

func send(t rapid.TB, c *Commands, tenant domain.TenantID, command Command) (Outcome, error) {
	t.Helper()
	if command.Expected == 0 {
		command.Expected = domain.Any
	}
	return c.Send(context.Background(), tenant, command)
}

func wantOutcome(t rapid.TB, what string, got Outcome, err error, kind OutcomeKind, version int64, state string) {
	t.Helper()
	if err != nil || got.Kind != kind || got.Version != version || string(got.State) != state {
		t.Fatalf("%s: got %s at version %d, %s, %v; want %s at %d, %s", what, got.Kind, got.Version, got.State, err, kind, version, state)
	}
}

// wantRejected checks a rejection's code.
func wantRejected(t rapid.TB, what string, err error, reason string) {
	t.Helper()
	if problem, ok := errors.AsType[*domain.Error](err); !ok || problem.Code != domain.CodeRejected || problem.Reason != reason {
		t.Fatalf("%s: got %v, want the rejection %q", what, err, reason)
	}
}

// Whatever two processes and other clients do to a few accounts, each command has the outcome of a model.
func TestCommandsDecideAsAModel(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	both := []*Commands{process(t, s), process(t, s)}
	must(t, both[0].states.Put(t.Context(), tenant, account()))
	type modelled struct {
		balance int
		closed  bool
		version int64
	}
	stateOf := func(m *modelled) string { return fmt.Sprintf(`{"balance":%d,"open":%t}`, m.balance, !m.closed) }
	runs := 0
	rapid.Check(t, func(r *rapid.T) {
		runs++
		accounts := map[string]*modelled{"a": {}, "b": {}}
		streamOf := func(name string) string { return fmt.Sprintf("account-%s%d", name, runs) }
		for range rapid.IntRange(1, 12).Draw(r, "commands") {
			name := rapid.SampledFrom([]string{"a", "b"}).Draw(r, "account")
			m, c := accounts[name], rapid.SampledFrom(both).Draw(r, "process")
			command := Command{Stream: streamOf(name), DryRun: rapid.IntRange(0, 9).Draw(r, "dry") == 0}
			amount := rapid.IntRange(1, 20).Draw(r, "amount")
			after, other := *m, (*modelled)(nil)
			kind, reason := Accepted, ""
			switch command.Name = rapid.SampledFrom([]string{"Deposit", "Withdraw", "Transfer", "Close", "append"}).Draw(r, "command"); command.Name {
			case "append": // a client without commands
				events := []domain.NewEvent{{Type: "Deposited", Data: json.RawMessage(fmt.Sprintf(`{"amount":%d}`, amount))}}
				_, err := s.Append(context.Background(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: command.Stream, Expected: domain.Any, Events: events}}})
				must(r, err)
				m.balance, m.version = m.balance+amount, m.version+1
				continue
			case "Deposit":
				second := rapid.IntRange(-1, 1).Draw(r, "second")
				command.Data = json.RawMessage(fmt.Sprintf(`{"amounts": [%d, %d]}`, amount, second))
				after.balance, after.version = m.balance+amount+max(0, second), m.version+1+int64(max(0, second))
				if m.closed {
					kind, reason = Rejected, "closed"
				}
			case "Withdraw":
				command.Data = json.RawMessage(fmt.Sprintf(`{"amount": %d}`, amount))
				after.balance, after.version = m.balance-amount, m.version+1
				if m.closed {
					kind, reason = Rejected, "closed"
				} else if m.balance < amount {
					kind, reason = Rejected, "overdrawn"
				}
			case "Transfer":
				to := map[string]string{"a": "b", "b": "a"}[name]
				command.Data = json.RawMessage(fmt.Sprintf(`{"amount": %d, "to": "%s%d"}`, amount, to, runs))
				after.balance, after.version, other = m.balance-amount, m.version+1, accounts[to]
				if m.closed || m.balance < amount {
					kind, reason = Rejected, "overdrawn"
				}
			case "Close":
				if after.closed, after.version = true, m.version+1; m.closed {
					kind = Nothing
				}
			}
			if kind != Accepted {
				after = *m
			}
			outcome, err := send(r, c, tenant, command)
			switch {
			case kind == Rejected && !command.DryRun:
				wantRejected(r, command.Name, err, reason)
			case kind == Rejected:
				if err != nil || outcome.Kind != Rejected || outcome.Rejected.Code != reason {
					r.Fatalf("a dry run of %s: %+v, %v", command.Name, outcome, err)
				}
			default:
				wantOutcome(r, command.Name, outcome, err, kind, after.version, stateOf(&after))
			}
			if command.DryRun || kind != Accepted {
				continue
			}
			*m = after
			if other != nil {
				other.balance, other.version = other.balance+amount, other.version+1
			}
			for _, e := range outcome.Events {
				if e.Position == 0 || e.Version == 0 || e.ID.IsZero() {
					r.Fatalf("an event has no place: %+v", e)
				}
			}
		}
		for name, m := range accounts {
			if m.version > 0 {
				state, err := both[0].states.Load(t.Context(), tenant, streamOf(name), At{})
				must(r, err)
				wantState(r, state, m.version, stateOf(m))
			}
		}
	})
}

// Concurrent withdrawals in two processes never overdraw the account.
func TestRacingCommandsNeverDecideOnAnOldState(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	both := []*Commands{process(t, s), process(t, s)}
	must(t, both[0].states.Put(t.Context(), tenant, account()))
	const funds, racers, each = 30, 8, 10
	_, err := send(t, both[0], tenant, Command{Stream: "account-1", Name: "Deposit", Data: json.RawMessage(fmt.Sprintf(`{"amounts": [%d]}`, funds))})
	must(t, err)
	var accepted, rejected atomic.Int64
	var racing sync.WaitGroup
	for i := range racers {
		racing.Go(func() {
			for range each {
				_, err := send(t, both[i%2], tenant, Command{Stream: "account-1", Name: "Withdraw", Data: json.RawMessage(`{"amount": 1}`)})
				switch {
				case err == nil:
					accepted.Add(1)
				case code(err) == domain.CodeRejected:
					rejected.Add(1)
				default:
					t.Errorf("a withdrawal: %v", err)
				}
			}
		})
	}
	racing.Wait()
	if accepted.Load() != funds || rejected.Load() != racers*each-funds {
		t.Errorf("%d were accepted and %d rejected, of %d", accepted.Load(), rejected.Load(), funds)
	}
	state, err := both[1].states.Load(t.Context(), tenant, "account-1", At{})
	must(t, err)
	wantState(t, state, 1+funds, `{"balance":0,"open":true}`)
}

// A command with a key has one outcome, whatever has happened since, in whichever process.
func TestKeyPinsTheOutcome(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c, again := process(t, s), process(t, s)
	must(t, c.states.Put(t.Context(), tenant, account()))
	deposit := Command{Stream: "account-1", Name: "Deposit", Key: "k-1", Data: json.RawMessage(`{"amounts": [5, 6]}`)}
	first, err := send(t, c, tenant, deposit)
	wantOutcome(t, "the first", first, err, Accepted, 2, `{"balance":11,"open":true}`)
	tooMuch := Command{Stream: "account-1", Name: "Withdraw", Key: "k-1", Data: json.RawMessage(`{"amount": 50}`)}
	_, err = send(t, c, tenant, tooMuch)
	wantRejected(t, "too much", err, "overdrawn")
	if !strings.Contains(err.Error(), "there are 11") {
		t.Errorf("the message is %v", err)
	}
	none := Command{Stream: "account-1", Name: "Deposit", Key: "k-2", Data: json.RawMessage(`{"amounts": [-1]}`)}
	nothing, err := send(t, c, tenant, none)
	wantOutcome(t, "nothing", nothing, err, Nothing, 2, `{"balance":11,"open":true}`)

	_, err = send(t, c, tenant, Command{Stream: "account-1", Name: "Deposit", Data: json.RawMessage(`{"amounts": [100]}`)})
	must(t, err)
	_, err = send(t, c, tenant, Command{Stream: "account-1", Name: "Close"})
	must(t, err)
	for i, c := range []*Commands{c, again} {
		got, err := send(t, c, tenant, deposit)
		wantOutcome(t, "the first again", got, err, Accepted, 2, `{"balance":11,"open":true}`)
		same := len(got.Events) == 2 && got.Position == first.Position && got.Duplicate
		for n := range got.Events {
			same = same && got.Events[n].AppendedEvent == first.Events[n].AppendedEvent
		}
		if !same {
			t.Errorf("process %d: got %+v, want %+v", i, got, first)
		}
		_, err = send(t, c, tenant, tooMuch)
		wantRejected(t, "too much again", err, "overdrawn")
		got, err = send(t, c, tenant, none)
		wantOutcome(t, "nothing again", got, err, Nothing, 2, `{"balance":11,"open":true}`)
	}
}

// The outcome of a command with many events, or of a definition that was removed since, is given again.
func TestKeyPinsTheOutcomeOfManyEvents(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	must(t, c.states.Put(t.Context(), tenant, account()))
	for i, n := range []int{1, 9, 10, 11, 999, 1000} {
		deposit := Command{
			Stream: fmt.Sprintf("account-%d", i), Name: "Deposit", Key: "k",
			Data: json.RawMessage(`{"amounts": [` + strings.Repeat("1,", n-1) + `1]}`),
		}
		first, err := send(t, c, tenant, deposit)
		must(t, err)
		again, err := send(t, c, tenant, deposit)
		must(t, err)
		if len(again.Events) != n || again.Position != first.Position || again.Version != int64(n) || string(again.State) != string(first.State) {
			t.Errorf("%d events: a repetition has %d, up to position %d of %d", n, len(again.Events), again.Position, first.Position)
		}
	}
	must(t, c.states.Delete(t.Context(), tenant, "account"))
	got, err := send(t, c, tenant, Command{Stream: "account-0", Name: "Deposit", Key: "k", Data: json.RawMessage(`{"amounts": [1]}`)})
	if err != nil || got.Kind != Accepted || len(got.Events) != 1 || got.State != nil {
		t.Errorf("without the definition: %+v, %v", got, err)
	}
}

// The same command at the same time, in two processes, has effect once.
func TestKeyedCommandsAtOnceHaveEffectOnce(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	both := []*Commands{process(t, s), process(t, s)}
	must(t, both[0].states.Put(t.Context(), tenant, account()))
	for round := range 10 {
		stream := fmt.Sprintf("account-%d", round)
		var sending sync.WaitGroup
		for i := range 6 {
			sending.Go(func() {
				got, err := send(t, both[i%2], tenant, Command{Stream: stream, Name: "Deposit", Key: "once", Data: json.RawMessage(`{"amounts": [3]}`)})
				if err != nil || got.Kind != Accepted || got.Version != 1 || string(got.State) != `{"balance":3,"open":true}` {
					t.Errorf("round %d: got %+v, %v", round, got, err)
				}
			})
		}
		sending.Wait()
		state, err := both[0].states.Load(t.Context(), tenant, stream, At{})
		must(t, err)
		wantState(t, state, 1, `{"balance":3,"open":true}`)
	}
}

// While a process serves a stream, a command reads nothing.
func TestCommandsOnAHotStreamReadNothing(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	must(t, c.states.Put(t.Context(), tenant, account()))
	deposit := Command{Stream: "account-1", Name: "Deposit", Data: json.RawMessage(`{"amounts": [1]}`)}
	_, err := send(t, c, tenant, deposit)
	must(t, err)
	before := s.DB.App.Stat().AcquireCount()
	got, err := send(t, c, tenant, deposit)
	wantOutcome(t, "the second", got, err, Accepted, 2, `{"balance":2,"open":true}`)
	if n := s.DB.App.Stat().AcquireCount() - before; n != 1 {
		t.Errorf("a command used %d connections, want one, for its append", n)
	}
}

func TestCommandsThatExpectAVersion(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	must(t, c.states.Put(t.Context(), tenant, account()))
	deposit := Command{Stream: "account-1", Name: "Deposit", Data: json.RawMessage(`{"amounts": [1]}`), Expected: domain.Exists}
	_, err := send(t, c, tenant, deposit)
	if code(err) != domain.CodeVersionConflict {
		t.Errorf("a stream that must exist: %v", err)
	}
	deposit.Expected = domain.None
	_, err = c.Send(t.Context(), tenant, deposit)
	must(t, err)
	_, err = c.Send(t.Context(), tenant, deposit)
	if problem, ok := errors.AsType[*domain.Error](err); !ok || problem.Code != domain.CodeVersionConflict || *problem.CurrentVersion != 1 {
		t.Errorf("a stream that must not exist: %v", err)
	}
	deposit.Expected = 1
	got, err := send(t, c, tenant, deposit)
	wantOutcome(t, "at version 1", got, err, Accepted, 2, `{"balance":2,"open":true}`)
}

// Every command that was decided is observed once, however it ends.
func TestEndsOfCommandsAreObserved(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	var ends []string
	c := NewCommands(states, s.Log, func(end string, conflicts int, _ time.Duration) { ends = append(ends, fmt.Sprint(end, conflicts)) })
	must(t, states.Put(t.Context(), tenant, account()))
	must(t, c.Register("account", "Fail", func(context.Context, Decision) ([]NewEvent, error) { return nil, errors.New("broken") }))
	deposit := Command{Stream: "account-1", Name: "Deposit", Data: json.RawMessage(`{"amounts": [1]}`)}
	_, _ = send(t, c, tenant, deposit)
	_, err := send(t, process(t, s), tenant, deposit) // another process: the version in memory is old
	must(t, err)
	deposit.Expected = 1
	_, err = send(t, c, tenant, deposit)
	if code(err) != domain.CodeVersionConflict {
		t.Errorf("the old version: %v", err)
	}
	_, _ = send(t, c, tenant, Command{Stream: "account-1", Name: "Deposit", Data: json.RawMessage(`{"amounts": []}`)})
	_, _ = send(t, c, tenant, Command{Stream: "account-1", Name: "Withdraw", Data: json.RawMessage(`{"amount": 1000}`)})
	_, _ = send(t, c, tenant, Command{Stream: "account-1", Name: "Fail"})
	_, _ = send(t, c, tenant, Command{Stream: "account-1", Name: "None"})
	if want := []string{"accepted0", "conflict1", "nothing0", "rejected0", "failed0"}; !slices.Equal(ends, want) {
		t.Errorf("observed are %q, want %q", ends, want)
	}
}

// The events have the metadata of the command, of the definition, and of neither if there is none.
func TestCommandsEventsAreStored(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	must(t, c.states.Put(t.Context(), tenant, account()))
	_, err := send(t, c, tenant, Command{Stream: "account-1", Name: "Deposit", Data: json.RawMessage(`{"amounts": [7]}`)})
	must(t, err)
	_, err = send(t, c, tenant, Command{Stream: "account-1", Name: "Withdraw", Data: json.RawMessage(`{"amount": 2}`), Metadata: json.RawMessage(`{"user": "u-3"}`)})
	must(t, err)
	_, err = send(t, c, tenant, Command{Stream: "account-1", Name: "Transfer", Data: json.RawMessage(`{"amount": 1, "to": "2"}`)})
	must(t, err)
	events, err := s.ReadLog(t.Context(), tenant, domain.LogQuery{From: 1, Limit: 10})
	must(t, err)
	var got []string
	for _, e := range events {
		got = append(got, fmt.Sprintf("%s %s %s %s", e.Stream, e.Type, e.Data, e.Metadata))
	}
	want := []string{
		`account-1 Deposited {"amount": 7} `, `account-1 Withdrawn {"amount": 2} {"user": "u-3", "account": "1"}`,
		`account-1 Withdrawn {"amount": 1} `, `account-2 Deposited {"amount": 1} `,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

// A fold that depends on what the append decides gives the state all the same.
func TestCommandsOfFoldsThatReadPositions(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	must(t, c.states.Put(t.Context(), tenant, Definition{
		Category: "note", On: map[string]string{"Written": `{"position": event.position, "id": event.id}`},
		Commands: map[string]CommandDefinition{"Write": {Emit: []Emission{{Type: "Written", Data: "command"}}}},
	}))
	for n := range 2 {
		got, err := send(t, c, tenant, Command{Stream: "note-1", Name: "Write", Data: json.RawMessage(`{}`)})
		want := fmt.Sprintf(`{"id":"%s","position":%d}`, got.Events[0].ID, n+1)
		wantOutcome(t, "a note", got, err, Accepted, int64(n+1), want)
	}
}

func TestCommandsThatCannotBeDecided(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	definition := account()
	definition.Commands["Elsewhere"] = CommandDefinition{Emit: []Emission{{Type: "Deposited", Stream: `"account-2"`, Data: `{"amount": 1}`}}}
	definition.Commands["Foreign"] = CommandDefinition{Emit: []Emission{{Type: "Closed", Data: "{}"}, {Type: "T", Stream: `"other-1"`, Data: "{}"}}}
	definition.Commands["Unfoldable"] = CommandDefinition{Emit: []Emission{{Type: "Deposited", Data: `{"amount": "much"}`}}}
	definition.Commands["Checked"] = CommandDefinition{
		Input: json.RawMessage(`{"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer", "minimum": 1}}, "additionalProperties": false}`),
		Emit:  []Emission{{Type: "Deposited", Data: "command"}},
	}
	definition.Commands["Nowhere"] = CommandDefinition{Emit: []Emission{{Type: "Closed", Stream: `"no stream"`, Data: "{}"}}}
	definition.Commands["Many"] = CommandDefinition{Emit: []Emission{{Type: "Closed", Each: "command.n", Data: "{}"}}}
	must(t, c.states.Put(t.Context(), tenant, definition))
	forbid := func(category string) error { return domain.Errorf(domain.CodeForbidden, "", "not %s", category) }
	for _, tried := range []struct {
		name, data, stream string
		allow              func(string) error
		code               domain.Code
		says               string
	}{
		{"Deposit", `{}`, "account-1", nil, domain.CodeFaulted, "commands.Deposit.emit[0].each"},
		{"Deposit", `[]`, "account-1", nil, domain.CodeInvalidRequest, "data: it must be a JSON object"},
		{"Withdraw", `{"amount": "a"}`, "account-1", nil, domain.CodeFaulted, "commands.Withdraw.require[1].if"},
		{"Checked", `{"amount": 0, "more": 1}`, "account-1", nil, domain.CodeInvalidRequest, "data: it does not fit its schema: /"},
		{"Checked", ``, "account-1", nil, domain.CodeInvalidRequest, "amount"},
		{"Elsewhere", `{}`, "account-1", nil, domain.CodeFaulted, "append at least one to the command's stream"},
		{"Foreign", `{}`, "account-1", forbid, domain.CodeForbidden, "not other"},
		{"Unfoldable", `{}`, "account-1", nil, domain.CodeFaulted, "the command's event Deposited cannot be folded"},
		{"Nowhere", `{}`, "account-1", nil, domain.CodeFaulted, "commands.Nowhere.emit[0].stream"},
		{"Many", `{"n": [` + strings.Repeat("1,", 1000) + `1]}`, "account-1", nil, domain.CodeTooLarge, "more than 1000 events"},
		{"None", `{}`, "account-1", nil, domain.CodeNotFound, `no command "None"; it has Checked, Close, Deposit`},
		{"Deposit", `{}`, "other-1", nil, domain.CodeNotFound, "no aggregate definition"},
		{"Deposit", `{}`, "account", nil, domain.CodeInvalidRequest, "not a stream name"},
	} {
		_, err := send(t, c, tenant, Command{Stream: tried.stream, Name: tried.name, Data: json.RawMessage(tried.data), Allow: tried.allow})
		if code(err) != tried.code || !strings.Contains(err.Error(), tried.says) {
			t.Errorf("%s %.40s: got %v, want %s with %q", tried.name, tried.data, err, tried.code, tried.says)
		}
	}
	if head, err := s.Head(t.Context(), tenant); err != nil || head.Position != 0 {
		t.Errorf("the log has %d events, %v", head.Position, err)
	}
}

// A decider in Go has the same guarantees as a definition's commands.
func TestDecidersInGo(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	must(t, c.states.Put(t.Context(), tenant, account()))
	must(t, c.Register("account", "TakeAll", func(_ context.Context, d Decision) ([]NewEvent, error) {
		var state struct{ Balance int }
		if err := json.Unmarshal(d.State, &state); err != nil {
			return nil, err
		}
		switch {
		case state.Balance == 0:
			return nil, nil
		case state.Balance > 100:
			return nil, &Rejection{Code: "too-much", Message: "take less"}
		case state.Balance == 13:
			return []NewEvent{{Type: "no type", Data: json.RawMessage("{}")}}, nil
		}
		return []NewEvent{
			{Type: "Withdrawn", Data: json.RawMessage(fmt.Sprintf(`{"amount": %d}`, state.Balance))},
			{Stream: "account-2", Type: "Deposited", Data: json.RawMessage(fmt.Sprintf(`{"amount": %d}`, state.Balance)), Metadata: json.RawMessage(`{"by": "go"}`)},
		}, nil
	}))
	if err := c.Register("account", "TakeAll", nil); err == nil {
		t.Error("a second decider of a command is registered")
	}
	take := Command{Stream: "account-1", Name: "TakeAll", Metadata: json.RawMessage(`{"user": "u-3"}`)}
	got, err := send(t, c, tenant, take)
	wantOutcome(t, "of nothing", got, err, Nothing, 0, `{"balance":0,"open":true}`)
	deposit := func(amount int) {
		_, err := send(t, c, tenant, Command{Stream: "account-1", Name: "Deposit", Data: json.RawMessage(fmt.Sprintf(`{"amounts": [%d]}`, amount))})
		must(t, err)
	}
	deposit(40)
	take.Key = "once"
	for range 2 {
		got, err = send(t, c, tenant, take)
		wantOutcome(t, "all", got, err, Accepted, 2, `{"balance":0,"open":true}`)
	}
	events, err := s.ReadLog(t.Context(), tenant, domain.LogQuery{From: 2, Limit: 10})
	must(t, err)
	if len(events) != 2 || string(events[0].Metadata) != `{"user": "u-3"}` || string(events[1].Metadata) != `{"by": "go"}` || events[1].Stream != "account-2" {
		t.Errorf("the events are %+v", events)
	}
	take.Key = ""
	deposit(13)
	if _, err := send(t, c, tenant, take); err == nil || !strings.Contains(err.Error(), "the decider of TakeAll gave an invalid event") {
		t.Errorf("an invalid event: %v", err)
	}
	deposit(100)
	_, err = send(t, c, tenant, take)
	wantRejected(t, "too much", err, "too-much")
}

func TestDefinitionsWithWrongCommands(t *testing.T) {
	t.Parallel()
	_, states, tenant := begin(t, false)
	for _, tried := range []struct{ command, says string }{
		{`{"emit": []}`, "commands.C.emit: the command appends nothing"},
		{`{"emit": [{"if": "true"}]}`, "commands.C.emit[0]: it names no event type"},
		{`{"emit": [{"A": "1", "B": "2"}]}`, "commands.C: it names two event types, A and B"},
		{`{"emit": [{"A b": "1"}]}`, "commands.C.emit[0]: the event type has ' ' at byte 2"},
		{`{"emit": [{"A": "stat"}]}`, `commands.C.emit[0].A: line 1, column 1: there is no variable "stat" here`},
		{`{"emit": [{"A": "item"}]}`, `there is no variable "item" here`},
		{`{"emit": [{"A": "now()"}]}`, "the moment of the request is the variable now"},
		{`{"emit": [{"A": "event.data"}]}`, "event is not available here; there are state, command, metadata, now, id, uuid and boundary"},
		{`{"require": [{"if": "1 + 1", "reject": "r"}], "emit": [{"A": "1"}]}`, "commands.C.require[0].if: line 1, column 3: it must give true or false; this one gives int"},
		{`{"require": [{"if": "true", "reject": "r s"}], "emit": [{"A": "1"}]}`, "commands.C.require[0].reject: the code has ' '"},
		{`{"emit": [{"A": "1", "each": "\"x\""}]}`, "commands.C.emit[0].each: line 1, column 1: it must give a list; this one gives string"},
		{`{"emit": 1}`, "commands.C: "},
		{`{"emit": [{"A": "1", "tags": "\"x\""}]}`, "commands.C.emit[0].tags: line 1, column 1: it must give a list; this one gives string"},
		{`{"emit": [{"A": "boundary.x"}]}`, "commands.C.emit[0].A: the command has no boundary; declare one"},
		{`{"boundary": {"b": {"query": [{"tags": "['a']"}], "on": {"A": "state"}}}, "emit": [{"A": "boundary.c"}]}`, `commands.C.emit[0].A: the boundary has no "c"; it has b`},
		{`{"boundary": {"b": {"query": [{"tags": "[string(boundary.b.n)]"}], "on": {"A": "state"}}}, "emit": [{"A": "1"}]}`, "commands.C.boundary.b.query[0].tags: the tags decide what is read"},
		{`{"boundary": {"b-c": {"query": [{"tags": "['a']"}], "on": {"A": "state"}}}, "emit": [{"A": "1"}]}`, "commands.C.boundary.b-c: the name has '-'"},
		{`{"boundary": {"b": {"query": [], "on": {"A": "state"}}}, "emit": [{"A": "1"}]}`, "commands.C.boundary.b.query: write at least one item"},
		{`{"boundary": {"b": {"query": [{"tags": ""}], "on": {}}}, "emit": [{"A": "1"}]}`, "commands.C.boundary.b.on: there is no event type in it"},
		{`{"boundary": {"b": {"query": [{"tags": "['a']"}], "on": {"A": "stat"}, "initial": []}}, "emit": [{"A": "1"}]}`, `commands.C.boundary.b.on.A: line 1, column 1: there is no variable "stat" here`},
		{`{"boundary": {"b": {"query": [{"tags": "['a']", "types": ["A b"]}], "on": {"A": "state"}}}, "emit": [{"A": "1"}]}`, "commands.C.boundary.b.query[0].types: the event type has ' ' at byte 2"},
		{`{"input": {"type": "text"}, "emit": [{"A": "1"}]}`, "commands.C.input: schema/type"},
	} {
		commands, err := ParseCommands(json.RawMessage(`{"C": ` + tried.command + `}`))
		if err == nil {
			err = states.Put(t.Context(), tenant, Definition{Category: "account", On: map[string]string{"*": "state"}, Commands: commands})
		}
		if code(err) != domain.CodeInvalidDefinition || !strings.Contains(err.Error(), tried.says) {
			t.Errorf("%s: got %v, want %q", tried.command, err, tried.says)
		}
	}
}

// A definition is read back as it was put, commands included.
func TestCommandsAreStored(t *testing.T) {
	t.Parallel()
	_, states, tenant := begin(t, false)
	must(t, states.Put(t.Context(), tenant, account()))
	got, err := states.Definition(t.Context(), tenant, "account")
	must(t, err)
	if !maps.EqualFunc(got.Commands, account().Commands, func(a, b CommandDefinition) bool {
		return slices.Equal(a.Require, b.Require) && slices.Equal(a.Emit, b.Emit)
	}) {
		t.Errorf("got %+v", got.Commands)
	}
	all, err := states.Definitions(t.Context(), tenant)
	must(t, err)
	if len(all) != 1 || len(all[0].Commands) != len(got.Commands) {
		t.Errorf("got %+v", all)
	}
}
