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
measured. As always, there is a snapshot every 100 events.`,
		state, "events")
	command.Flags().IntVar(&f.events, "events", 10_000, "events in the stream")
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
	if err := w.json("PUT", "/v1/aggregates/order", json.RawMessage(orderState), http.StatusOK, nil); err != nil {
		return err
	}
	r.log("appending %d events to one stream", r.events)
	sender := newSender(w, 0, 0, 1)
	for i := 0; i < r.events && ctx.Err() == nil; i++ {
		if _, err := sender.append(); err != nil {
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
		appended, err := sender.append()
		if err != nil {
			return err
		}
		begin := time.Now()
		if _, err := w.do("GET", "/v1/streams/"+url.PathEscape(appended.stream)+"/state", "", nil, http.StatusOK); err != nil {
			return err
		}
		measured.add(1, time.Since(begin))
	}
	measured.took = time.Since(start)
	r.Name, r.Clients, r.latencyName = fmt.Sprintf("state --events %d", r.events), 1, "state"
	return r.finish(ctx, measured, nil)
}
