package webhook_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// Appended events arrive, signed with all secrets, and are recorded.
func TestEventsArrive(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	p := start(t, db, options{idle: true})
	tenant := p.tenant(t)
	e := newEndpoint(t, always(200))
	p.add(t, tenant, "order-1", "OrderPlaced", `{"before": true}`)
	w := p.put(t, tenant, "mail", webhook.Definition{Selection: domain.Selection{Categories: []string{"order"}, Types: []string{"OrderPlaced"}, Filter: "event.data.n > 1"}, URL: e.url})
	two, err := p.webhooks.AddSecret(t.Context(), tenant, "mail", -1)
	if err != nil || len(w.Secrets) != 1 || len(two.Secrets) != 2 {
		t.Fatalf("%v: %d secrets, then %d", err, len(w.Secrets), len(two.Secrets))
	}
	// Who sends has both secrets from its beginning: a consumer that runs already has a new one a moment later.
	p.stop()
	p = start(t, db, options{})
	p.add(t, tenant, "order-1", "OrderPlaced", `{"n": 1}`)
	p.add(t, tenant, "order-1", "OrderPaid", `{"n": 2}`)
	p.add(t, tenant, "parcel-1", "OrderPlaced", `{"n": 2}`)
	want := p.add(t, tenant, "order-1", "OrderPlaced", `{"n": 2, "text": "<é\"\\"}`)[0]
	r := e.next(t)
	for i := range two.Secrets {
		receiver, err := standardwebhooks.NewWebhook(two.Secrets[i].Text())
		if err != nil {
			t.Fatal(err)
		}
		if err := receiver.Verify(r.body, r.header); err != nil {
			t.Errorf("secret %d: %v", i, err)
		}
	}
	read := r.read(t)
	if r.id() != want.ID.String() || read.Type != "OrderPlaced" || read.Data.Document != nil || read.Data.Event.ID != r.id() || read.Data.Event.Stream != "order-1" ||
		read.Data.Event.Version != 4 || read.Data.Event.Position != want.Position || string(read.Data.Event.Data) != `{"n": 2, "text": "<é\"\\"}` {
		t.Errorf("what arrived is %s", r.body)
	}
	for name, want := range map[string]string{
		"Manifold-Group": "webhook.mail", "Manifold-Attempts": "1", "Manifold-Max-Attempts": "5", "Manifold-Cursor": fmt.Sprint(want.Position - 1),
	} {
		if got := r.header.Get(name); got != want {
			t.Errorf("the header %s is %q; want %q", name, got, want)
		}
	}
	await(t, "it is not settled", func() bool {
		return p.group(t, tenant, domain.ServiceWebhook, "mail").Checkpoint == want.Position && len(p.attempts(t, tenant, "mail")) == 1
	})
	a := p.attempts(t, tenant, "mail")[0]
	if a.Outcome != webhook.OutcomeOK || a.Status != 200 || a.EventID != want.ID || a.Position != want.Position || a.Attempt < 1 || a.Type != "OrderPlaced" || !a.NextAt.IsZero() || a.Replay {
		t.Errorf("the attempt is %+v", a)
	}
	if len(e.requests) > 0 {
		t.Errorf("more has arrived: %s", e.next(t).body)
	}
}

// If all goes well, each of many events arrives once.
func TestManyEventsArriveOnce(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{})
	tenant := p.tenant(t)
	e := newEndpoint(t, always(204))
	p.put(t, tenant, "all", webhook.Definition{URL: e.url})
	const events = 2000
	var want []string
	for i := range events / 100 {
		data := make([]string, 100)
		for j := range data {
			data[j] = fmt.Sprintf(`{"n": %d}`, 100*i+j)
		}
		for _, a := range p.add(t, tenant, fmt.Sprintf("order-%d", i), "OrderPlaced", data...) {
			want = append(want, a.ID.String())
		}
	}
	var got []string
	for range events {
		got = append(got, e.next(t).id())
	}
	await(t, "not all is settled", func() bool { return p.group(t, tenant, domain.ServiceWebhook, "all").Checkpoint == events })
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) || len(e.requests) > 0 {
		t.Error("what arrived is not what was appended")
	}
}

// A rejected event is redelivered with the same id, by the schedule, and then becomes a dead letter. When it is
// replayed, it has all its attempts again.
func TestRejectedEventsAreRetried(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{})
	tenant := p.tenant(t)
	e := newEndpoint(t, func(n int, _ request) int { return 500 + n })
	p.put(t, tenant, "mail", webhook.Definition{URL: e.url})
	want := p.add(t, tenant, "order-1", "OrderPlaced", `{}`)[0]
	for range 2 {
		for range 5 {
			if r := e.next(t); r.id() != want.ID.String() {
				t.Errorf("it came as %s, not %s", r.id(), want.ID)
			}
		}
		await(t, "it is no dead letter", func() bool { return p.group(t, tenant, domain.ServiceWebhook, "mail").Parked == 1 })
		if _, err := p.groups.Replay(t.Context(), tenant, domain.ServiceGroup(domain.ServiceWebhook, "mail"), want.ID); err != nil {
			t.Fatal(err)
		}
	}
	e.next(t)
	await(t, "not all is noted", func() bool { return len(p.attempts(t, tenant, "mail")) > 10 })
	// Events given back when the breaker opened used no attempt. A replayed event has a new set of attempts.
	for i, a := range p.attempts(t, tenant, "mail")[:10] {
		if a.Outcome != webhook.OutcomeFailed || a.Status != 500+i || a.Attempt != i%5+1 || a.NextAt.IsZero() != (i == 4 || i == 9) {
			t.Errorf("attempt %d is %+v", i, a)
		}
	}
}

// A rejected event is redelivered in time, even if its response came long after everything else was done.
func TestLateAnswerAndThenARetry(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{schedule: []time.Duration{20 * time.Millisecond}, lease: time.Hour})
	tenant := p.tenant(t)
	e := newEndpoint(t, always(0))
	p.put(t, tenant, "mail", webhook.Definition{URL: e.url})
	want := p.add(t, tenant, "order-1", "OrderPlaced", `{}`)[0]
	r := e.next(t)
	late := time.NewTimer(10 * lingers)
	defer late.Stop()
	<-late.C
	r.answer <- 503
	if r = e.next(t); r.id() != want.ID.String() {
		t.Errorf("%s arrives", r.body)
	}
	r.answer <- 200
}

// The log of attempts says when the next attempt is due, by the schedule.
func TestRetriesFollowTheirSchedule(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{schedule: []time.Duration{5 * time.Second, 5 * time.Minute}})
	tenant := p.tenant(t)
	e := newEndpoint(t, always(500))
	p.put(t, tenant, "mail", webhook.Definition{URL: e.url})
	p.add(t, tenant, "order-1", "OrderPlaced", `{}`)
	e.next(t)
	await(t, "it waits for no retry", func() bool { return p.group(t, tenant, domain.ServiceWebhook, "mail").Retrying == 1 })
	await(t, "it is not noted", func() bool { return len(p.attempts(t, tenant, "mail")) == 1 })
	a := p.attempts(t, tenant, "mail")[0]
	if wait := a.NextAt.Sub(a.At); wait < 4*time.Second || wait > time.Minute { // a slow machine takes its time between both; the next retry but one is minutes later
		t.Errorf("the retry is due in %s", wait)
	}
}

// An endpoint that answers 410 Gone receives nothing more until the webhook is resumed. Then nothing is missing.
func TestGoneEndpointDisablesTheWebhook(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{})
	tenant := p.tenant(t)
	var back atomic.Bool
	e := newEndpoint(t, func(int, request) int {
		if back.Load() {
			return 200
		}
		return 410
	})
	before := p.put(t, tenant, "mail", webhook.Definition{URL: e.url})
	first := p.add(t, tenant, "order-1", "OrderPlaced", `{}`)[0]
	e.next(t)
	var w webhook.Webhook
	await(t, "it is not disabled", func() bool {
		var err error
		if w, err = p.webhooks.Get(t.Context(), tenant, "mail"); err != nil {
			t.Fatal(err)
		}
		return !w.DisabledAt.IsZero()
	})
	if !w.Stopped() || w.DisabledReason == "" || w.Revision == before.Revision {
		t.Errorf("the webhook is %+v", w)
	}
	await(t, "it is not noted", func() bool { return len(p.attempts(t, tenant, "mail")) == 1 })
	if a := p.attempts(t, tenant, "mail")[0]; a.Outcome != webhook.OutcomeGone || a.Status != 410 || !a.NextAt.IsZero() {
		t.Errorf("the attempt is %+v", a)
	}
	second := p.add(t, tenant, "order-2", "OrderPlaced", `{}`)[0]
	// Another webhook is not stopped, and has received what this one might have.
	other := newEndpoint(t, always(200))
	p.put(t, tenant, "other", webhook.Definition{URL: other.url, From: "start"})
	other.next(t)
	other.next(t)
	if len(e.requests) > 0 {
		t.Error("it is sent more")
	}
	back.Store(true)
	if w, err := p.webhooks.Pause(t.Context(), tenant, "mail", false); err != nil || w.Stopped() {
		t.Fatalf("%v, %+v", err, w)
	}
	got := map[string]bool{e.next(t).id(): true, e.next(t).id(): true}
	if !got[first.ID.String()] || !got[second.ID.String()] {
		t.Errorf("it continues with %v", got)
	}
}

// A paused webhook sends nothing, and later continues where it stopped.
func TestWebhookIsPaused(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{})
	tenant := p.tenant(t)
	e, other := newEndpoint(t, always(200)), newEndpoint(t, always(200))
	p.put(t, tenant, "mail", webhook.Definition{URL: e.url})
	p.put(t, tenant, "other", webhook.Definition{URL: other.url})
	if w, err := p.webhooks.Pause(t.Context(), tenant, "mail", true); err != nil || !w.Stopped() {
		t.Fatalf("%v, %+v", err, w)
	}
	// A listing from before the pause may still start a consumer, which may send what arrives before it notices the
	// pause. The next listing begins after it has been started.
	before := p.listings.Load()
	p.dispatcher.Notice(tenant)
	for p.listings.Load() == before {
		<-time.After(time.Millisecond)
	}
	for working := 1; working > 0; working, _ = p.dispatcher.Count() {
		<-time.After(5 * time.Millisecond)
	}
	want := p.add(t, tenant, "order-1", "OrderPlaced", `{}`)[0]
	other.next(t)
	if len(e.requests) > 0 {
		t.Error("it is sent something")
	}
	if _, err := p.webhooks.Pause(t.Context(), tenant, "mail", false); err != nil {
		t.Fatal(err)
	}
	if r := e.next(t); r.id() != want.ID.String() {
		t.Errorf("it continues with %s", r.body)
	}
}

// The next event of a stream is sent after the previous one was accepted.
func TestStreamsInOrder(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{pause: time.Microsecond})
	tenant := p.tenant(t)
	e := newEndpoint(t, func(n int, _ request) int {
		if n%3 == 1 {
			return 503
		}
		return 200
	})
	p.put(t, tenant, "mail", webhook.Definition{URL: e.url, Ordering: domain.OrderingStream})
	const streams, events = 5, 6
	for range events {
		for s := range streams {
			p.add(t, tenant, fmt.Sprintf("order-%d", s), "OrderPlaced", `{}`)
		}
	}
	last := make(map[string]int64)
	for done := 0; done < streams*events; {
		got := e.next(t).read(t).Data.Event
		switch got.Version {
		case last[got.Stream]: // it was not accepted
		case last[got.Stream] + 1:
			last[got.Stream]++
			done++
		default:
			t.Fatalf("of %s version %d comes behind %d", got.Stream, got.Version, last[got.Stream])
		}
	}
}

// Events wait for the webhook's delay.
func TestDelay(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{})
	tenant := p.tenant(t)
	e := newEndpoint(t, always(200))
	const delay = 300 * time.Millisecond
	p.put(t, tenant, "mail", webhook.Definition{URL: e.url, Delay: delay})
	p.add(t, tenant, "order-1", "OrderPlaced", `{}`)
	e.next(t)
	await(t, "it is not noted", func() bool { return len(p.attempts(t, tenant, "mail")) == 1 })
	events, err := p.store.ReadPositions(t.Context(), tenant, []int64{1})
	if err != nil {
		t.Fatal(err)
	}
	if waited := p.attempts(t, tenant, "mail")[0].At.Sub(events[0].RecordedAt); waited < delay-20*time.Millisecond {
		t.Errorf("it was sent after %s, not %s", waited, delay)
	}
}

func TestTestMessage(t *testing.T) {
	t.Parallel()
	p := start(t, pgtest.Database(t), options{idle: true})
	tenant := p.tenant(t)
	e := newEndpoint(t, func(n int, _ request) int { return []int{200, 500}[n%2] })
	w := p.put(t, tenant, "mail", webhook.Definition{URL: e.url})
	if _, err := p.webhooks.Pause(t.Context(), tenant, "mail", true); err != nil {
		t.Fatal(err)
	}
	for i, want := range []webhook.Outcome{webhook.OutcomeOK, webhook.OutcomeFailed} {
		a, err := p.webhooks.Test(t.Context(), tenant, "mail")
		if err != nil || a.Outcome != want || a.Position != 0 || a.Attempt != 0 || a.Type != "webhook.test" {
			t.Errorf("%v: %+v", err, a)
		}
		r := e.next(t)
		receiver, err := standardwebhooks.NewWebhook(w.Secrets[0].Text())
		if err != nil {
			t.Fatal(err)
		}
		if err := receiver.Verify(r.body, r.header); err != nil || r.id() != a.EventID.String() || r.read(t).Type != "webhook.test" {
			t.Errorf("%v: %s", err, r.body)
		}
		if all := p.attempts(t, tenant, "mail"); len(all) != i+1 || all[i].ID != a.ID {
			t.Errorf("noted are %+v", all)
		}
	}
	if _, err := p.webhooks.Test(t.Context(), tenant, "other"); err == nil {
		t.Error("a webhook that does not exist sends a test message")
	}
}
