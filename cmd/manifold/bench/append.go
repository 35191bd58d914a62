package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/domain"
)

func appendCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "append", "Append events: over HTTP, or directly to the log",
		`Append events of some 200 to 300 bytes from closed-loop clients, each to separate streams.

With --catch-up, a new projection catches up with the preloaded events while clients append; with --rebuild, a projection of
these events is rebuilt. The benchmark ends when that is done, or after the duration. The clients append alone first, half as
long, for comparison.

With --schema, events have 20 fields, and clients append in turns without and with their validation.

The limit is COPY of the same rows into a table like the log's, with its indexes, without row-level security.`,
		func(ctx context.Context, r *run) error {
			switch {
			case (f.condition || f.tagged) && !f.direct && !f.child:
				return errors.New("--condition and --tags need --direct")
			case f.schema && f.direct:
				return errors.New("--schema needs HTTP; leave out --direct")
			case f.child:
				return appendAsChild(ctx, f)
			case f.direct:
				return appendDirect(ctx, r)
			default:
				return appendHTTP(ctx, r)
			}
		}, "clients", "batch", "tenants", "processes")
	command.Flags().IntVar(&f.clients, "clients", 64, "concurrent clients, over all processes")
	f.requestFlags(command)
	f.distributeFlag(command)
	command.Flags().IntVar(&f.tenants, "tenants", 1, "with --direct: number of tenants, which share the clients")
	command.Flags().IntVar(&f.preload, "preload", 0, "events already in the first tenant's log")
	command.Flags().BoolVar(&f.catchingUp, "catch-up", false, "with --preload: append while a new projection catches up with these events")
	command.Flags().BoolVar(&f.rebuilding, "rebuild", false, "with --preload: append while a projection of these events is rebuilt")
	command.Flags().BoolVar(&f.schema, "schema", false, "validate the events by a schema of 20 fields, in turns with not")
	command.Flags().BoolVar(&f.direct, "direct", false, "append to the log without HTTP")
	command.Flags().IntVar(&f.processes, "processes", 1, "with --direct: number of processes, which share the clients")
	command.Flags().BoolVar(&f.condition, "condition", false, "with --direct: tag each event with its stream, and append on the condition that nobody else has, instead of expecting versions; --preload then preloads such events")
	command.Flags().BoolVar(&f.tagged, "tags", false, "with --direct: tag events as --condition does, and expect versions")
	command.Flags().IntVar(&f.inline, "inline", 0, "with --direct: number of inline projections to fold into, each with a document per stream")
	f.serviceFlags(command, "append over HTTP to this running service")
	command.Flags().BoolVar(&f.child, "child", false, "")
	command.Flags().MarkHidden("child")
	return command
}

func publishCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "publish", "Publish messages over HTTP",
		`Publish messages of some 200 to 300 bytes over HTTP from closed-loop clients, each under separate keys. The events are those of
"manifold bench append", for comparison.

The limit is COPY of the same rows into a table like the log's, with its indexes, without row-level security.`,
		publish, "clients", "batch")
	command.Flags().IntVar(&f.clients, "clients", 64, "concurrent clients")
	f.requestFlags(command)
	f.serviceFlags(command, "publish to this running service")
	return command
}

// requestFlags adds the flags about requests with events.
func (f *flags) requestFlags(command *cobra.Command) {
	command.Flags().IntVar(&f.batch, "batch", 1, "events per request")
	f.durationFlags(command, 10*time.Second, time.Second, "")
	command.Flags().IntVar(&f.events, "events", 0, "stop after this many events instead of after the duration")
}

// loadName returns the command with the flags that distinguish its runs.
func (f *flags) loadName(name string) string {
	name += fmt.Sprintf(" --clients %d", f.clients)
	for _, extra := range []struct {
		flag        string
		value, hide int
	}{{"batch", f.batch, 1}, {"tenants", max(f.tenants, 1), 1}, {"processes", max(f.processes, 1), 1}, {"preload", f.preload, 0}, {"inline", f.inline, 0}} {
		if extra.value != extra.hide {
			name += fmt.Sprintf(" --%s %d", extra.flag, extra.value)
		}
	}
	return name
}

// length describes, for people, how long a run is.
func (f *flags) length() string {
	if f.events > 0 {
		return fmt.Sprintf("%d events", f.events)
	}
	return f.duration.String()
}

func publish(ctx context.Context, r *run) error {
	r.Name, r.latencyName = r.loadName("publish"), "publish"
	return r.send(ctx, (*sender).publish)
}

func appendHTTP(ctx context.Context, r *run) error {
	if r.tenants > 1 {
		return errors.New("--tenants needs --direct")
	}
	r.Name, r.latencyName = r.loadName("append"), "append"
	if r.schema {
		r.Name += " --schema"
	}
	return r.send(ctx, func(s *sender) error {
		var fields []byte
		if r.schema {
			fields = []byte(moreFields)
		}
		_, err := s.post(fields)
		return err
	})
}

// send measures requests over HTTP.
func (r *run) send(ctx context.Context, request func(*sender) error) error {
	s, err := r.startService(ctx)
	if err != nil {
		return err
	}
	if r.db != nil && r.preload > 0 {
		if err := r.fillLogs(ctx, history{events: r.preload, streams: r.preload / 10}, s.tenant); err != nil {
			return err
		}
	}
	wires, err := r.connect(r.clients)
	if err != nil {
		return err
	}
	clients := make([]client, r.clients)
	for i, w := range wires {
		sender := newSender(w, i, streamLength, r.batch)
		clients[i] = func(context.Context) (int, error) { return r.batch, request(sender) }
	}
	var send driver = drive
	if r.schema {
		send = r.driveValidated
	}
	if r.catchingUp {
		r.Name += " --catch-up"
		send = r.driveBeside(r.startCatchUp)
	}
	if r.rebuilding {
		r.Name += " --rebuild"
		projection, err := r.startCatchUp(ctx)
		if err != nil {
			return err
		}
		if err := projection.await(ctx); err != nil {
			return err
		}
		send = r.driveBeside(r.startRebuild)
	}
	r.log("sending for %s", r.length())
	measured, err := send(ctx, clients, r.warmUp, r.duration, r.events)
	if err != nil {
		return err
	}
	r.Clients = r.clients
	return r.finish(ctx, measured, copyLimit)
}

// driver is the type of drive.
type driver func(ctx context.Context, clients []client, warmUp, duration time.Duration, most int) (load, error)

// backgroundWork is a service's work beside the requests of its clients.
type backgroundWork struct {
	events *atomic.Int64                   // done so far, as of await's last look
	await  func(ctx context.Context) error // returns when the work is done
}

// driveBeside returns a function that drives the clients twice: alone, and then while the service does the work that
// begin starts.
func (r *run) driveBeside(begin func(ctx context.Context) (backgroundWork, error)) driver {
	return func(ctx context.Context, clients []client, warmUp, duration time.Duration, most int) (load, error) {
		alone, err := drive(ctx, clients, warmUp, duration/2, 0)
		if err != nil {
			return load{}, err
		}
		beside, err := begin(ctx)
		if err != nil {
			return load{}, err
		}
		running, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		var watching sync.WaitGroup
		watching.Go(func() {
			err := beside.await(running)
			if err == nil || running.Err() != nil {
				err = errEnough
			}
			stop(err)
		})
		r.log("sending for at most %s, beside background work", duration)
		usage := r.watchUsage(ctx)
		measured, err := drive(running, clients, 0, duration, most)
		r.addUsage(usage)
		stop(errEnough)
		watching.Wait()
		if err != nil {
			return load{}, err
		}
		r.addLatencies(alone.latencies, "append alone")
		r.addFigure(alone.perSecond(), "events/s", "appended without background work")
		if alone.perSecond() > 0 {
			r.addFigure(measured.perSecond()/alone.perSecond(), "", "share of that rate during background work")
		}
		r.addFigure(float64(beside.events.Load())/measured.took.Seconds(), "events/s", "folded meanwhile")
		r.addFigure(float64(max(0, int64(r.preload)-beside.events.Load())), "events", "preloaded events not yet folded")
		return measured, nil
	}
}

// startCatchUp creates a projection, which then catches up with the preloaded events.
func (r *run) startCatchUp(ctx context.Context) (backgroundWork, error) {
	operator, err := r.dial(r.service.operator)
	if err != nil {
		return backgroundWork{}, err
	}
	if err := operator.createProjection(orders, defaultDatabase); err != nil {
		return backgroundWork{}, err
	}
	behind, err := r.watchBacklog(ctx, r.service.tenant, r.preload)
	if err != nil {
		return backgroundWork{}, err
	}
	return backgroundWork{&behind.checkpoint, func(ctx context.Context) error { return behind.await(ctx, behind.events) }}, nil
}

// startRebuild starts a rebuild of the projection.
func (r *run) startRebuild(context.Context) (backgroundWork, error) {
	operator, err := r.dial(r.service.operator)
	if err != nil {
		return backgroundWork{}, err
	}
	state, err := startRebuild(operator, nil)
	if err != nil {
		return backgroundWork{}, err
	}
	done := new(atomic.Int64)
	return backgroundWork{done, func(ctx context.Context) error {
		return poll(ctx, 50*time.Millisecond, func() (bool, error) {
			ended, err := state.ended(operator)
			done.Store(state.EventsDone)
			return ended, err
		})
	}}, nil
}

func appendDirect(ctx context.Context, r *run) error {
	if r.processes > 1 && r.inline > 0 {
		return errors.New("--inline needs --processes 1")
	}
	if r.processes > r.clients {
		return fmt.Errorf("--processes %d needs at least as many clients, and there are %d", r.processes, r.clients)
	}
	db, err := r.createDatabase(ctx)
	if err != nil {
		return err
	}
	tenants, err := db.createTenants(ctx, r.tenants)
	if err != nil {
		return err
	}
	if r.preload > 0 {
		h := history{events: r.preload, streams: r.preload / 10, tagged: r.condition || r.tagged}
		if err := r.fillLogs(ctx, h, tenants[0]); err != nil {
			return err
		}
	}
	if err := execute(ctx, db.super, "checkpoint"); err != nil {
		return err
	}
	r.log("appending for %s", r.length())
	var measured load
	if r.processes > 1 {
		measured, err = appendInProcesses(ctx, r, tenants)
	} else {
		measured, err = r.appendToLogs(ctx, db, tenants, func() error { return nil })
		r.RSS = peakMemory(os.Getpid())
	}
	if err != nil {
		return err
	}
	r.Name, r.latencyName, r.Clients = r.loadName("append --direct"), "append", r.clients
	if r.condition {
		r.Name += " --condition"
	}
	if r.tagged {
		r.Name += " --tags"
	}
	return r.finish(ctx, measured, copyLimit)
}

// appendToLogs runs clients in this process. It calls begin when everything is ready.
func (f *flags) appendToLogs(ctx context.Context, db *database, tenants []domain.TenantID, begin func() error) (load, error) {
	e, err := db.openEngine(ctx)
	if err != nil {
		return load{}, err
	}
	defer e.close()
	for n := range f.inline {
		definition := domain.Definition{
			Name: fmt.Sprintf("orders-%d", n+1), Mode: domain.ModeInline,
			On: map[string]string{"*": `{"customer": event.data.customer, "events": doc.?events.orValue(0) + 1,
				"total": doc.?total.orValue(0) + event.data.price * event.data.quantity, "city": event.data.address.city}`},
		}
		if _, err := e.catalog.Create(ctx, domain.Everyone, definition, "benchmark"); err != nil {
			return load{}, err
		}
	}
	clients := make([]client, f.clients)
	for i := range clients {
		tenant, g := tenants[i%len(tenants)], newGenerator(i, streamLength)
		g.tagged, g.conditional = f.tagged || f.condition, f.condition
		clients[i] = func(ctx context.Context) (int, error) {
			appended, err := e.Append(ctx, tenant, g.append(f.batch))
			g.position = appended.Position
			return f.batch, err
		}
	}
	if err := begin(); err != nil {
		return load{}, err
	}
	return drive(ctx, clients, f.warmUp, f.duration, f.events)
}
