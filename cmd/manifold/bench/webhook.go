package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
)

func webhookCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "webhook", "Send events to webhooks", webhook)
	command.Long = `Send events to webhooks whose URLs are this process's. What comes is checked meanwhile: an event that is missing is an error.

deliver   --events that are there already are sent to one webhook, as fast as that goes.
latency   Events are appended over HTTP at a steady --rate. The latency is from the moment before an append is sent until the
          event has come to the webhook.

With --dead there are so many further webhooks for the same events whose URLs hang, fail with 500, refuse the connection, or
redirect: a quarter each. They should change nothing for the good one.`
	flags := command.Flags()
	flags.StringVar(&f.scenario, "scenario", "deliver", "deliver or latency")
	flags.IntVar(&f.dead, "dead", 0, "webhooks whose URLs are dead")
	flags.IntVar(&f.events, "events", 50_000, "deliver: events that are there")
	flags.IntVar(&f.streams, "streams", 5000, "deliver: streams that they are of")
	flags.StringVar(&f.ordering, "ordering", "none", "none, or stream")
	flags.DurationVar(&f.answerAfter, "answer-after", 0, "how long the good URL takes for its answer")
	flags.Float64Var(&f.rate, "rate", 500, "latency: events appended a second")
	flags.IntVar(&f.clients, "clients", 16, "latency: clients that append")
	flags.DurationVar(&f.duration, "duration", 20*time.Second, "latency: how long to measure")
	flags.DurationVar(&f.warmUp, "warm-up", 5*time.Second, "latency: how long to run before measuring")
	serviceFlags(f, command, "latency: use this running service, which must allow webhooks to this machine")
	f.batch = 1
	return command
}

func webhook(ctx context.Context, f *flags, progress io.Writer) (_ Result, err error) {
	switch {
	case f.scenario != "deliver" && f.scenario != "latency":
		return Result{}, fmt.Errorf("--scenario %s: say deliver or latency", f.scenario)
	case f.url != "" && f.scenario == "deliver":
		return Result{}, errors.New("--url goes with the scenario latency: the other needs a log of its own")
	case f.events < 1 || f.streams < 1 || f.clients < 1 || f.rate <= 0:
		return Result{}, errors.New("--events, --streams, --clients and --rate must be at least 1")
	}
	s, err := webhookService(ctx, f, progress)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if f.scenario == "deliver" {
		return deliverAll(ctx, f, s, progress)
	}
	return deliverLatency(ctx, f, s, progress)
}

// webhookService starts a quiet service that may send to this machine.
func webhookService(ctx context.Context, f *flags, progress io.Writer) (*service, error) {
	if f.url != "" {
		return startService(ctx, f, progress, nil)
	}
	db, err := openDatabase(ctx, f.databaseURL, progress)
	if err != nil {
		return nil, err
	}
	s := &service{db: db, quiet: true, close: db.close, settings: []string{"MANIFOLD_WEBHOOKS_ALLOW=127.0.0.0/8", "MANIFOLD_WEBHOOKS_ALLOW_HTTP=true"}}
	if err := s.start(ctx, nil, progress, nil); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
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

// putWebhook creates a webhook that begins at the given place.
func (w *wire) putWebhook(name, url, from, ordering string) error {
	status, answer, err := w.do("PUT", "/v1/webhooks/"+name, "", fmt.Appendf(nil, `{"url":%q,"from":%q,"ordering":%q}`, url, from, ordering))
	return want(status, http.StatusCreated, answer, err)
}

// putDead creates the webhooks whose URLs are dead.
func putDead(w *wire, dead *deadURLs, f *flags, from string, progress io.Writer) error {
	if f.dead > 0 {
		fmt.Fprintf(progress, "making %d webhooks that are dead ...\n", f.dead)
	}
	for i := range f.dead {
		if err := w.putWebhook(fmt.Sprintf("dead-%d", i), dead.urls[i%len(dead.urls)], from, f.ordering); err != nil {
			return err
		}
	}
	return nil
}

func deliverAll(ctx context.Context, f *flags, s *service, progress io.Writer) (Result, error) {
	if err := s.db.preload(ctx, s.tenant, f.events, f.streams, progress); err != nil {
		return Result{}, err
	}
	if err := execute(ctx, s.db.super, "checkpoint"); err != nil {
		return Result{}, err
	}
	dead, err := startDead()
	if err != nil {
		return Result{}, err
	}
	defer dead.close()
	check := &webhookCheck{arrived: make([]atomic.Int32, f.events+1), left: int64(f.events), done: make(chan struct{})}
	good, err := startReceiver(f.answerAfter, check.take)
	if err != nil {
		return Result{}, err
	}
	defer good.close()
	wires, err := s.connect(1)
	if err != nil {
		return Result{}, err
	}
	defer disconnect(wires)
	if err := putDead(wires[0], dead, f, "start", progress); err != nil {
		return Result{}, err
	}
	fmt.Fprintln(progress, "delivering ...")
	result := Result{Name: f.webhookName(fmt.Sprintf("--events %d", f.events)), Clients: 1}
	cpu, used, begin := s.watch(ctx), processorTime(), time.Now()
	if err := wires[0].putWebhook("good", good.url, "start", f.ordering); err != nil {
		return Result{}, err
	}
	for before := int64(-1); ; {
		select {
		case <-check.done:
		case <-time.After(stalled):
			now := check.requests()
			if now != before {
				before = now
				continue
			}
			return Result{}, fmt.Errorf("nothing has come for %s; %d events are missing", stalled, check.missing())
		case <-ctx.Done():
			return Result{}, context.Cause(ctx)
		}
		break
	}
	measured := load{events: int64(f.events), took: time.Since(begin), processor: processorTime() - used}
	result.tellUsageOf(cpu, measured.events)
	result.tell(float64(check.requests()-measured.events), "", "requests beyond one for each event")
	if err := awaitWebhook(ctx, wires[0], int64(f.events)); err != nil {
		return Result{}, err
	}
	result.take(measured)
	result.GeneratorCPU = generatorShare(measured)
	err = s.finish(ctx, &result, "", nil, progress)
	return result, err
}

// awaitWebhook waits until the service also reports that the good webhook has received everything up to a position.
func awaitWebhook(ctx context.Context, w *wire, position int64) error {
	over := time.After(patience)
	for {
		status, answer, err := w.do("GET", "/v1/webhooks/good", "", nil)
		var found struct {
			Progress struct{ Checkpoint, InFlight, Retrying, DeadLetters int64 }
		}
		if err := errors.Join(want(status, http.StatusOK, answer, err), json.Unmarshal(answer, &found)); err != nil {
			return err
		}
		p := found.Progress
		if p.Checkpoint >= position && p.InFlight == 0 && p.Retrying == 0 && p.DeadLetters == 0 {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-over:
			return fmt.Errorf("the webhook ends with %+v, %s behind the last request; everything up to %d should be settled", p, patience, position)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func deliverLatency(ctx context.Context, f *flags, s *service, progress io.Writer) (Result, error) {
	appenders, err := s.connect(f.clients)
	if err != nil {
		return Result{}, err
	}
	defer disconnect(appenders)
	dead, err := startDead()
	if err != nil {
		return Result{}, err
	}
	defer dead.close()
	var came samples
	var highest atomic.Int64
	good, err := startReceiver(f.answerAfter, func(body []byte, now time.Time) error {
		sent, err := sentAt(body)
		if err != nil {
			return err
		}
		came.add(sent, now.Sub(sent))
		position, _ := numberIn(body, `"position":`)
		for last := highest.Load(); last < position && !highest.CompareAndSwap(last, position); {
			last = highest.Load()
		}
		return nil
	})
	if err != nil {
		return Result{}, err
	}
	defer good.close()
	if err := putDead(appenders[0], dead, f, "end", progress); err != nil {
		return Result{}, err
	}
	if err := appenders[0].putWebhook("good", good.url, "end", f.ordering); err != nil {
		return Result{}, err
	}
	begin := time.Now().Add(f.warmUp)
	fmt.Fprintf(progress, "appending %.0f events/s for %s ...\n", f.rate, f.duration)
	l := &stampedLoad{appenders: appenders, rate: f.rate, batch: 1}
	result := Result{Name: f.webhookName(fmt.Sprintf("--rate %.0f", f.rate)), Clients: f.clients, what: "append to arrival"}
	cpu := s.watch(ctx)
	measured, err := l.drive(ctx, f.warmUp, f.duration)
	result.tellUsage(cpu)
	if err == nil {
		err = l.awaitLast(ctx, func(last int64) bool { return highest.Load() >= last })
	}
	if err == nil {
		err = awaitWebhook(ctx, appenders[0], l.last.Load())
	}
	if err != nil {
		return Result{}, err
	}
	result.tellLatencies(l.took.between(begin, time.Time{}), "append")
	if f.dead > 0 {
		result.tell(float64(dead.requests.Load()), "", "requests to the dead")
	}
	all := came.between(begin, time.Time{})
	measured.latencies = all.latencies
	result.take(measured)
	result.GeneratorCPU = generatorShare(measured)
	err = s.finish(ctx, &result, "", nil, progress)
	return result, err
}
