package aggregate

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
)

// A trial on a stream's events has the states and the decision that the service has on the stream.
func TestTrialsDecideAsTheService(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	must(t, c.states.Put(t.Context(), tenant, account()))
	trial, err := NewTrial(t.Context(), account(), nil)
	must(t, err)
	runs := 0
	rapid.Check(t, func(r *rapid.T) {
		runs++
		id := fmt.Sprint(runs)
		stream := "account-" + id
		var events []domain.NewEvent
		for range rapid.IntRange(1, 5).Draw(r, "events") {
			kind := rapid.SampledFrom([]string{"Deposited", "Withdrawn", "Closed", "Other"}).Draw(r, "type")
			events = append(events, domain.NewEvent{Type: kind, Data: json.RawMessage(fmt.Sprintf(`{"amount":%d}`, rapid.IntRange(0, 9).Draw(r, "amount")))})
		}
		_, err := s.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: domain.Any, Events: events}}})
		must(r, err)
		command := Command{
			Stream: stream, Name: rapid.SampledFrom([]string{"Withdraw", "Deposit", "Transfer", "None"}).Draw(r, "command"), DryRun: true, Explain: true,
			Data: json.RawMessage(rapid.SampledFrom([]string{`{"amount":3,"amounts":[1,-1],"to":"x"}`, `{"amount":9}`, `{"amount":"a"}`, `[]`}).Draw(r, "data")), Metadata: json.RawMessage(`{"user":"u"}`),
		}
		want, wantErr := send(r, c, tenant, command)
		logged, err := s.ReadStream(t.Context(), tenant, stream, domain.StreamQuery{From: 1, Limit: 10})
		must(r, err)
		got, err := trial.Run(t.Context(), id, logged, &TrialCommand{Name: command.Name, Data: command.Data, Metadata: command.Metadata})
		if got.Failure != nil {
			err = got.Failure
		}
		if code(err) != code(wantErr) || err != nil && err.Error() != wantErr.Error() {
			r.Fatalf("the trial gives %v, the service %v", err, wantErr)
		}
		if err == nil && !reflect.DeepEqual(*got.Outcome, want) {
			r.Fatalf("the trial decides %+v, the service %+v", *got.Outcome, want)
		}
		for _, step := range got.Steps {
			state, err := c.states.Load(t.Context(), tenant, stream, At{Version: step.Event.Version})
			must(r, err)
			wantState(r, state, step.Event.Version, string(step.State))
		}
	})
}

func TestTrialsAreBounded(t *testing.T) {
	t.Parallel()
	_, err := NewTrial(t.Context(), Definition{Category: "a", On: map[string]string{"A": "stat"}}, nil)
	if code(err) != domain.CodeInvalidDefinition {
		t.Errorf("a wrong definition gives %v", err)
	}
	event := func(n int, data string) domain.Event {
		return domain.Event{Stream: "account-1", Version: int64(n), Position: int64(n), Type: "Deposited", Data: json.RawMessage(data)}
	}
	trial, err := NewTrial(t.Context(), account(), nil)
	must(t, err)
	if _, err := trial.Run(t.Context(), "1", make([]domain.Event, MaxTrialEvents+1), nil); code(err) != domain.CodeInvalidRequest {
		t.Errorf("too many events give %v", err)
	}
	var large []domain.Event
	for n := range 10 {
		large = append(large, event(n+1, `{"amount":1,"x":"`+strings.Repeat("x", 1<<20)+`"}`))
	}
	if _, err := trial.Run(t.Context(), "1", large, nil); code(err) != domain.CodeTooLarge {
		t.Errorf("too large events give %v", err)
	}
	got, err := trial.Run(t.Context(), "1", []domain.Event{event(1, `{"amount":2}`), event(2, `{}`), event(3, `{"amount":2}`)}, &TrialCommand{Name: "Close"})
	must(t, err)
	if len(got.Steps) != 2 || got.Steps[1].Fault == nil || got.Outcome != nil || string(got.State) != `{"balance":2,"open":true}` {
		t.Errorf("after a fault: %+v", got)
	}
	// After events that are missing, a command's version is that of the log.
	got, err = trial.Run(t.Context(), "1", []domain.Event{event(5, `{"amount":2}`), event(7, `{"amount":2}`)}, &TrialCommand{Name: "Close"})
	must(t, err)
	if got.Outcome.Version != 8 {
		t.Errorf("after version 7 the outcome is %+v", got.Outcome)
	}
	costly, err := NewTrial(t.Context(), Definition{Category: "account", On: map[string]string{
		"*": `{'done': lists.range(900).all(x, lists.range(100).all(y, x + y >= 0))}`,
	}}, nil)
	must(t, err)
	costly.requests = budget.New(budget.Limits{Steps: 2_000_000, Time: time.Hour})
	var many []domain.Event
	for n := range 90 {
		many = append(many, event(n+1, `{}`))
	}
	if _, err := costly.Run(t.Context(), "1", many, nil); code(err) != domain.CodeTooCostly {
		t.Errorf("a costly fold gives %v", err)
	}
	costly, err = NewTrial(t.Context(), Definition{Category: "account", On: map[string]string{"*": `{'n': 1}`}, Commands: map[string]CommandDefinition{
		"C": {Emit: []Emission{{Type: "A", Data: `lists.range(900).all(x, lists.range(900).all(y, x + y >= 0))`}}},
	}}, nil)
	must(t, err)
	costly.requests = budget.New(budget.Limits{Steps: 200_000, Time: time.Hour})
	got, err = costly.Run(t.Context(), "1", many[:3], &TrialCommand{Name: "C"})
	if err != nil || code(got.Failure) != domain.CodeTooCostly || len(got.Steps) != 3 || string(got.State) != `{"n":1}` || got.Outcome != nil {
		t.Errorf("a costly command gives %+v, %v", got, err)
	}
}

// Long values are clipped, and fields that the data lacks are missing.
func TestExplainedValuesAreClipped(t *testing.T) {
	t.Parallel()
	trial, err := NewTrial(t.Context(), Definition{
		Category: "a", On: map[string]string{"A": "state"},
		Commands: map[string]CommandDefinition{"C": {
			Require: []Requirement{
				{If: "command.long.size() > 0 && command.list.size() > 0 && command.short == null", Reject: "r"},
				{If: "has(command.none.inner) || state.?status.orValue(0) == 1", Reject: "none", Message: `"of " + id`},
				{If: "false", Reject: "never"},
			},
			Emit: []Emission{{Type: "A", Data: "1"}},
		}},
	}, nil)
	must(t, err)
	long := strings.Repeat("é", 2000)
	got, err := trial.Run(t.Context(), "1", nil, &TrialCommand{Name: "C", Data: json.RawMessage(`{"long":"` + long + `","list":[` + strings.Repeat("1,", 1000) + `1],"short":null,"none":{}}`)})
	must(t, err)
	rules := got.Outcome.Rules
	if len(rules) != 2 || !rules[0].Holds || rules[1].Holds || rules[1].Rule != 1 || got.Outcome.Rejected.Code != "none" {
		t.Fatalf("got %+v", got.Outcome)
	}
	values := rules[0].Values
	var text string
	if len(values) != 3 || !values[0].Clipped || !values[1].Clipped || values[2].Clipped || string(values[2].Value) != "null" ||
		json.Unmarshal(values[0].Value, &text) != nil || len(text) > maxShownBytes || !strings.HasPrefix(`"`+long, text) {
		t.Errorf("got %.3000v", values)
	}
	if missing := strings.Join(rules[1].Missing, " "); missing != "command.none.inner state.status" || len(rules[1].Values) != 0 {
		t.Errorf("missing is %s, values are %v", missing, rules[1].Values)
	}
}
