package bench

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// receiver is a server for webhooks.
type receiver struct {
	url    string
	server *http.Server
	done   chan struct{}
}

// startReceiver starts a server that passes the body of each request to receive. It answers 204 after a delay, or 500
// at once if receive returns an error. Many goroutines call receive.
func (r *run) startReceiver(receive func(body []byte, now time.Time) error) (*receiver, error) {
	return r.serveWebhooks(func(w http.ResponseWriter, request *http.Request) {
		now := time.Now()
		body, err := io.ReadAll(request.Body)
		if err == nil {
			err = receive(body, now)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if r.answerAfter > 0 {
			pause(request.Context(), r.answerAfter)
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

// serveWebhooks starts a server, which the run closes at its end.
func (r *run) serveWebhooks(answer http.HandlerFunc) (*receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &receiver{url: "http://" + listener.Addr().String(), server: &http.Server{Handler: answer}, done: make(chan struct{})} //nolint:gosec // its client is the service
	go func() {
		defer close(s.done)
		_ = s.server.Serve(listener) // until it is closed
	}()
	r.onClose(s.close)
	return s, nil
}

func (s *receiver) close() error {
	err := s.server.Close()
	<-s.done
	return err
}

// deadURLs are URLs to which nothing can be sent.
type deadURLs struct {
	urls     []string // URLs that hang, fail, refuse and redirect
	requests atomic.Int64
}

func (r *run) startDead() (*deadURLs, error) {
	d := &deadURLs{}
	for _, answer := range []http.HandlerFunc{
		func(_ http.ResponseWriter, request *http.Request) { <-request.Context().Done() },
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		nil,
		func(w http.ResponseWriter, request *http.Request) {
			http.Redirect(w, request, "http://127.0.0.1:1/", http.StatusFound)
		},
	} {
		s, err := r.serveWebhooks(func(w http.ResponseWriter, request *http.Request) {
			d.requests.Add(1)
			_, _ = io.Copy(io.Discard, request.Body)
			answer(w, request)
		})
		if err != nil {
			return nil, err
		}
		d.urls = append(d.urls, s.url)
		if answer == nil {
			if err := s.close(); err != nil { // so that its port refuses connections
				return nil, err
			}
		}
	}
	return d, nil
}

// webhookCheck counts what arrives at a webhook. Several goroutines may use it.
type webhookCheck struct {
	arrived  []atomic.Int32 // number of arrivals, by position
	requests atomic.Int64
	left     atomic.Int64  // events that have not arrived
	done     chan struct{} // closed when each event has arrived
}

func (c *webhookCheck) record(body []byte, _ time.Time) error {
	position, ok := numberIn(body, `"position":`)
	if !ok || position < 1 || position >= int64(len(c.arrived)) {
		return fmt.Errorf("unknown event: %.200s", body)
	}
	c.requests.Add(1)
	if c.arrived[position].Add(1) == 1 && c.left.Add(-1) == 0 {
		close(c.done)
	}
	return nil
}

// wait waits until each event has arrived. It fails if nothing arrives for a long time.
func (c *webhookCheck) wait(ctx context.Context) error {
	for before := int64(-1); ; {
		select {
		case <-c.done:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(stalled):
		}
		now := c.requests.Load()
		if now == before {
			return fmt.Errorf("nothing was delivered for %s; %d events are missing", stalled, c.left.Load())
		}
		before = now
	}
}
