// Package outboxtest is the specification of outbox.Store as a test: run it with Run. Every store of Manifold passes
// it, and your own should too.
package outboxtest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/outbox"
)

// Box is an empty outbox for one test.
type Box struct {
	Store outbox.Store
	// Add adds events in a transaction of the producer.
	Add func(ctx context.Context, events ...outbox.Event) error
}

// patience is how long a test waits for an expected event.
const patience = 20 * time.Second

// long is a lease that does not expire within a test.
const long = time.Hour

// Run runs the specification. open is called for each test, possibly concurrently.
func Run(t *testing.T, open func(t *testing.T) Box) {
	for name, test := range map[string]func(t *testing.T, b *box){
		"rows":     testRows,
		"order":    testOrder,
		"limit":    testLimit,
		"lease":    testLease,
		"settle":   testSettle,
		"refused":  testRefused,
		"stale":    testStaleClaim,
		"keep":     testKeep,
		"twice":    testTwice,
		"drainers": testDrainers,
		"random":   testRandom,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &box{t: t, Box: open(t)})
		})
	}
}

// box is a Box in one test.
type box struct {
	Box
	t testing.TB
}

// add adds an event for each "key:payload"; ":payload" has no key.
func (b *box) add(specs ...string) {
	b.t.Helper()
	var events []outbox.Event
	for _, spec := range specs {
		key, payload, _ := strings.Cut(spec, ":")
		events = append(events, outbox.Event{Topic: "t", Key: key, Payload: json.RawMessage(payload)})
	}
	if err := b.Add(b.t.Context(), events...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *box) claim(limit int, lease time.Duration) outbox.Claim {
	b.t.Helper()
	claim, err := b.Store.Claim(b.t.Context(), limit, lease)
	if err != nil {
		b.t.Fatal(err)
	}
	return claim
}

// claimSoon claims until there is something.
func (b *box) claimSoon(limit int, lease time.Duration) outbox.Claim {
	b.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		if claim := b.claim(limit, lease); len(claim.Rows) > 0 {
			return claim
		}
		if time.Now().After(deadline) {
			b.t.Fatal("nothing can be claimed")
		}
	}
}

func (b *box) settle(claim outbox.Claim, outcome outbox.Outcome, keep bool) {
	b.t.Helper()
	if err := b.Store.Settle(b.t.Context(), claim, outcome, keep); err != nil {
		b.t.Fatal(err)
	}
}

// want fails the test unless a claim has rows with these payloads, in this order. The order of different streams among
// one another is free.
func (b *box) want(claim outbox.Claim, payloads ...string) {
	b.t.Helper()
	var got []string
	for _, row := range claim.Rows {
		got = append(got, payloadOf(row))
	}
	if !slices.Equal(got, payloads) {
		b.t.Fatalf("the claim has %v, want %v", got, payloads)
	}
}

func payloadOf(row outbox.Row) string {
	var event outbox.Event
	if err := json.Unmarshal(row.Message, &event); err != nil {
		return err.Error()
	}
	return string(event.Payload)
}

// Rows are returned as they were added.
func testRows(t *testing.T, b *box) {
	id := outbox.NewID()
	event := outbox.Event{
		ID: id, Topic: "order", Key: "1001", Type: "OrderPaid", Payload: json.RawMessage(`{"note":"<é>","n":1.50}`), Headers: map[string]string{"region": "eu"},
		Tags: []string{"a", "b"}, CausedBy: outbox.Causes{outbox.NewID(), outbox.NewID()}, SID: "s-1", OccurredAt: time.Date(2026, 3, 1, 9, 30, 0, 123456000, time.UTC),
	}
	before := time.Now().Add(-time.Minute)
	if err := b.Add(t.Context(), event, outbox.Event{Topic: "ping", Payload: json.RawMessage("null")}); err != nil {
		t.Fatal(err)
	}
	claim := b.claim(10, long)
	if len(claim.Rows) != 2 {
		t.Fatalf("the claim is %+v", claim)
	}
	row := claim.Rows[0]
	want, err := outbox.RowOf(event)
	if err != nil {
		t.Fatal(err)
	}
	if row.ID != id || row.Stream != "order-1001" || string(row.Message) != string(want.Message) || row.Attempts != 0 || row.AddedAt.Before(before) || row.AddedAt.After(time.Now().Add(time.Minute)) {
		t.Errorf("the row is %+v, %s", row, row.Message)
	}
	if second := claim.Rows[1]; second.Stream != "ping-"+second.ID {
		t.Errorf("the second row is %+v", second)
	}
	if lag, err := b.Store.Lag(t.Context()); err != nil || lag.Waiting != 2 || lag.Oldest < 0 || lag.Oldest > time.Minute {
		t.Errorf("the lag is %+v, %v", lag, err)
	}
}

// Nobody gets rows after a row that another claim has leased.
func testOrder(t *testing.T, b *box) {
	b.add("a:1", "b:2", "a:3")
	first := b.claim(1, long)
	b.want(first, "1")
	b.add("a:4", "c:5")
	second := b.claim(10, long)
	b.want(second, "2", "5")
	b.want(b.claim(10, long))
	b.settle(first, outbox.Outcome{Published: first.Rows}, false)
	b.want(b.claim(10, long), "3", "4")
	b.settle(second, outbox.Outcome{Published: second.Rows}, false)
	b.want(b.claim(10, long))
}

// A claim has as many rows as requested, the oldest first, and a long stream hides no other.
func testLimit(t *testing.T, b *box) {
	var many []string
	for i := range 30 {
		many = append(many, fmt.Sprint("a:", i))
	}
	b.add(many...)
	b.add("b:100", ":101")
	first := b.claim(5, long)
	b.want(first, "0", "1", "2", "3", "4")
	b.want(b.claim(5, long), "100", "101")
	b.settle(first, outbox.Outcome{Published: first.Rows[:2]}, false)
	b.want(b.claim(4, long), "2", "3", "4", "5")
}

// The rows of a dead drainer are leased again when its lease expires.
func testLease(t *testing.T, b *box) {
	b.add("a:1", "a:2", ":3")
	b.want(b.claim(10, time.Millisecond), "1", "2", "3")
	got := map[string]bool{}
	for len(got) < 3 {
		for _, row := range b.claimSoon(10, long).Rows {
			if payload := payloadOf(row); got[payload] || payload == "2" && !got["1"] {
				t.Fatalf("%s comes when there were %v", payload, got)
			} else {
				got[payload] = true
			}
		}
	}
	b.want(b.claim(10, long))
}

// A published row is never returned again, and the others are returned at once.
func testSettle(t *testing.T, b *box) {
	b.add("a:1", "a:2", "b:3", "a:4")
	claim := b.claim(10, long)
	b.want(claim, "1", "2", "3", "4")
	b.settle(claim, outbox.Outcome{Published: []outbox.Row{claim.Rows[0], claim.Rows[2]}}, false)
	claim = b.claim(10, long)
	b.want(claim, "2", "4")
	b.settle(claim, outbox.Outcome{}, false)
	b.want(b.claim(10, long), "2", "4")
}

// A refused row blocks only its own stream, for as long as it rests.
func testRefused(t *testing.T, b *box) {
	b.add("a:1", "a:2", "b:3")
	claim := b.claim(10, long)
	b.settle(claim, outbox.Outcome{Refused: []outbox.Refusal{{Row: claim.Rows[0], Reason: "no \x00\xff", Pause: time.Hour}}}, false)
	b.add("a:4")
	claim = b.claim(10, long)
	b.want(claim, "3")
	b.settle(claim, outbox.Outcome{Refused: []outbox.Refusal{{Row: claim.Rows[0], Reason: "no", Pause: time.Millisecond}}}, false)
	claim = b.claimSoon(10, long)
	b.want(claim, "3")
	if claim.Rows[0].Attempts != 1 {
		t.Errorf("there were %d attempts", claim.Rows[0].Attempts)
	}
	if lag, err := b.Store.Lag(t.Context()); err != nil || lag.Waiting != 4 {
		t.Errorf("the lag is %+v, %v", lag, err)
	}
}

// Settling a claim whose lease has expired marks what was published, and takes nothing from the current claim.
func testStaleClaim(t *testing.T, b *box) {
	b.add("a:1", "a:2")
	stale := b.claim(10, time.Millisecond)
	b.want(stale, "1", "2")
	now := b.claimSoon(10, long)
	b.want(now, "1", "2")
	b.settle(stale, outbox.Outcome{Published: stale.Rows[:1], Refused: []outbox.Refusal{{Row: stale.Rows[1], Reason: "no", Pause: time.Millisecond}}}, false)
	b.want(b.claim(10, long))
	b.settle(now, outbox.Outcome{}, false)
	claim := b.claim(10, long)
	b.want(claim, "2")
	if claim.Rows[0].Attempts != 0 {
		t.Errorf("there were %d attempts", claim.Rows[0].Attempts)
	}
}

// Published rows are kept if requested, and swept when their time is over. They are never counted.
func testKeep(t *testing.T, b *box) {
	b.add("a:1", "a:2", "a:3")
	claim := b.claim(2, long)
	b.settle(claim, outbox.Outcome{Published: claim.Rows}, true)
	b.want(b.claim(10, long), "3")
	if lag, err := b.Store.Lag(t.Context()); err != nil || lag.Waiting != 1 {
		t.Errorf("the lag is %+v, %v", lag, err)
	}
	for _, step := range []struct {
		keep           time.Duration
		limit, removed int
	}{{time.Hour, 10, 0}, {-time.Second, 1, 1}, {-time.Second, 10, 1}, {-time.Second, 10, 0}} {
		if removed, err := b.Store.Sweep(t.Context(), step.keep, step.limit); err != nil || removed != step.removed {
			t.Errorf("of what is older than %s %d are removed, %v; want %d", step.keep, removed, err, step.removed)
		}
	}
}

// An id is in the outbox only once, and an event that would never be accepted is not added.
func testTwice(t *testing.T, b *box) {
	event := outbox.Event{ID: outbox.NewID(), Topic: "t", Payload: json.RawMessage("1")}
	if err := b.Add(t.Context(), event); err != nil {
		t.Fatal(err)
	}
	for what, wrong := range map[string]outbox.Event{
		"the same id":     event,
		"a topic with -":  {Topic: "a-b", Payload: json.RawMessage("1")},
		"no JSON":         {Topic: "t", Payload: json.RawMessage("x")},
		"no payload":      {Topic: "t"},
		"a key with a /":  {Topic: "t", Key: "a/b", Payload: json.RawMessage("1")},
		"an id of no use": {Topic: "t", ID: "x", Payload: json.RawMessage("1")},
	} {
		if err := b.Add(t.Context(), wrong); err == nil {
			t.Errorf("%s is added", what)
		}
	}
	if claim := b.claim(10, long); len(claim.Rows) != 1 || claim.Rows[0].ID != event.ID {
		t.Errorf("the claim is %+v", claim)
	}
}
