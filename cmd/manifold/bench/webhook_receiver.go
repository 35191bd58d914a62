package bench

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// receiver is a server for webhooks.
type receiver struct {
	url    string
	server *http.Server
	done   chan struct{}
}

// startReceiver starts a server that passes the body of each request to take. It answers 204 after a delay, or 500 at
// once if take returns an error. Many goroutines call take.
func startReceiver(after time.Duration, take func(body []byte, now time.Time) error) (*receiver, error) {
	return serveWebhooks(func(w http.ResponseWriter, r *http.Request) {
		now := time.Now()
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = take(body, now)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		if after > 0 {
			select {
			case <-time.After(after):
			case <-r.Context().Done():
			}
		}
		w.WriteHeader(http.StatusNoContent)
	})
}

func serveWebhooks(answer http.HandlerFunc) (*receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &receiver{url: "http://" + listener.Addr().String(), server: &http.Server{Handler: answer}, done: make(chan struct{})} //nolint:gosec // its client is the service
	go func() {
		defer close(r.done)
		_ = r.server.Serve(listener) // until it is closed
	}()
	return r, nil
}

func (r *receiver) close() {
	_ = r.server.Close()
	<-r.done
}

// deadURLs are URLs to which nothing can be sent.
type deadURLs struct {
	urls     []string // URLs that hang, fail, refuse and redirect
	requests atomic.Int64
	servers  []*receiver
	over     chan struct{}
}

func startDead() (*deadURLs, error) {
	d := &deadURLs{over: make(chan struct{})}
	for _, answer := range []http.HandlerFunc{
		func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-d.over:
			case <-r.Context().Done():
			}
		},
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		nil,
		func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		},
	} {
		s, err := serveWebhooks(func(w http.ResponseWriter, r *http.Request) {
			d.requests.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
			answer(w, r)
		})
		if err != nil {
			d.close()
			return nil, err
		}
		d.urls = append(d.urls, s.url)
		if answer == nil {
			s.close() // so that its port refuses connections
			continue
		}
		d.servers = append(d.servers, s)
	}
	return d, nil
}

func (d *deadURLs) close() {
	close(d.over)
	for _, s := range d.servers {
		s.close()
	}
}

// webhookCheck counts what arrives at a webhook. Several goroutines may use it.
type webhookCheck struct {
	arrived []atomic.Int32 // number of arrivals, by position
	all     atomic.Int64
	done    chan struct{} // closed when each event has arrived

	mu   sync.Mutex
	left int64
}

var errStrange = errors.New("a request is of no event that is there")

func (c *webhookCheck) take(body []byte, _ time.Time) error {
	position, ok := numberIn(body, `"position":`)
	if !ok || position < 1 || position >= int64(len(c.arrived)) {
		return fmt.Errorf("%w: %.200s", errStrange, body)
	}
	c.all.Add(1)
	first := c.arrived[position].Add(1) == 1
	c.mu.Lock()
	defer c.mu.Unlock()
	if first {
		if c.left--; c.left == 0 {
			close(c.done)
		}
	}
	return nil
}

func (c *webhookCheck) requests() int64 { return c.all.Load() }

func (c *webhookCheck) missing() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left
}
