package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/manifold-es/manifold/domain"
)

func appendHTTP(ctx context.Context, f *flags, progress io.Writer) (_ Result, err error) {
	if f.clients < 1 || f.batch < 1 {
		return Result{}, errors.New("--clients and --batch must be at least 1")
	}
	if f.tenants > 1 {
		return Result{}, errors.New("--tenants needs --direct")
	}
	s, err := startService(ctx, f, progress, func(db *database, tenant domain.TenantID) error {
		if f.preload == 0 {
			return nil
		}
		return db.preload(ctx, tenant, f.preload, f.preload/10, progress)
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
	for i := range clients {
		post := appender(wires[i], i, streamLength, f.batch)
		clients[i] = func(context.Context) (int, error) {
			_, _, err := post()
			return f.batch, err
		}
	}
	fmt.Fprintf(progress, "appending for %s ...\n", f.length())
	measured, err := drive(ctx, clients, f.warmUp, f.duration, f.events)
	if err != nil {
		return Result{}, err
	}
	result := Result{Name: f.appendName(), Clients: f.clients, what: "append"}
	result.take(measured)
	result.GeneratorCPU = generatorShare(measured)
	err = s.finish(ctx, &result, "COPY of the same rows", copyLimit, progress)
	return result, err
}

// appender returns a function that sends a client's next request with batch events. It returns the stream and the
// answer's body, which is valid until the next call.
func appender(w *wire, number, length, batch int) func() (stream string, answer []byte, err error) {
	goods, at := newSales(number), newCursor(os.Getpid(), number, length)
	var body []byte
	return func() (string, []byte, error) {
		stream, version := at.advance(batch)
		body = append(body[:0], '[')
		for i := range batch {
			if i > 0 {
				body = append(body, ',')
			}
			body = append(body, `{"id":"`...)
			body = append(body, domain.NewEventID().String()...)
			body = append(body, `","type":"`...)
			body = append(body, kind(version+int64(i)+1)...)
			body = append(body, `","data":`...)
			body = goods.data(body)
			body = append(body, '}')
		}
		body = append(body, ']')
		status, answer, err := w.do("POST", "/v1/streams/"+stream+"/events", "Expected-Version: "+strconv.FormatInt(version, 10)+"\r\n", body)
		return stream, answer, want(status, 201, answer, err)
	}
}
