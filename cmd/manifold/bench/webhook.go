package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
)

func webhookCommand() *cobra.Command {
	f := &flags{batch: 1}
	command := newCommand(f, "webhook", "Send events to webhooks",
		`Send events to webhooks at this process. The benchmark also checks what is delivered: a missing event is an error.

deliver   Send --events to one webhook as fast as possible.
latency   Append events over HTTP at a steady --rate. The latency is from the moment before an append is sent until the event
          has reached the webhook.

With --dead there are so many other webhooks for the same events. A quarter of their URLs each hang, fail with 500, refuse the
connection, or redirect. They should not affect the good webhook.`,
		webhook, "events", "streams", "clients", "rate")
	flags := command.Flags()
	flags.StringVar(&f.scenario, "scenario", "deliver", "deliver or latency")
	flags.IntVar(&f.dead, "dead", 0, "webhooks whose URLs are dead")
	flags.IntVar(&f.events, "events", 50_000, "deliver: events in the log")
	flags.IntVar(&f.streams, "streams", 5000, "deliver: streams in the log")
	flags.StringVar(&f.ordering, "ordering", "none", "none or stream")
	flags.DurationVar(&f.answerAfter, "answer-after", 0, "how long the good URL takes to answer")
	flags.Float64Var(&f.rate, "rate", 500, "latency: events appended per second")
	flags.IntVar(&f.clients, "clients", 16, "latency: clients that append")
	f.durationFlags(command, 20*time.Second, 5*time.Second, "latency: ")
	f.serviceFlags(command, "latency: use this running service, which must allow webhooks to this machine")
	return command
}

func webhook(ctx context.Context, r *run) error {
	scenario, ok := map[string]func(context.Context, *run) error{"deliver": deliver, "latency": deliverLatency}[r.scenario]
	switch {
	case !ok:
		return fmt.Errorf("--scenario %s: expected deliver or latency", r.scenario)
	case r.url != "" && r.scenario == "deliver":
		return errors.New("--url goes with the scenario latency: the other loads a new log")
	}
	if _, err := r.startService(ctx, withoutUsage, "MANIFOLD_WEBHOOKS_ALLOW=127.0.0.0/8", "MANIFOLD_WEBHOOKS_ALLOW_HTTP=true"); err != nil {
		return err
	}
	return scenario(ctx, r)
}

func (f *flags) webhookName(parts string) string {
	name := "webhook --scenario " + f.scenario + " " + parts + " --ordering " + f.ordering
	if f.dead > 0 {
		name += fmt.Sprintf(" --dead %d", f.dead)
	}
	if f.answerAfter > 0 {
		name += " --answer-after " + f.answerAfter.String()
	}
	return name
}

// webhooks are the good webhook, and those whose URLs are dead.
type webhooks struct {
	owner *wire
	dead  *deadURLs
	good  *receiver
	from  string // where the webhooks begin
}

// startWebhooks creates the webhooks with dead URLs, and the receiver of the good one.
func (r *run) startWebhooks(from string, receive func(body []byte, now time.Time) error) (*webhooks, error) {
	h := &webhooks{from: from}
	var err error
	if h.owner, err = r.dial(r.service.key); err != nil {
		return nil, err
	}
	if h.dead, err = r.startDead(); err != nil {
		return nil, err
	}
	if h.good, err = r.startReceiver(receive); err != nil {
		return nil, err
	}
	if r.dead > 0 {
		r.log("creating %d webhooks that are dead", r.dead)
	}
	for i := range r.dead {
		if err := h.put(fmt.Sprintf("dead-%d", i), h.dead.urls[i%len(h.dead.urls)], r.ordering); err != nil {
			return nil, err
		}
	}
	return h, nil
}

func (h *webhooks) put(name, url, ordering string) error {
	definition := map[string]string{"url": url, "from": h.from, "ordering": ordering}
	return h.owner.json("PUT", "/v1/webhooks/"+name, definition, http.StatusCreated, nil)
}

// awaitSettled waits until the service also reports that the good webhook has received everything up to a position.
func (h *webhooks) awaitSettled(ctx context.Context, position int64) error {
	var found struct {
		Progress struct{ Checkpoint, InFlight, Retrying, DeadLetters int64 }
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errLate)
	defer cancel()
	err := poll(ctx, 50*time.Millisecond, func() (bool, error) {
		err := h.owner.json("GET", "/v1/webhooks/good", nil, http.StatusOK, &found)
		p := found.Progress
		return p.Checkpoint >= position && p.InFlight == 0 && p.Retrying == 0 && p.DeadLetters == 0, err
	})
	if err != nil {
		return fmt.Errorf("the webhook ends with %+v; everything up to %d should be settled: %w", found.Progress, position, err)
	}
	return nil
}

func deliver(ctx context.Context, r *run) error {
	if err := r.fillLogs(ctx, history{events: r.events, streams: r.streams}, r.service.tenant); err != nil {
		return err
	}
	check := &webhookCheck{arrived: make([]atomic.Int32, r.events+1), done: make(chan struct{})}
	check.left.Store(int64(r.events))
	h, err := r.startWebhooks("start", check.record)
	if err != nil {
		return err
	}
	r.log("delivering")
	usage := r.watchUsage(ctx)
	if err := h.put("good", h.good.url, r.ordering); err != nil {
		return err
	}
	if err := check.wait(ctx); err != nil {
		return err
	}
	measured := usage.load(int64(r.events))
	r.addUsagePerEvent(usage, measured.events)
	r.addFigure(float64(check.requests.Load()-measured.events), "", "requests beyond one for each event")
	if err := h.awaitSettled(ctx, measured.events); err != nil {
		return err
	}
	r.Name, r.Clients = r.webhookName(fmt.Sprintf("--events %d", r.events)), 1
	return r.finish(ctx, measured, nil)
}

func deliverLatency(ctx context.Context, r *run) error {
	var arrivals samples
	var highest maxValue
	h, err := r.startWebhooks("end", func(body []byte, now time.Time) error {
		sent, err := sentAt(body)
		if err != nil {
			return err
		}
		arrivals.add(sent, now.Sub(sent))
		position, _ := numberIn(body, `"position":`)
		highest.raise(position)
		return nil
	})
	if err != nil {
		return err
	}
	if err := h.put("good", h.good.url, r.ordering); err != nil {
		return err
	}
	begin := time.Now().Add(r.warmUp)
	stamped, err := r.appendStamped(ctx, func(position int64) bool { return highest.Load() >= position })
	if err != nil {
		return err
	}
	if err := h.awaitSettled(ctx, stamped.last.Load()); err != nil {
		return err
	}
	r.addLatencies(stamped.appends.since(begin), "append")
	if r.dead > 0 {
		r.addFigure(float64(h.dead.requests.Load()), "", "requests to dead webhooks")
	}
	r.Name, r.Clients, r.latencyName = r.webhookName(fmt.Sprintf("--rate %.0f", r.rate)), r.clients, "append to arrival"
	stamped.latencies = arrivals.since(begin)
	return r.finish(ctx, stamped.load, nil)
}
