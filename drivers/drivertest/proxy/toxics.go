package proxy

import (
	"fmt"
	"sync"

	"github.com/Shopify/toxiproxy/v2/toxics"
	"github.com/rs/zerolog"
)

// prepareToxics registers the toxics with Toxiproxy, which finds them by name. It also keeps Toxiproxy's own toxics
// from writing to the test's output, which they do without the proxy's logger.
var prepareToxics = sync.OnceFunc(func() {
	toxics.Register(cutToxic, new(cut))
	toxics.Register(hangToxic, new(hang))
	zerolog.SetGlobalLevel(zerolog.Disabled)
})

// cutToxic is Toxiproxy's limit_data with one difference. The original stops reading, and bytes that then arrive leak
// two goroutines, which a check for leaks finds.
const cutToxic = "manifold_cut"

type cut struct {
	Bytes int `json:"bytes"`
}

// NewState returns the count of a connection's bytes.
func (c *cut) NewState() any { return new(int) }

// Pipe forwards the first bytes.
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

// hangToxic is Toxiproxy's timeout with one difference: when the original is removed, bytes that arrive just then leak
// a goroutine.
const hangToxic = "manifold_hang"

type hang struct{}

// Pipe forwards nothing.
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

// Cleanup ends the connection, and discards what still arrives until it has ended.
func (*hang) Cleanup(stub *toxics.ToxicStub) {
	stub.Close()
	go func() {
		for range stub.Input {
		}
	}()
}
