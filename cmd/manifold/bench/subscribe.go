package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

func subscribeCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "subscribe", "Follow a log, and consume it as a group",
		`Follow a log, and consume it as a group. The benchmark also checks what is delivered: a gap, a repeat or a wrong order is an
error.

latency   Append events over HTTP at a steady --rate, with --subscribers that follow. The latency is from the moment before an
          append is sent until the event has reached a subscriber, for each of them.
fanout    The same with many subscribers over WebSocket, which read every 20 ms.
catchup   One subscriber reads --events from the first on. The limit is a plain SELECT of the same rows.
groups    --consumers of one group receive and acknowledge up to --batch events at a time, over HTTP, until they have had all
          --events. The latency is that of a receive that acknowledges the events of the one before. With --backlog, the log
          begins with so many events of one stream, the first of which is never acknowledged; only what follows is measured.
          With --partitions, the consumers are members of a group with so many partitions. With --gateway, each consumer is
          a connection to the gateway with at most 100 events in flight, and the latency is that of an acknowledgement.`,
		subscribe, "consumers", "streams")
	flags := command.Flags()
	flags.StringVar(&f.scenario, "scenario", "latency", "latency, fanout, catchup or groups")
	flags.StringVar(&f.transport, "transport", transportSocket, "latency, catchup: ws, sse or ndjson")
	flags.IntVar(&f.subscribers, "subscribers", 0, "latency, fanout: connections that follow (default 10 and 1000)")
	flags.Float64Var(&f.rate, "rate", 0, "latency, fanout: events appended per second (default 5000 and 200)")
	flags.IntVar(&f.clients, "clients", 0, "latency, fanout: clients that append (default 64 and 16)")
	flags.IntVar(&f.batch, "batch", 0, "events per append or receive (default 1 and 100)")
	flags.IntVar(&f.consumers, "consumers", 8, "groups: number of consumers")
	flags.StringVar(&f.ordering, "ordering", "none", "groups: none or stream")
	flags.IntVar(&f.events, "events", 0, "catchup, groups: events in the log (default 1000000 and 200000)")
	flags.IntVar(&f.streams, "streams", 10_000, "catchup, groups: streams in the log")
	flags.IntVar(&f.backlog, "backlog", 0, "groups: events of one stream at the beginning of the log")
	flags.IntVar(&f.partitions, "partitions", 0, "groups: partitions of the group, whose members are the consumers (default none)")
	flags.BoolVar(&f.gateway, "gateway", false, "groups: consume over the gateway (WebSocket), not over HTTP")
	f.durationFlags(command, 10*time.Second, 2*time.Second, "latency, fanout: ")
	f.serviceFlags(command, "latency, fanout: use this running service")
	return command
}

func subscribe(ctx context.Context, r *run) error {
	if !slices.Contains([]string{transportSocket, transportEvents, transportLines}, r.transport) {
		return fmt.Errorf("--transport %s: expected ws, sse or ndjson", r.transport)
	}
	scenario, ok := map[string]struct {
		run                                 func(ctx context.Context, r *run) error
		subscribers, clients, batch, events int // the flags' defaults
		rate                                float64
	}{
		"latency": {run: followLatency, subscribers: 10, rate: 5000, clients: 64, batch: 1},
		"fanout":  {run: followFanout, subscribers: 1000, rate: 200, clients: 16, batch: 1},
		"catchup": {run: followCatchUp, events: 1_000_000},
		"groups":  {run: consumeGroup, batch: 100, events: 200_000},
	}[r.scenario]
	switch {
	case !ok:
		return fmt.Errorf("--scenario %s: expected latency, fanout, catchup or groups", r.scenario)
	case r.url != "" && scenario.events > 0:
		return errors.New("--url goes with the scenarios latency and fanout: the others load a new log")
	case r.scenario == "fanout" && r.transport != transportSocket:
		return errors.New("--scenario fanout needs --transport ws")
	}
	r.subscribers, r.rate = cmp.Or(r.subscribers, scenario.subscribers), cmp.Or(r.rate, scenario.rate)
	r.clients, r.batch = cmp.Or(r.clients, scenario.clients), cmp.Or(r.batch, scenario.batch)
	r.events = cmp.Or(r.events, scenario.events)
	s, err := r.startService(ctx, withoutUsage)
	if err != nil {
		return err
	}
	if scenario.events > 0 {
		if err := r.fillLogs(ctx, history{front: r.backlog, events: r.events, streams: r.streams}, s.tenant); err != nil {
			return err
		}
	}
	return scenario.run(ctx, r)
}

// subscribeName returns the name of the run, without the default parts.
func (f *flags) subscribeName(parts ...string) string {
	return strings.Join(append([]string{"subscribe --scenario " + f.scenario}, parts...), " ")
}

func followCatchUp(ctx context.Context, r *run) error {
	r.log("catching up")
	usage := r.watchUsage(ctx)
	subscriber, err := r.follow(r.transport, "start")
	if err != nil {
		return err
	}
	subscriber.at = 0 // the first event is at position 1
	stop := context.AfterFunc(ctx, subscriber.wire.close)
	defer stop()
	if err := subscriber.readToHead(); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	measured := usage.load(subscriber.at)
	r.addUsagePerEvent(usage, subscriber.at)
	if subscriber.at != int64(r.events) {
		return fmt.Errorf("the subscriber has caught up at position %d of %d", subscriber.at, r.events)
	}
	r.Name, r.Clients = r.subscribeName(fmt.Sprintf("--events %d --transport %s", r.events, r.transport)), 1
	return r.finish(ctx, measured, selectLimit)
}
