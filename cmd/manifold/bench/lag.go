package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

func lagCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "lag", "Measure how far a projection is behind a busy log", lag)
	command.Long = `Measure how far a projection is behind a log that is appended to at a steady rate.

The time is from an append's answer until a read with minPosition gives the document with it: what a user waits who reads
what they have just written.`
	command.Flags().Float64Var(&f.rate, "rate", 5000, "events appended a second, one a request")
	command.Flags().IntVar(&f.clients, "clients", 64, "clients that append")
	command.Flags().DurationVar(&f.duration, "duration", 10*time.Second, "how long to measure")
	command.Flags().DurationVar(&f.warmUp, "warm-up", 2*time.Second, "how long to run before measuring")
	return command
}

// readers are the connections that read documents.
const readers = 16

func lag(ctx context.Context, f *flags, progress io.Writer) (_ Result, err error) {
	if f.clients < 1 || f.rate <= 0 {
		return Result{}, errors.New("--clients must be at least 1, --rate more than 0")
	}
	s, err := startService(ctx, f, progress, nil)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	wires, err := s.connect(f.clients + readers)
	if err != nil {
		return Result{}, err
	}
	defer disconnect(wires)
	status, answer, err := wires[0].do("POST", "/v1/projections", "", fmt.Appendf(nil, orders, defaultDatabase))
	if err := want(status, http.StatusCreated, answer, err); err != nil {
		return Result{}, err
	}
	fmt.Fprintf(progress, "appending %.0f events/s for %s ...\n", f.rate, f.duration)
	var lags samples
	busy := lagLoad{
		appenders: wires[:f.clients], readers: wires[f.clients:], path: ordersPath, rate: f.rate, record: lags.add,
	}
	begin := time.Now().Add(f.warmUp)
	measured, err := busy.drive(ctx, f.warmUp, f.duration)
	if err != nil {
		return Result{}, err
	}
	if measured.latencies = lags.between(begin, time.Time{}).latencies; measured.latencies == nil {
		return Result{}, errors.New("nothing was measured: --duration is too short")
	}
	result := Result{Name: fmt.Sprintf("lag --rate %.0f", f.rate), Clients: f.clients, what: "lag"}
	result.take(measured)
	result.GeneratorCPU = generatorShare(measured)
	err = s.finish(ctx, &result, "", nil, progress)
	return result, err
}
