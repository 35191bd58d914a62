package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/domain"
)

func readCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "read", "Read a whole log over HTTP, as NDJSON", readHTTP)
	command.Long = `Read a whole log over HTTP, as NDJSON.

The limit is a plain SELECT of the same rows over one connection.`
	command.Flags().IntVar(&f.events, "events", 500_000, "events in the log")
	command.Flags().IntVar(&f.documents, "documents", 50_000, "streams that they are of")
	command.Flags().IntVar(&f.clients, "clients", 1, "clients at the same time; each reads the whole log")
	command.Flags().DurationVar(&f.duration, "duration", 10*time.Second, "how long to measure; the log is read again and again")
	serviceFlags(f, command, "read the log of this running service")
	return command
}

func readHTTP(ctx context.Context, f *flags, progress io.Writer) (_ Result, err error) {
	if f.clients < 1 || f.events < 1 {
		return Result{}, errors.New("--clients and --events must be at least 1")
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
		clients[i] = func(context.Context) (int, error) { return w.readLog() }
	}
	fmt.Fprintf(progress, "reading for %s ...\n", f.duration)
	// The first reading of all is the warm-up: with it the log is in the database's memory.
	if _, err := wires[0].readLog(); err != nil {
		return Result{}, err
	}
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
	result := Result{Name: fmt.Sprintf("read --clients %d", f.clients), Clients: f.clients, what: "whole log"}
	result.take(measured)
	if err := ctx.Err(); err != nil {
		return Result{}, context.Cause(ctx)
	}
	err = s.finish(ctx, &result, "SELECT of the same rows", selectLimit, progress)
	return result, err
}

// readLog reads the whole log and returns the number of its events.
func (w *wire) readLog() (events int, err error) {
	if err := w.send("GET", "/v1/streams/$all", "Accept: application/x-ndjson\r\n", nil); err != nil {
		return 0, err
	}
	status, length, err := w.header()
	if err != nil {
		return 0, err
	}
	if status != 200 || length >= 0 {
		return 0, fmt.Errorf("the service answered %d to a reading of the log, and not as a stream", status)
	}
	body, buffer := w.chunks(), make([]byte, 256<<10)
	for {
		n, err := body.Read(buffer)
		events += bytes.Count(buffer[:n], []byte{'\n'})
		if errors.Is(err, io.EOF) {
			return events, w.trailer()
		}
		if err != nil {
			return events, err
		}
	}
}
