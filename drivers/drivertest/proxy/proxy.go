// Package proxy simulates network faults between a program and a database, for tests. It is Toxiproxy, with separate
// toxics where Toxiproxy's leak goroutines, which a check for leaks finds. Start with New.
package proxy

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"
)

// Proxy forwards to a server. Its methods belong to one goroutine, the test's. A failing method fails the test.
type Proxy struct {
	proxy *toxiproxy.Proxy
	t     *testing.T
}

// Direction is one of a connection's two directions.
type Direction string

// The directions of a connection.
const (
	ToServer Direction = "upstream"
	ToClient Direction = "downstream"
)

// New starts a proxy for the server at the address, a host and a port. It ends with the test.
func New(t *testing.T, address string) *Proxy {
	t.Helper()
	prepareToxics()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &Proxy{toxiproxy.NewProxy(server, t.Name(), "127.0.0.1:0", address), t}
	p.Up()
	t.Cleanup(p.Down)
	return p
}

// Address is where the proxy listens: a host and a port, the same for as long as it lives.
func (p *Proxy) Address() string { return p.proxy.Listen }

// Down ends every connection, and refuses new ones until Up.
func (p *Proxy) Down() { p.proxy.Stop() }

// Up accepts connections again after Down.
func (p *Proxy) Up() {
	p.t.Helper()
	if err := p.proxy.Start(); err != nil {
		p.t.Fatalf("start the proxy: %v", err)
	}
}

// Cut ends every connection after so many bytes in the direction. With reset, it ends with RST instead of FIN.
func (p *Proxy) Cut(direction Direction, bytes int, reset bool) {
	p.t.Helper()
	if reset {
		// This toxic itself never acts, but its presence makes new connections end with RST.
		p.add("reset_peer", direction, 0, nil)
	}
	p.add(cutToxic, direction, 1, map[string]any{"bytes": bytes})
}

// Slow limits the direction to so many kilobytes per second.
func (p *Proxy) Slow(direction Direction, rate int) {
	p.t.Helper()
	p.add("bandwidth", direction, 1, map[string]any{"rate": rate})
}

// Delay delays everything in the direction.
func (p *Proxy) Delay(direction Direction, by time.Duration) {
	p.t.Helper()
	p.add("latency", direction, 1, map[string]any{"latency": by.Milliseconds(), "jitter": by.Milliseconds() / 2})
}

// Hang discards everything in the direction and keeps the connections open.
func (p *Proxy) Hang(direction Direction) {
	p.t.Helper()
	p.add(hangToxic, direction, 1, nil)
}

// Heal removes all faults. Connections that hung or were cut end, because their lost bytes cannot be restored.
func (p *Proxy) Heal() { p.proxy.Toxics.ResetToxics(context.Background()) }

func (p *Proxy) add(kind string, direction Direction, toxicity float64, attributes map[string]any) {
	p.t.Helper()
	text, err := json.Marshal(map[string]any{
		"name": kind + " " + string(direction), "type": kind, "stream": direction, "toxicity": toxicity, "attributes": attributes,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.proxy.Toxics.AddToxicJson(strings.NewReader(string(text))); err != nil {
		p.t.Fatalf("add the toxic %s: %v", text, err)
	}
}
