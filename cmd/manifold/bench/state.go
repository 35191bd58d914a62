package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

func stateCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "state", "Load the state of a long stream while it grows", state)
	command.Long = `Load the state of a long stream over HTTP while it grows: one event is appended, the state is loaded, and so on. Only the
loading is measured. Snapshots are taken as always, every 100 events.`
	command.Flags().IntVar(&f.events, "events", 10_000, "events in the stream")
	command.Flags().DurationVar(&f.duration, "duration", 10*time.Second, "how long to measure")
	return command
}

// orderState is the benchmark's aggregate.
const orderState = `{"initial":{"events":0,"total":0},"on":{` +
	`"ItemAdded":"merge(state, {\"events\": state.events + 1, \"total\": state.total + event.data.price * event.data.quantity})",` +
	`"*":"merge(state, {\"events\": state.events + 1})"}}`

func state(ctx context.Context, f *flags, progress io.Writer) (_ Result, err error) {
	if f.events < 1 {
		return Result{}, errors.New("--events must be at least 1")
	}
	s, err := startService(ctx, f, progress, nil)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	w, err := dial(s.url, s.key)
	if err != nil {
		return Result{}, err
	}
	defer w.close()
	status, answer, err := w.do("PUT", "/v1/aggregates/order", "", []byte(orderState))
	if err := want(status, http.StatusOK, answer, err); err != nil {
		return Result{}, err
	}
	fmt.Fprintf(progress, "appending %d events to one stream ...\n", f.events)
	single := appender(w, 0, 0, 1) // this determines the stream's name
	stream, _, err := single()
	for i := 1; i < f.events && err == nil && ctx.Err() == nil; i++ {
		_, _, err = single()
	}
	if err != nil {
		return Result{}, err
	}
	fmt.Fprintf(progress, "loading its state for %s ...\n", f.duration)
	path := "/v1/streams/" + url.PathEscape(stream) + "/state"
	var measured load
	start := time.Now()
	for time.Since(start) < f.duration {
		if ctx.Err() != nil {
			return Result{}, context.Cause(ctx)
		}
		if _, _, err := single(); err != nil {
			return Result{}, err
		}
		begin := time.Now()
		status, answer, err := w.do("GET", path, "", nil)
		if err := want(status, http.StatusOK, answer, err); err != nil {
			return Result{}, err
		}
		measured.count(1, time.Since(begin))
	}
	measured.took = time.Since(start)
	result := Result{Name: fmt.Sprintf("state --events %d", f.events), Clients: 1, what: "state"}
	result.take(measured)
	err = s.finish(ctx, &result, "", nil, progress)
	return result, err
}
