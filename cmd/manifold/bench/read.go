package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

func readCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "read", "Read events over HTTP, as NDJSON",
		`Read a log, a category, or one stream after another over HTTP, as NDJSON.

The limit is a plain SELECT of the same rows over one connection.`,
		read, "clients", "events", "documents")
	command.Flags().IntVar(&f.events, "events", 500_000, "events in the log")
	command.Flags().IntVar(&f.documents, "documents", 50_000, "streams in the log")
	command.Flags().StringVar(&f.reading, "of", "log", "what to read: log, category (the one that has all events), or stream (one after another)")
	command.Flags().IntVar(&f.clients, "clients", 1, "concurrent clients; each reads everything")
	command.Flags().DurationVar(&f.duration, "duration", 10*time.Second, "how long to measure; reading is repeated until then")
	f.serviceFlags(command, "read the log of this running service")
	return command
}

// readings are the paths to read, by the value of --of. For streams, the argument is the stream's number.
var readings = map[string]func(stream int) string{
	"log":      func(int) string { return "/v1/streams/$all" },
	"category": func(int) string { return "/v1/categories/order/events" },
	"stream":   func(stream int) string { return fmt.Sprintf("/v1/streams/order-%d", stream) },
}

func read(ctx context.Context, r *run) error {
	path, ok := readings[r.reading]
	if !ok {
		return fmt.Errorf("--of %s: expected log, category or stream", r.reading)
	}
	s, err := r.startService(ctx)
	if err != nil {
		return err
	}
	if r.db != nil {
		if err := r.fillLogs(ctx, history{events: r.events, streams: r.documents}, s.tenant); err != nil {
			return err
		}
	}
	wires, err := r.connect(r.clients)
	if err != nil {
		return err
	}
	r.log("reading for %s", r.duration)
	// The very first read is the warm-up: it loads the log into the database's memory.
	if _, err := wires[0].countEvents(readings["log"](0)); err != nil {
		return err
	}
	usage := r.watchUsage(ctx)
	var measured load
	for stream := 0; time.Since(usage.began) < r.duration; stream += r.clients {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		// All clients begin each round together.
		events, took := make([]int, r.clients), make([]time.Duration, r.clients)
		var round errgroup.Group
		for i, w := range wires {
			round.Go(func() (err error) {
				begin := time.Now()
				events[i], err = w.countEvents(path((stream + i) % r.documents))
				took[i] = time.Since(begin)
				return err
			})
		}
		if err := round.Wait(); err != nil {
			return err
		}
		for i := range wires {
			measured.add(events[i], took[i])
		}
	}
	measured.took = time.Since(usage.began)
	r.Name, r.latencyName = fmt.Sprintf("read --of %s --clients %d", r.reading, r.clients), "read of a "+r.reading
	r.Clients = r.clients
	r.addUsagePerEvent(usage, measured.events)
	return r.finish(ctx, measured, selectLimit)
}

// countEvents reads all events of a log, a category or a stream, and returns how many there are.
func (w *wire) countEvents(path string) (events int, err error) {
	if err := w.send("GET", path, "Accept: application/x-ndjson\r\n", nil); err != nil {
		return 0, err
	}
	status, length, err := w.header()
	if err != nil {
		return 0, err
	}
	if status != http.StatusOK && status != http.StatusNotFound {
		return 0, &statusError{status, path}
	}
	body, end := w.chunks(), w.trailer
	if length >= 0 {
		body, end = io.LimitReader(w.in, int64(length)), func() error { return nil }
	}
	buffer := make([]byte, 256<<10)
	for {
		n, err := body.Read(buffer)
		events += bytes.Count(buffer[:n], []byte{'\n'})
		switch {
		case errors.Is(err, io.EOF) && status == http.StatusNotFound:
			return 0, end() // the events are of random streams, so some streams have none
		case errors.Is(err, io.EOF):
			return events, end()
		case err != nil:
			return 0, err
		}
	}
}
