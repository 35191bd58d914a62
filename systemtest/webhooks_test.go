package systemtest

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"golang.org/x/sync/errgroup"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// hooksDelay is the delay of the webhook "later".
const hooksDelay = 2 * time.Second

// hook is the endpoint of one webhook, with the rules for what it should receive.
type hook struct {
	name       string
	definition string
	wants      func(client.Event) bool
	ordered    bool // a stream's events in their order, one at a time
	delayed    bool
	once       bool // of the events with one n it wants one
	document   bool // each event comes with the document that it is in
	plain      bool // it never refuses

	verifier *standardwebhooks.Webhook
	mu       sync.Mutex
	seen     map[client.UUID]int          // requests, by event
	taken    map[client.UUID]client.Event // that were answered with 200
	order    map[string][]int64           // versions as they were taken, by stream
	under    map[string]int               // requests that are under way, by stream
	faults   []string                     // violations that no endpoint should see
	killed   *atomic.Bool                 // a process was killed: accepted events may be sent again
	replayed atomic.Pointer[map[client.UUID]int]
}

func (h *hook) fault(format string, values ...any) {
	h.faults = append(h.faults, h.name+": "+fmt.Sprintf(format, values...))
}

// hookMessage is the body of a request.
type hookMessage struct {
	Type      string
	Timestamp time.Time
	Data      struct {
		Event    client.Event
		Document *struct {
			ID      string `json:"id"`
			Version int64
			Data    json.RawMessage
		}
	}
}

// ServeHTTP acts as an endpoint: it verifies the request, and accepts the event or not.
func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender was killed
	}
	var message hookMessage
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.verifier.Verify(body, r.Header); err != nil {
		h.fault("a signature: %v", err)
		return
	}
	if err := json.Unmarshal(body, &message); err != nil {
		h.fault("a body: %v", err)
		return
	}
	event := message.Data.Event
	if id := r.Header.Get("webhook-id"); id != event.Id {
		h.fault("webhook-id is %s, and the event %s", id, event.Id)
	}
	if again := h.replayed.Load(); again != nil {
		(*again)[event.Id]++
		return
	}
	if h.delayed && time.Since(event.RecordedAt) < hooksDelay {
		h.fault("position %d came %s behind its recording", event.Position, time.Since(event.RecordedAt))
	}
	if document := message.Data.Document; h.document && (document == nil || document.Version < event.Position || document.ID != event.Stream) {
		h.fault("position %d came with the document %+v", event.Position, document)
	}
	h.seen[event.Id]++
	if _, taken := h.taken[event.Id]; taken {
		if !h.killed.Load() {
			h.fault("position %d came again, though it was taken", event.Position)
		}
		return
	}
	if h.ordered {
		if h.under[event.Stream]++; h.under[event.Stream] > 1 && !h.killed.Load() {
			h.fault("two events of %s are under way", event.Stream)
		}
		defer func() { h.under[event.Stream]-- }()
	}
	// If processes are killed, an event's first request may belong to a later attempt. A refusal would then delay the
	// next attempt by minutes.
	if !h.plain && !h.killed.Load() && h.seen[event.Id] == 1 {
		switch crc32.ChecksumIEEE([]byte(event.Id)) % 40 {
		case 0:
			w.WriteHeader(http.StatusInternalServerError)
			return
		case 1:
			panic(http.ErrAbortHandler) // the connection breaks
		case 2: // it takes its time
			h.mu.Unlock()
			<-time.After(100 * time.Millisecond)
			h.mu.Lock()
		}
	}
	h.taken[event.Id] = event
	h.order[event.Stream] = append(h.order[event.Stream], event.Version)
}

// end returns what is wrong with the received requests, after all should have arrived.
func (h *hook) end(events []client.Event) (faults []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wanted := 0
	sent := make(map[string]int) // events by their n, which one that wants each once was sent
	for _, event := range events {
		wants := h.wants(event)
		_, taken := h.taken[event.Id]
		if h.once {
			var data struct{ N json.Number }
			_ = json.Unmarshal(event.Data, &data) // it was made here
			if sent[data.N.String()] += min(h.seen[event.Id], 1); sent[data.N.String()] > 1 {
				h.fault("position %d came, and another one of its id before", event.Position)
			}
			wants = taken
		}
		switch {
		case wants && !taken:
			h.fault("position %d (%s, version %d) never came", event.Position, event.Stream, event.Version)
		case !wants && h.seen[event.Id] > 0:
			h.fault("position %d came, and is not wanted", event.Position)
		}
		if wants {
			wanted++
		}
	}
	for n, events := range sent {
		if events == 0 {
			h.fault("of those with the id %s none came", n)
		}
	}
	if wanted == 0 {
		h.fault("no event was wanted: nothing was tried")
	}
	for stream, versions := range h.order {
		if h.ordered && !slices.IsSorted(versions) {
			h.fault("%s came in the order %v", stream, versions)
		}
	}
	return h.faults
}

// hooks returns endpoints of all kinds.
func hooks() []*hook {
	everything := func(client.Event) bool { return true }
	counted := func(event client.Event) bool { return event.Type == "Counted" }
	return []*hook{
		{name: "all", definition: `"source": {"categories": ["a", "b"]}`, wants: everything},
		{name: "in-order", definition: `"source": {"categories": ["a", "b"]}, "ordering": "stream"`, wants: everything, ordered: true},
		{name: "some", definition: `"source": {"categories": ["a"]}, "types": ["Counted"], "filter": "event.data.n % 2 == 0"`, wants: func(event client.Event) bool {
			var data struct{ N int64 }
			return event.Stream[0] == 'a' && counted(event) && json.Unmarshal(event.Data, &data) == nil && data.N%2 == 0
		}},
		{name: "later", definition: fmt.Sprintf(`"source": {"categories": ["a", "b"]}, "delay": %v`, hooksDelay.Seconds()), wants: everything, delayed: true, plain: true},
		{name: "first", definition: `"source": {"categories": ["a", "b"]}, "dedupe": {"id": "string(event.data.n)", "window": 3600}`, wants: everything, once: true},
		{name: "folded", definition: `"source": {"projection": "sums"}`, wants: counted, document: true},
	}
}

// hookWorkload appends events while webhooks send them.
type hookWorkload struct {
	t        *testing.T
	user     user
	hooks    []*hook
	killed   atomic.Bool
	appended atomic.Int64
}

func newHookWorkload(t *testing.T, at site) *hookWorkload {
	_, u := newTenant(t, newUser(t, at, operatorKey), "acme")
	w := &hookWorkload{t: t, user: u, hooks: hooks()}
	u.must(t, http.StatusCreated, nil, "POST", "/v1/projections", []byte(`{"name": "sums", "source": {"categories": ["a", "b"]},
		"initial": {"sum": 0}, "on": {"Counted": "{\"sum\": doc.sum + event.data.n}"}}`))
	for _, h := range w.hooks {
		h.seen, h.taken = make(map[client.UUID]int), make(map[client.UUID]client.Event)
		h.order, h.under, h.killed = make(map[string][]int64), make(map[string]int), &w.killed
		h.mu.Lock() // until its secret is known
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		var made client.Webhook
		u.must(t, http.StatusCreated, &made, "PUT", "/v1/webhooks/"+h.name, []byte(fmt.Sprintf(`{%s, "url": %q, "from": "start", "timeout": 15}`, h.definition, server.URL)))
		verifier, err := standardwebhooks.NewWebhook(made.Secrets[0].Secret)
		if err != nil {
			t.Fatal(err)
		}
		h.verifier = verifier
		h.mu.Unlock()
	}
	// A dead endpoint, and one that wants no more events, run at the same time.
	dead := httptest.NewServer(nil)
	dead.Close()
	u.must(t, http.StatusCreated, nil, "PUT", "/v1/webhooks/dead", []byte(fmt.Sprintf(`{"source": {"categories": ["a"]}, "url": %q}`, dead.URL)))
	gone := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	t.Cleanup(gone.Close)
	u.must(t, http.StatusCreated, nil, "PUT", "/v1/webhooks/gone", []byte(fmt.Sprintf(`{"source": {"categories": ["a"]}, "url": %q}`, gone.URL)))
	return w
}

// appendSome appends to streams of its own until quit ends.
func (w *hookWorkload) appendSome(ctx, quit context.Context, n int, r *rand.Rand) error {
	for i := 0; quit.Err() == nil; i++ {
		body := client.StreamAppend{Stream: fmt.Sprintf("%c-%d-%d", 'a'+rune(r.IntN(2)), n, r.IntN(8))}
		for k := range 1 + r.IntN(3) {
			id := eventID("hooks", n, i, k)
			body.Events = append(body.Events, client.NewEvent{Id: id, Type: []string{"Counted", "Noted"}[r.IntN(2)], Data: []byte(fmt.Sprintf(`{"n":%d}`, r.IntN(50)))})
		}
		a, err := w.user.call(ctx, n, "POST", "/v1/append", client.AppendRequest{Streams: []client.StreamAppend{body}})
		if err != nil {
			return err
		}
		if a.status/100 != 2 {
			return fmt.Errorf("append: %s", a)
		}
		w.appended.Add(int64(len(body.Events)))
		select {
		case <-time.After(time.Duration(r.IntN(20)) * time.Millisecond):
		case <-quit.Done():
		}
	}
	return nil
}

// run appends, with disturb running concurrently. Then every event must arrive, and arrive again in a replay.
func (w *hookWorkload) run(r *rand.Rand, disturb func(await func(events int64))) {
	t := w.t
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	quit, calm := context.WithCancel(ctx)
	var appenders errgroup.Group
	for n := range 2 {
		chance := rand.New(rand.NewPCG(r.Uint64(), 0))
		appenders.Go(func() error {
			err := w.appendSome(ctx, quit, n, chance)
			if err != nil {
				cancel() // so that nobody waits in vain
			}
			return err
		})
	}
	disturb(func(events int64) {
		for before := w.appended.Load(); w.appended.Load() < before+events && ctx.Err() == nil; {
			<-time.After(10 * time.Millisecond)
		}
	})
	calm()
	if err := appenders.Wait(); err != nil {
		t.Fatal("an appender: ", err)
	}
	var page client.EventList
	var events []client.Event
	for from := 1; ; from = len(events) + 1 {
		page = client.EventList{}
		w.user.must(t, http.StatusOK, &page, "GET", fmt.Sprintf("/v1/streams/$all?from=%d&count=1000", from), nil)
		events = append(events, page.Events...)
		if len(page.Events) == 0 {
			break
		}
	}
	for _, h := range w.hooks {
		// The place of a projection, and so of its webhooks, is where the last event was that it has folded.
		last := len(events) - 1
		for last > 0 && !h.wants(events[last]) {
			last--
		}
		w.settled(ctx, "webhook."+h.name, events[last].Position)
		for i, fault := range h.end(events) {
			if i < 10 {
				t.Error(fault)
			}
		}
		t.Logf("%s: %d of %d events", h.name, len(h.taken), len(events))
	}
	var status client.Webhook
	w.user.must(t, http.StatusOK, &status, "GET", "/v1/webhooks/gone", nil)
	if status.Disabled == nil {
		t.Error("a webhook whose endpoint answers 410 continues")
	}
	w.replay(ctx, w.hooks[0], events)
}

// replay has a range sent again to an endpoint.
func (w *hookWorkload) replay(ctx context.Context, h *hook, events []client.Event) {
	from, to := len(events)/4, len(events)/2
	again := make(map[client.UUID]int)
	h.replayed.Store(&again)
	w.user.must(w.t, http.StatusAccepted, nil, "POST", "/v1/webhooks/"+h.name+"/replay", []byte(fmt.Sprintf(`{"from": %d, "to": %d}`, from, to)))
	w.settled(ctx, "replay."+h.name, int64(to))
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, event := range events[:to+1] {
		inside := int64(from) <= event.Position && event.Position <= int64(to)
		if n := again[event.Id]; inside && n == 0 || !inside && n > 0 {
			w.t.Errorf("a replay from %d to %d has sent position %d %d times", from, to, event.Position, n)
		}
	}
}

// settled waits until a webhook's group has nothing left to do up to a position.
func (w *hookWorkload) settled(ctx context.Context, group string, to int64) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	for {
		var status client.Subscription
		w.user.must(w.t, http.StatusOK, &status, "GET", "/v1/subscriptions/"+group, nil)
		p := status.Progress[0]
		if p.InFlight == 0 && p.Retrying == 0 && p.Oldest == nil && p.ReadTo >= to {
			if p.DeadLetters > 0 {
				w.t.Errorf("%s has %d dead letters", group, p.DeadLetters)
			}
			return
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			w.t.Fatalf("%s does not come to an end: %+v of %d", group, p, to)
		}
	}
}

func TestWebhooks(t *testing.T) {
	t.Parallel()
	r := chance(t)
	c := configuration(pgtest.Database(t))
	c.Webhooks.Allow, c.Webhooks.AllowHTTP = []string{"127.0.0.0/8"}, true
	newHookWorkload(t, inside(t, c)).run(r, func(await func(int64)) { await(400) })
}

// Two processes send, and are killed again and again.
func TestWebhooksSurviveKilledProcesses(t *testing.T) {
	t.Parallel()
	r := chance(t)
	db := pgtest.Database(t)
	allow := []string{"MANIFOLD_WEBHOOKS_ALLOW=127.0.0.0/8", "MANIFOLD_WEBHOOKS_ALLOW_HTTP=true"}
	both := serveTwo(t, db, allow...)
	w := newHookWorkload(t, both)
	w.killed.Store(true)
	w.run(r, func(await func(int64)) {
		for range 4 {
			await(int64(20 + r.IntN(100)))
			one := both[r.IntN(2)]
			one.kill()
			await(int64(r.IntN(60)))
			one.start()
		}
	})
}
