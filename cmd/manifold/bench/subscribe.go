package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func subscribeCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "subscribe", "Follow a log, and consume it as a group", subscribe)
	command.Long = `Follow a log, and consume it as a group. What comes is checked meanwhile: a gap, a repeat or a wrong order is an error.

latency   Events are appended over HTTP at a steady --rate, and --subscribers follow. The latency is from the moment before an
          append is sent until the event has come to a subscriber, for each of them.
fanout    The same with many subscribers over WebSocket, which look every 20 ms for what has come.
catchup   One subscriber reads --events that are there already, from the first on. The limit is a plain select of the rows.
groups    --consumers of one group receive --batch events and acknowledge them, over HTTP, until they have had all --events. With
          --backlog so many events of one stream come first, and the first of them is never acknowledged; what is measured begins
          behind them. The latency is that of a receive with its acknowledgement. With --partitions the consumers are the members of a
          group with so many. With --gateway each consumer is a connection of the gateway with 100 events in flight at most, and the
          latency is that of an acknowledgement.`
	flags := command.Flags()
	flags.StringVar(&f.scenario, "scenario", "latency", "latency, fanout, catchup or groups")
	flags.StringVar(&f.transport, "transport", transportSocket, "latency, catchup: ws, sse or ndjson")
	flags.IntVar(&f.subscribers, "subscribers", 0, "latency, fanout: connections that follow (default 10, and 1000)")
	flags.Float64Var(&f.rate, "rate", 0, "latency, fanout: events appended a second (default 5000, and 200)")
	flags.IntVar(&f.clients, "clients", 0, "latency, fanout: clients that append (default 64, and 16)")
	flags.IntVar(&f.batch, "batch", 0, "events of an append, or of a receive (default 1, and 100)")
	flags.IntVar(&f.consumers, "consumers", 8, "groups: consumers")
	flags.StringVar(&f.ordering, "ordering", "none", "groups: none, or stream")
	flags.IntVar(&f.events, "events", 0, "catchup, groups: events that are there (default 1000000, and 200000)")
	flags.IntVar(&f.streams, "streams", 10_000, "catchup, groups: streams that they are of")
	flags.IntVar(&f.backlog, "backlog", 0, "groups: so many events of one stream come first")
	flags.IntVar(&f.partitions, "partitions", 0, "groups: partitions of the group, whose members are the consumers (default none)")
	flags.BoolVar(&f.gateway, "gateway", false, "groups: consume over the gateway (WebSocket), not over HTTP")
	flags.DurationVar(&f.duration, "duration", 10*time.Second, "latency, fanout: how long to measure")
	flags.DurationVar(&f.warmUp, "warm-up", 2*time.Second, "latency, fanout: how long to run before measuring")
	serviceFlags(f, command, "latency, fanout: use this running service")
	return command
}

func subscribe(ctx context.Context, f *flags, progress io.Writer) (Result, error) {
	if !slices.Contains([]string{transportSocket, transportEvents, transportLines}, f.transport) {
		return Result{}, fmt.Errorf("--transport %s: say ws, sse or ndjson", f.transport)
	}
	if f.url != "" && f.scenario != "latency" && f.scenario != "fanout" {
		return Result{}, errors.New("--url goes with the scenarios latency and fanout: the others need a log of their own")
	}
	switch f.scenario {
	case "latency":
		f.orElse(10, 5000, 64, 1, 0)
		return followLatency(ctx, f, progress)
	case "fanout":
		if f.transport != transportSocket {
			return Result{}, errors.New("--scenario fanout is over WebSocket")
		}
		f.orElse(1000, 200, 16, 1, 0)
		return followFanout(ctx, f, progress)
	case "catchup":
		f.orElse(1, 1, 1, 1, 1_000_000)
		return followCatchUp(ctx, f, progress)
	case "groups":
		f.orElse(1, 1, 1, 100, 200_000)
		return consume(ctx, f, progress)
	default:
		return Result{}, fmt.Errorf("--scenario %s: say latency, fanout, catchup or groups", f.scenario)
	}
}

// orElse fills in the missing flags. The defaults depend on the scenario.
func (f *flags) orElse(subscribers int, rate float64, clients, batch, events int) {
	for _, number := range []struct {
		to *int
		by int
	}{{&f.subscribers, subscribers}, {&f.clients, clients}, {&f.batch, batch}, {&f.events, events}} {
		if *number.to == 0 {
			*number.to = number.by
		}
	}
	if f.rate == 0 {
		f.rate = rate
	}
}

// quietService starts a service without any projection, so that the measured work has the machine to itself.
func quietService(ctx context.Context, f *flags, progress io.Writer) (*service, error) {
	if f.url != "" {
		return startService(ctx, f, progress, nil)
	}
	db, err := openDatabase(ctx, f.databaseURL, progress)
	if err != nil {
		return nil, err
	}
	s := &service{db: db, quiet: true, close: db.close}
	if err := s.start(ctx, nil, progress, nil); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// usage is the processor time of the service and the database since a start time.
type usage struct {
	service, server int // process ids; 0: unknown
	began           time.Time
	before          [2]time.Duration
}

// watch starts to measure processor time.
func (s *service) watch(ctx context.Context) *usage {
	u := &usage{began: time.Now()}
	if s.process == nil {
		return u
	}
	u.service = s.process.Process.Pid
	u.before[0] = processTime(u.service)
	if server, err := s.db.postmaster(ctx); err == nil { // the server may be on another machine
		u.server = server
		u.before[1] = familyTime(server)
	}
	return u
}

// tellUsage adds the usage since then, in processors.
func (r *Result) tellUsage(u *usage) {
	r.tellScaled(u, 100/time.Since(u.began).Seconds(), "% of a processor", "")
}

// tellUsageOf adds the usage since then per event.
func (r *Result) tellUsageOf(u *usage, events int64) {
	r.tellScaled(u, 1e6/float64(max(events, 1)), "µs", ", processor time for each event")
}

func (r *Result) tellScaled(u *usage, scale float64, unit, what string) {
	if u.service != 0 {
		r.tell((processTime(u.service)-u.before[0]).Seconds()*scale, unit, "service%s", what)
	}
	if u.server != 0 {
		r.tell((familyTime(u.server)-u.before[1]).Seconds()*scale, unit, "database%s", what)
	}
}

// subscribeName returns the name of the run, without the default parts.
func (f *flags) subscribeName(parts ...string) string {
	return strings.Join(append([]string{"subscribe --scenario " + f.scenario}, parts...), " ")
}
