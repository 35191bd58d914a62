package drivertest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// proxy stands between a driver and its server, and does what networks do.
type proxy struct {
	*toxiproxy.Proxy
	t *testing.T
}

// Directions of a connection.
const (
	toServer = "upstream"
	toDriver = "downstream"
)

// newProxy starts a proxy before the server at the address. It ends with the test.
func newProxy(t *testing.T, address string) *proxy {
	t.Helper()
	prepareToxics()
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	p := &proxy{toxiproxy.NewProxy(server, t.Name(), "127.0.0.1:0", address), t}
	p.up()
	t.Cleanup(p.Stop)
	return p
}

// up starts the proxy again after Stop, at the same address.
func (p *proxy) up() {
	p.t.Helper()
	if err := p.Start(); err != nil {
		p.t.Fatalf("start the proxy: %v", err)
	}
}

func (p *proxy) add(kind, direction string, toxicity float64, attributes map[string]any) {
	p.t.Helper()
	text, err := json.Marshal(map[string]any{
		"name": kind + " " + direction, "type": kind, "stream": direction, "toxicity": toxicity, "attributes": attributes,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.Toxics.AddToxicJson(strings.NewReader(string(text))); err != nil {
		p.t.Fatalf("add the toxic %s: %v", text, err)
	}
}

// cut cuts every connection after so many bytes in the direction; reset: by RST instead of FIN.
func (p *proxy) cut(direction string, bytes int, reset bool) {
	p.t.Helper()
	if reset {
		// The toxic itself never acts: that it is there is what makes new connections end so.
		p.add("reset_peer", direction, 0, nil)
	}
	p.add(cutToxic, direction, 1, map[string]any{"bytes": bytes})
}

// slow lets so many kilobytes a second pass.
func (p *proxy) slow(direction string, rate int) {
	p.t.Helper()
	p.add("bandwidth", direction, 1, map[string]any{"rate": rate})
}

// hang swallows everything in the direction and keeps the connections.
func (p *proxy) hang(direction string) {
	p.t.Helper()
	p.add("timeout", direction, 1, map[string]any{"timeout": 0})
}

// heal lets everything pass.
func (p *proxy) heal() { p.Toxics.ResetToxics(context.Background()) }

// cutToxic is Toxiproxy's limit_data, but for one thing: that one stops reading, and what comes to it then keeps two
// goroutines for ever, which a check for leaks finds.
const cutToxic = "manifold_cut"

type cut struct {
	Bytes int `json:"bytes"`
}

// prepareToxics makes the toxic known to Toxiproxy, which finds toxics by name, and keeps Toxiproxy's own from writing to
// the test's output, which they do past the proxy's logger.
var prepareToxics = sync.OnceFunc(func() {
	toxics.Register(cutToxic, new(cut))
	zerolog.SetGlobalLevel(zerolog.Disabled)
})

// NewState makes the count of a connection's bytes.
func (c *cut) NewState() any { return new(int) }

// Pipe lets the first bytes pass.
func (c *cut) Pipe(stub *toxics.ToxicStub) {
	passed, ok := stub.State.(*int)
	if !ok {
		panic(fmt.Sprintf("the state is %T", stub.State))
	}
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				stub.Close()
				return
			}
			chunk.Data = chunk.Data[:min(len(chunk.Data), c.Bytes-*passed)]
			*passed += len(chunk.Data)
			if len(chunk.Data) > 0 {
				stub.Output <- chunk
			}
			if *passed >= c.Bytes {
				stub.Close()
				for chunk != nil {
					chunk = <-stub.Input
				}
				return
			}
		}
	}
}
