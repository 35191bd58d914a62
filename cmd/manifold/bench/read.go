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

	"github.com/manifold-es/manifold/domain"
)

func readCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "read", "Read a whole log over HTTP, as NDJSON", readHTTP)
	command.Long = `Read a whole log over HTTP, or a category or stream after stream, as NDJSON.

The limit is a plain SELECT of the same rows over one connection.`
	command.Flags().IntVar(&f.events, "events", 500_000, "events in the log")
	command.Flags().IntVar(&f.documents, "documents", 50_000, "streams that they are of")
	command.Flags().StringVar(&f.reading, "of", "log", "what a reading is of: log, category (all events are of one), or stream (one after the other)")
	command.Flags().IntVar(&f.clients, "clients", 1, "clients at the same time; each reads for itself")
	command.Flags().DurationVar(&f.duration, "duration", 10*time.Second, "how long to measure; it is read again and again")
	serviceFlags(f, command, "read the log of this running service")
	return command
}

func readHTTP(ctx context.Context, f *flags, progress io.Writer) (_ Result, err error) {
	if f.clients < 1 || f.events < 1 || f.documents < 1 {
		return Result{}, errors.New("--clients, --events and --documents must be at least 1")
	}
	place, ok := readings[f.reading]
	if !ok {
		return Result{}, fmt.Errorf("--of %s: say log, category or stream", f.reading)
	}
	s, err := startService(ctx, f, progress, func(db *database, tenant domain.TenantID) error {
		return db.preload(ctx, tenant, f.events, f.documents, progress)
	})
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	wires, err := s.connect(f.clients)
	if err != nil {
		return Result{}, err
	}
	defer disconnect(wires)
	clients := make([]client, f.clients)
	for i, w := range wires {
		next := i
		clients[i] = func(context.Context) (int, error) {
			next += f.clients
			return w.readEvents(place(next % f.documents))
		}
	}
	fmt.Fprintf(progress, "reading for %s ...\n", f.duration)
	// The very first read is the warm-up: it loads the log into the database's memory.
	if _, err := wires[0].readEvents(readings["log"](0)); err != nil {
		return Result{}, err
	}
	cpu := s.watch(ctx)
	var measured load
	start := time.Now()
	for time.Since(start) < f.duration && ctx.Err() == nil {
		round, err := together(ctx, clients)
		if err != nil {
			return Result{}, err
		}
		measured.add(round)
	}
	measured.took = time.Since(start)
	result := Result{Name: fmt.Sprintf("read --of %s --clients %d", f.reading, f.clients), Clients: f.clients, what: "reading of a " + f.reading}
	result.take(measured)
	result.tellUsageOf(cpu, measured.events)
	if err := ctx.Err(); err != nil {
		return Result{}, context.Cause(ctx)
	}
	err = s.finish(ctx, &result, "SELECT of the same rows", selectLimit, progress)
	return result, err
}

// readings are the paths to read, by the value of --of. For streams, the argument is the stream's number.
var readings = map[string]func(stream int) string{
	"log":      func(int) string { return "/v1/streams/$all" },
	"category": func(int) string { return "/v1/categories/order/events" },
	"stream":   func(stream int) string { return fmt.Sprintf("/v1/streams/order-%d", stream) },
}

// readEvents reads all events of a log, a category or a stream, and returns how many there are.
func (w *wire) readEvents(path string) (events int, err error) {
	if err := w.send("GET", path, "Accept: application/x-ndjson\r\n", nil); err != nil {
		return 0, err
	}
	status, length, err := w.header()
	if err != nil {
		return 0, err
	}
	if status != http.StatusOK && status != http.StatusNotFound {
		return 0, fmt.Errorf("the service answered %d to a reading of %s", status, path)
	}
	body, whole := w.chunks(), w.trailer
	if length >= 0 {
		body, whole = io.LimitReader(w.in, int64(length)), func() error { return nil }
	}
	if status == http.StatusNotFound {
		_, err := io.Copy(io.Discard, body)
		return 0, errors.Join(err, whole()) // streams are chosen at random, so some have no event
	}
	buffer := make([]byte, 256<<10)
	for {
		n, err := body.Read(buffer)
		events += bytes.Count(buffer[:n], []byte{'\n'})
		if errors.Is(err, io.EOF) {
			return events, whole()
		}
		if err != nil {
			return events, err
		}
	}
}
