package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/domain"
)

func publishCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "publish", "Publish messages over HTTP", func(ctx context.Context, f *flags, progress io.Writer) (Result, error) {
		return publish(ctx, f, progress)
	})
	command.Long = `Publish messages of some 200 to 300 bytes from closed-loop clients, each under separate keys: the events of bench append, by
the other door, to be held against that.

The limit is COPY of the same rows into a table like the log's, with its indexes, without row-level security.`
	command.Flags().IntVar(&f.clients, "clients", 64, "clients at the same time")
	command.Flags().IntVar(&f.batch, "batch", 1, "messages in a request")
	command.Flags().DurationVar(&f.duration, "duration", 10*time.Second, "how long to measure")
	command.Flags().DurationVar(&f.warmUp, "warm-up", time.Second, "how long to run before measuring")
	command.Flags().IntVar(&f.events, "events", 0, "end after this many messages instead of after the duration")
	serviceFlags(f, command, "publish to this running service")
	return command
}

func publish(ctx context.Context, f *flags, progress io.Writer) (_ Result, err error) {
	if f.clients < 1 || f.batch < 1 {
		return Result{}, errors.New("--clients and --batch must be at least 1")
	}
	s, err := startService(ctx, f, progress, nil)
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
	for i := range clients {
		post := publisher(wires[i], i, f.batch)
		clients[i] = func(context.Context) (int, error) { return f.batch, post() }
	}
	fmt.Fprintf(progress, "publishing for %s ...\n", f.length())
	measured, err := drive(ctx, clients, f.warmUp, f.duration, f.events)
	if err != nil {
		return Result{}, err
	}
	result := Result{Name: f.loadName("publish"), Clients: f.clients, what: "publish"}
	result.take(measured)
	result.GeneratorCPU = generatorShare(measured)
	err = s.finish(ctx, &result, "COPY of the same rows", copyLimit, progress)
	return result, err
}

// publisher returns a function that sends a client's next request with batch messages.
func publisher(w *wire, number, batch int) func() error {
	goods, at := newSales(number), newCursor(os.Getpid(), number, streamLength)
	var body []byte
	return func() error {
		stream, version := at.advance(batch)
		body = append(body[:0], '[')
		for i := range batch {
			if i > 0 {
				body = append(body, ',')
			}
			body = append(body, `{"id":"`...)
			body = append(body, domain.NewEventID().String()...)
			body = append(body, `","topic":"`...)
			body = append(body, domain.Category(stream)...)
			body = append(body, `","key":"`...)
			body = append(body, domain.Key(stream)...)
			body = append(body, `","type":"`...)
			body = append(body, kind(version+int64(i)+1)...)
			body = append(body, `","payload":`...)
			body = goods.data(body)
			body = append(body, '}')
		}
		body = append(body, ']')
		status, answer, err := w.do("POST", "/v1/publish", "", body)
		return want(status, 201, answer, err)
	}
}
