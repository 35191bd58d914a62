package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

func stateCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "state", "Load the state of a long stream while it grows",
		`Load the state of a long stream over HTTP while it grows: append one event, load the state, and so on. Only the loading is
measured. As always, there is a snapshot every 100 events.

With --version, load the state at that version instead. The stream is appended before its category has an aggregate, as an
import would do, and loading begins when the snapshots that follow have been taken.`,
		state, "events")
	command.Flags().IntVar(&f.events, "events", 10_000, "events in the stream")
	command.Flags().IntVar(&f.version, "version", 0, "load the state at this version (default: the newest)")
	command.Flags().DurationVar(&f.duration, "duration", 10*time.Second, "how long to measure")
	return command
}

// orderState is the benchmark's aggregate.
const orderState = `{"initial":{"events":0,"total":0},"on":{` +
	`"ItemAdded":"merge(state, {\"events\": state.events + 1, \"total\": state.total + event.data.price * event.data.quantity})",` +
	`"*":"merge(state, {\"events\": state.events + 1})"}}`

func state(ctx context.Context, r *run) error {
	s, err := r.startService(ctx)
	if err != nil {
		return err
	}
	w, err := r.dial(s.key)
	if err != nil {
		return err
	}
	if r.version > r.events {
		return fmt.Errorf("--version %d: the stream has %d events", r.version, r.events)
	}
	define := func() error {
		return w.json("PUT", "/v1/aggregates/order", json.RawMessage(orderState), http.StatusOK, nil)
	}
	if r.version == 0 {
		if err := define(); err != nil {
			return err
		}
	}
	r.log("appending %d events to one stream", r.events)
	sender := newSender(w, 0, 0, 1)
	var last appended
	for i := 0; i < r.events && ctx.Err() == nil; i++ {
		if last, err = sender.append(); err != nil {
			return err
		}
	}
	query := ""
	if r.version > 0 {
		query = fmt.Sprintf("?version=%d", r.version)
		if err := define(); err != nil {
			return err
		}
		if err := awaitSnapshot(ctx, w, last.stream, r.events); err != nil {
			return err
		}
	}
	r.log("loading its state for %s", r.duration)
	var measured load
	start := time.Now()
	for time.Since(start) < r.duration {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if r.version == 0 {
			if _, err := sender.append(); err != nil {
				return err
			}
		}
		begin := time.Now()
		if _, err := w.do("GET", "/v1/streams/"+url.PathEscape(last.stream)+"/state"+query, "", nil, http.StatusOK); err != nil {
			return err
		}
		measured.add(1, time.Since(begin))
	}
	measured.took = time.Since(start)
	r.Name, r.Clients, r.latencyName = fmt.Sprintf("state --events %d", r.events), 1, "state"
	if r.version > 0 {
		r.Name += fmt.Sprintf(" --version %d", r.version)
	}
	return r.finish(ctx, measured, nil)
}

// awaitSnapshot waits until a stream has a snapshot at a version.
func awaitSnapshot(ctx context.Context, w *wire, stream string, version int) error {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		var list struct{ Snapshots []struct{ Version int } }
		if err := w.json("GET", "/v1/snapshots/"+url.PathEscape(stream), nil, http.StatusOK, &list); err != nil {
			return err
		}
		if len(list.Snapshots) > 0 && list.Snapshots[0].Version >= version {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-poll.C:
		}
	}
}
