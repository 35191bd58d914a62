package tables_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// The property: whatever several processes append to some streams at once, with repeats, wrong expectations and
// connections cut at commit, each stream behaves as one list that is appended to by one client after the other
// (linearisable), and the log as a whole has neither gap nor double.

// listInput is an operation on one stream's list.
type listInput struct {
	read     bool
	expected domain.Expected
	ids      string // of the events to append, one letter group of fixed width each
}

// listOutput is its outcome.
type listOutput struct {
	unknown  bool
	conflict bool
	version  int64  // behind the last event, or what a conflict says
	ids      string // what was read
}

// idWidth is the width of an event's id in a list.
const idWidth = 36

var listModel = porcupine.NondeterministicModel{
	Init: func() []any { return []any{""} },
	Step: func(state, input, output any) []any {
		list, in, out := state.(string), input.(listInput), output.(listOutput)
		length := int64(len(list) / idWidth)
		if in.read {
			if out.unknown || out.ids == list {
				return []any{list}
			}
			return nil
		}
		if at := strings.Index(list, in.ids); at >= 0 { // a repeat
			if out.unknown || !out.conflict && out.version == int64((at+len(in.ids))/idWidth) {
				return []any{list}
			}
			return nil
		}
		after := list + in.ids
		switch holds := in.expected.Holds(length); {
		case out.unknown && holds:
			return []any{list, after}
		case out.unknown, !holds && out.conflict && out.version == length:
			return []any{list}
		case holds && !out.conflict && out.version == int64(len(after)/idWidth):
			return []any{after}
		}
		return nil
	},
	Equal: func(a, b any) bool { return a == b },
}

// history is what clients did, by stream.
type history struct {
	mu         sync.Mutex
	operations map[string][]porcupine.Operation
	began      time.Time
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

func (h *history) add(stream string, client int, call int64, in listInput, out listOutput) {
	done := h.now()
	if out.unknown {
		done = math.MaxInt64 // it may take effect at any time from its call on
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.operations[stream] = append(h.operations[stream], porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: done})
}

func TestLogAgainstModel(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	const (
		processes = 3
		clients   = 12
		rounds    = 60
		streams   = 5
	)
	var stores []*tables.Tables
	for range processes {
		network := pgtest.NewNetwork(t, db)
		for _, cut := range []func(string, func() bool) pgtest.Fault{pgtest.BeforeCommit, pgtest.AfterCommit} {
			network.On(cut("manifold_insert_event", func() bool { return rand.IntN(25) == 0 }))
		}
		stores = append(stores, openThrough(t, db, network, nil))
	}
	direct := tablestest.OpenAgain(t, db)
	tenant := domain.NewTenantID()
	h := &history{operations: make(map[string][]porcupine.Operation), began: time.Now()}
	acknowledged := make([][]domain.AppendedEvent, clients)

	ctx, stop := context.WithCancel(t.Context())
	followed := make(chan int64, 1)
	go func() { followed <- follow(t, ctx, direct, tenant) }()

	var wg sync.WaitGroup
	for client := range clients {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(client), 7))
			for range rounds {
				s := stores[random.IntN(processes)]
				switch random.IntN(5) {
				case 0:
					stream := fmt.Sprintf("list-%d", random.IntN(streams))
					call := h.now()
					events, err := s.ReadStream(ctx, tenant, stream, domain.StreamQuery{Limit: 1 << 20})
					if err != nil {
						continue // the connection was cut, for the last of some times
					}
					var ids strings.Builder
					for _, e := range events {
						ids.WriteString(e.ID.String())
					}
					h.add(stream, client, call, listInput{read: true}, listOutput{ids: ids.String()})
				default:
					appendRandomly(t, h, random, client, stores, tenant, streams, &acknowledged[client])
				}
			}
		})
	}
	wg.Wait()
	events := tablestest.WholeLog(t, direct, tenant)
	stop()
	if last := tablestest.Receive(t, followed, "the follower"); last > int64(len(events)) {
		t.Errorf("the follower has seen position %d of %d", last, len(events))
	}

	at := make(map[domain.EventID]domain.Event, len(events))
	for _, e := range events {
		at[e.ID] = e
	}
	for _, appended := range acknowledged {
		for _, e := range appended {
			if there := at[e.ID]; there.Position != e.Position || there.Version != e.Version {
				t.Errorf("acknowledged %+v, and there is %+v", e, there)
			}
		}
	}
	for stream, operations := range h.operations {
		result, _ := porcupine.CheckOperationsVerbose(listModel.ToModel(), operations, 20*time.Second)
		if result != porcupine.Ok {
			t.Errorf("the %d operations on %s are not linearisable: %s", len(operations), stream, result)
		}
	}
	t.Logf("%d events", len(events))
}

// appendRandomly sends one request, of one or several streams, and sometimes repeats it at the same time and later.
func appendRandomly(t *testing.T, h *history, random *rand.Rand, client int, stores []*tables.Tables, tenant domain.TenantID, streams int, acknowledged *[]domain.AppendedEvent) {
	names := random.Perm(streams)[:1+random.IntN(2)]
	var a domain.Append
	inputs := make([]listInput, len(names))
	for i, name := range names {
		expected := domain.Any
		switch random.IntN(4) {
		case 0:
			if head, err := stores[0].VersionAt(t.Context(), tenant, fmt.Sprintf("list-%d", name), time.Now().Add(time.Hour)); err == nil {
				expected = domain.Expected(head)
			}
		case 1:
			expected = domain.Exists
		}
		var events []domain.NewEvent
		var ids strings.Builder
		for range 1 + random.IntN(3) {
			id := domain.NewEventID()
			ids.WriteString(id.String())
			events = append(events, domain.NewEvent{ID: id, Type: "Added", Data: json.RawMessage(`{}`)})
		}
		a.Streams = append(a.Streams, domain.StreamAppend{Stream: fmt.Sprintf("list-%d", name), Expected: expected, Events: events})
		inputs[i] = listInput{expected: expected, ids: ids.String()}
	}
	if random.IntN(3) == 0 {
		// The first stream occurs again: in its list, that is one append.
		id := domain.NewEventID()
		inputs[0].ids += id.String()
		a.Streams = append(a.Streams, domain.StreamAppend{
			Stream: a.Streams[0].Stream, Expected: domain.Any, Events: []domain.NewEvent{{ID: id, Type: "Added", Data: json.RawMessage(`{}`)}},
		})
	}
	var mu sync.Mutex
	send := func() {
		s := stores[rand.IntN(len(stores))]
		call := h.now()
		appended, err := s.Append(t.Context(), tenant, a)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			versions := make(map[string]int64)
			for _, stream := range appended.Streams {
				versions[stream.Stream] = stream.Version
				*acknowledged = append(*acknowledged, stream.Events...)
			}
			for i, in := range inputs {
				stream := a.Streams[i].Stream
				h.add(stream, client, call, in, listOutput{version: versions[stream]})
			}
			return
		}
		switch tablestest.CodeOf(err) {
		case domain.CodeVersionConflict:
			problem := tablestest.Problem(t, err, domain.CodeVersionConflict)
			i := slices.IndexFunc(a.Streams, func(s domain.StreamAppend) bool { return s.Stream == problem.Stream })
			h.add(problem.Stream, client, call, inputs[i], listOutput{conflict: true, version: *problem.CurrentVersion})
		case domain.CodeOutcomeUnknown:
			for i, in := range inputs {
				h.add(a.Streams[i].Stream, client, call, in, listOutput{unknown: true})
			}
		default:
			t.Errorf("append: %v", err)
		}
	}
	var wg sync.WaitGroup
	for range 1 + random.IntN(6)/5 { // now and then twice at the same time
		wg.Go(send)
	}
	wg.Wait()
	if random.IntN(4) == 0 {
		send()
	}
}

// follow reads the log from its start until ctx ends, and fails the test where a position is left out. It returns the
// last one seen.
func follow(t *testing.T, ctx context.Context, s *tables.Tables, tenant domain.TenantID) (last int64) {
	for ctx.Err() == nil {
		events, err := s.ReadLog(ctx, tenant, domain.LogQuery{From: last + 1, Limit: 1 + rand.IntN(20)})
		if err != nil {
			continue
		}
		for _, e := range events {
			if e.Position != last+1 {
				t.Errorf("a reader at %d got position %d", last, e.Position)
			}
			last = e.Position
		}
	}
	return last
}
