package proxy

import (
	"fmt"
	"sync"

	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// prepareToxics makes the toxics known to Toxiproxy, which finds them by name, and keeps Toxiproxy's own from writing to
// the test's output, which they do past the proxy's logger.
var prepareToxics = sync.OnceFunc(func() {
	toxics.Register(cutToxic, new(cut))
	toxics.Register(hangToxic, new(hang))
	zerolog.SetGlobalLevel(zerolog.Disabled)
})

// cutToxic is Toxiproxy's limit_data, but for one thing: that one stops reading, and what comes to it then keeps two
// goroutines for ever, which a check for leaks finds.
const cutToxic = "manifold_cut"

type cut struct {
	Bytes int `json:"bytes"`
}

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

// hangToxic is Toxiproxy's timeout, but for one thing: when that one is taken away, what came to it just then keeps a
// goroutine for ever.
const hangToxic = "manifold_hang"

type hang struct{}

// Pipe lets nothing pass.
func (*hang) Pipe(stub *toxics.ToxicStub) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				stub.Close()
				return
			}
		}
	}
}

// Cleanup ends the connection, and swallows what still comes until it has ended.
func (*hang) Cleanup(stub *toxics.ToxicStub) {
	stub.Close()
	go func() {
		for range stub.Input {
		}
	}()
}
