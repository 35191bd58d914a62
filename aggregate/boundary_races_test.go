package aggregate

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// deciding is a definition of the category a with commands as JSON.
func deciding(commands string, on map[string]string) Definition {
	parsed, err := ParseCommands(json.RawMessage(commands))
	if err != nil {
		panic(err)
	}
	return Definition{Category: "a", On: on, Commands: parsed}
}

// counts is a boundary that counts the events B with the tag t.
const counts = `{"query": [{"types": ["B"], "tags": "['t']"}], "initial": {"n": 0}, "on": {"B": "{'n': state.n + 1}"}}`

func appendTo(t testing.TB, s *watched, tenant domain.TenantID, stream string, events ...domain.NewEvent) {
	t.Helper()
	_, err := s.Append(context.Background(), tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: domain.Any, Events: events}}})
	must(t, err)
}

// An expected version needs an event in the stream, which holds it. Without one, events may go to other streams only.
func TestExpectedVersionsOfStatelessCommands(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	must(t, c.states.Put(t.Context(), tenant, deciding(`{"C": {"boundary": {"b": `+counts+`}, "emit": [{"B": "1", "stream": "'a-other'", "tags": "['t']"}]}}`, map[string]string{"*": "{'n': event.version}"})))
	if _, err := c.Send(t.Context(), tenant, Command{Stream: "a-1", Name: "C", Expected: domain.None}); code(err) != domain.CodeFaulted {
		t.Errorf("with an expected version: %v", err)
	}
	got, err := send(t, c, tenant, Command{Stream: "a-1", Name: "C"})
	if err != nil || got.Kind != Accepted || got.State != nil {
		t.Errorf("without: %+v, %v", got, err)
	}
}

// A remembered boundary or state never fails a command that would succeed on the newest one.
func TestOldBoundariesAreReadAgain(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c, other := process(t, s), process(t, s)
	must(t, c.states.Put(t.Context(), tenant, deciding(`{
		"Far": {"boundary": {"b": {"query": [{"types": ["X"], "tags": "['t','u','v']"}, {"types": ["X"], "tags": "['t','u','w']"}], "on": {"X": "state"}}}, "emit": [{"A": "1"}]},
		"Name": {"emit": [{"N": "{'name': 'x'}"}]},
		"Named": {"boundary": {"b": {"query": [{"tags": "[state.name]"}], "on": {"X": "state"}}}, "emit": [{"A": "1"}]}
	}`, map[string]string{"N": "event.data"})))
	_, err := send(t, c, tenant, Command{Stream: "a-1", Name: "Far"})
	must(t, err)
	many := make([]domain.NewEvent, 1000)
	for i := range many {
		many[i] = domain.NewEvent{Type: "Other", Data: json.RawMessage(`{}`), Tags: []string{"t", "u", "v", "w"}}
	}
	appendTo(t, s, tenant, "z-1", many...)
	appendTo(t, s, tenant, "z-1", many...)
	_, err = send(t, c, tenant, Command{Stream: "a-1", Name: "Far"})
	must(t, err) // although the condition after the remembered position is too costly
	_, err = send(t, other, tenant, Command{Stream: "a-1", Name: "Name"})
	must(t, err)
	_, err = send(t, c, tenant, Command{Stream: "a-1", Name: "Named"})
	must(t, err) // although the remembered state has no name
}

// An event that the command's stream cannot fold is not appended, boundary or not.
func TestBoundariesDoNotHideFaults(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	must(t, c.states.Put(t.Context(), tenant, deciding(`{
		"C": {"boundary": {"b": `+counts+`}, "emit": [{"A": "{}"}]},
		"D": {"boundary": {"b": {"query": [{"tags": "['t']"}], "on": {"A": "{'n': event.data.none}"}}}, "emit": [{"A": "{'missing': 1}", "tags": "['t']"}]},
		"E": {"boundary": {"b": `+counts+`}, "emit": [{"B": "{}"}]}
	}`, map[string]string{"A": "{'n': event.data.missing}", "B": "{'b': 1}"})))
	for name, says := range map[string]string{"C": "on.A: ", "D": "commands.D.boundary.b.on.A: "} {
		_, err := send(t, c, tenant, Command{Stream: "a-1", Name: name})
		if code(err) != domain.CodeFaulted || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%s: %v, want %s", name, err, says)
		}
	}
	for range 2 {
		got, err := send(t, c, tenant, Command{Stream: "a-2", Name: "E", Key: "k"})
		wantOutcome(t, "with a key", got, err, Accepted, 1, `{"b":1}`)
	}
}

// A key that is sent several times at once has one outcome, although the rules forbid a second command.
func TestKeysAtOnceAreNotRejected(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	must(t, c.states.Put(t.Context(), tenant, courses()))
	var sending sync.WaitGroup
	for range 8 {
		sending.Go(func() {
			_, err := send(t, c, tenant, Command{Stream: "course-1", Name: "Rename", Key: "k", Data: json.RawMessage(`{"name": "Go"}`)})
			must(t, err)
		})
	}
	sending.Wait()
}

// Commands to many streams with one boundary wait for each other instead of failing.
func TestManyStreamsOfOneBoundary(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	must(t, c.states.Put(t.Context(), tenant, deciding(`{"C": {"boundary": {"b": `+counts+`}, "emit": [{"B": "{'n': boundary.b.n}", "tags": "['t']"}]}}`, map[string]string{"*": "state"})))
	const clients, each = 40, 5
	var sending sync.WaitGroup
	for i := range clients {
		sending.Go(func() {
			for range each {
				_, err := send(t, c, tenant, Command{Stream: fmt.Sprintf("a-%d", i), Name: "C"})
				must(t, err)
			}
		})
	}
	sending.Wait()
	events, err := s.ReadLog(t.Context(), tenant, domain.LogQuery{From: 1, Limit: 1000})
	must(t, err)
	for i, e := range events {
		if want := fmt.Sprintf(`{"n": %d}`, i); string(e.Data) != want {
			t.Fatalf("event %d was decided on %s, want %s", i, e.Data, want)
		}
	}
	if len(events) != clients*each {
		t.Errorf("there are %d events", len(events))
	}
}

// Boundaries with one query and different folds are remembered separately.
func TestBoundariesWithOneQuery(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	must(t, c.states.Put(t.Context(), tenant, deciding(`{"C": {"boundary": {"b": `+counts+`, "c": {"query": [{"types": ["B"], "tags": "['t']"}], "on": {"B": "{'m': 1}"}}}, "emit": [{"B": "1", "tags": "['t']"}]}}`, map[string]string{"*": "state"})))
	for i := range 3 {
		before := s.DB.App.Stat().AcquireCount()
		_, err := send(t, c, tenant, Command{Stream: "a-1", Name: "C"})
		must(t, err)
		if n := s.DB.App.Stat().AcquireCount() - before; i > 0 && n != 1 {
			t.Errorf("command %d used %d connections, want one, for its append", i, n)
		}
	}
}

// interfering appends an event of the boundary before each append.
type interfering struct {
	s     *watched
	count atomic.Int64
}

func (i *interfering) Append(ctx context.Context, tenant domain.TenantID, a domain.Append) (domain.Appended, error) {
	i.count.Add(1)
	secret := domain.NewEvent{Type: "B", Data: json.RawMessage(`{}`), Tags: []string{"t", "person:ann"}}
	if _, err := i.s.Append(ctx, tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: "secret-salary", Expected: domain.Any, Events: []domain.NewEvent{secret}}}}); err != nil {
		return domain.Appended{}, err
	}
	return i.s.Append(ctx, tenant, a)
}

// A command that always comes too late ends with an error that does not say which events others appended.
func TestCommandsThatAlwaysComeTooLate(t *testing.T) {
	t.Parallel()
	s, _, tenant := begin(t, false)
	c := process(t, s)
	must(t, c.states.Put(t.Context(), tenant, deciding(`{"C": {"boundary": {"b": `+counts+`}, "emit": [{"B": "1"}]}}`, map[string]string{"*": "state"})))
	others := &interfering{s: s}
	c.appends = others
	_, err := send(t, c, tenant, Command{Stream: "a-1", Name: "C"})
	problem, ok := err.(*domain.Error)
	if !ok || problem.Code != domain.CodeConditionFailed || problem.FailedCondition != nil || strings.Contains(err.Error(), "secret") || others.count.Load() != maxConflicts+1 {
		t.Errorf("after %d attempts: %+v", others.count.Load(), err)
	}
}
