package tables_test

import (
	"bytes"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/tables/tablestest"
)

// cut is what a proxy does to a connection whose client is committing an append, or the save of a ledger.
type cut int

const (
	cutNothing cut = iota
	cutBefore      // the commit does not reach the database
	cutBehind      // the commit does, its answer does not come back
	cutStalled     // the client's side ends at once; the commit reaches the database when the proxy's stalled channel says so
)

// cancelRequest begins the message by which a client cancels what another connection does.
var cancelRequest = []byte{0, 0, 0, 16, 0x04, 0xd2, 0x16, 0x2e}

// proxy stands between a store and the database, and cuts connections at the worst moment.
type proxy struct {
	listener net.Listener
	server   string
	cut      func() cut
	stalled  chan struct{}
	ended    chan struct{} // closed at the end of the test
	cutDone  chan struct{} // has one when a connection was cut
	hold     chan struct{} // where it is there: connections made behind a cut wait until it is closed

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool // refuses connections
	done   bool // a connection was cut
	wg     sync.WaitGroup
}

// newProxy proxies the server of a connection URL; cut is asked at each commit of an append or a save.
func newProxy(t *testing.T, target string, cut func() cut) *proxy {
	t.Helper()
	to, err := url.Parse(target)
	tablestest.Must(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	tablestest.Must(t, err)
	p := &proxy{listener: listener, server: to.Host, cut: cut, stalled: make(chan struct{}), ended: make(chan struct{}),
		cutDone: make(chan struct{}, 1), conns: make(map[net.Conn]bool)}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		close(p.ended)
		listener.Close()
		p.refuse()
		p.wg.Wait()
	})
	return p
}

// through gives the connection URL that leads through the proxy.
func (p *proxy) through(t *testing.T, target string) string {
	t.Helper()
	to, err := url.Parse(target)
	tablestest.Must(t, err)
	to.Host = p.listener.Addr().String()
	return to.String()
}

// refuse cuts all connections, and every new one from now on.
func (p *proxy) refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for conn := range p.conns {
		conn.Close()
	}
}

func (p *proxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		if p.closed {
			conn.Close()
		}
		p.conns[conn] = true
	}
	return !p.closed
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		held := p.done && p.hold != nil
		p.mu.Unlock()
		if held {
			select {
			case <-p.hold:
			case <-p.ended:
			}
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			client.Close()
			continue
		}
		if !p.track(client, server) {
			server.Close()
			continue
		}
		var behind sync.Once
		cutting := make(chan struct{}) // closed when the answer to a commit is to be swallowed
		p.wg.Go(func() { p.up(client, server, func() { behind.Do(func() { close(cutting) }) }) })
		p.wg.Go(func() { p.down(client, server, cutting) })
	}
}

// wasCut tells that a connection was cut.
func (p *proxy) wasCut() {
	p.mu.Lock()
	p.done = true
	p.mu.Unlock()
	select {
	case p.cutDone <- struct{}{}:
	default:
	}
}

// up carries what the client sends. An append's commit follows its insert in the same write, and a save's commit
// follows the save.
func (p *proxy) up(client, server net.Conn, swallow func()) {
	defer client.Close()
	defer server.Close()
	buffer := make([]byte, 1<<20)
	for {
		n, err := client.Read(buffer)
		if err != nil {
			return
		}
		chunk := buffer[:n]
		if bytes.HasPrefix(chunk, cancelRequest) {
			return // a client whose connection broke cannot cancel either; it would end the transaction that is to be waited for
		}
		insert := bytes.Index(chunk, []byte("manifold_insert_event"))
		if insert < 0 {
			insert = bytes.Index(chunk, []byte("manifold_save_ledger"))
		}
		if insert >= 0 {
			if commit := bytes.Index(chunk[insert:], []byte("manifold_commit\x00")); commit >= 0 {
				// Inside the message: the database waits for its rest.
				switch at := insert + commit; p.cut() {
				case cutBefore:
					server.Write(chunk[:at])
					p.wasCut()
					return
				case cutBehind:
					swallow()
				case cutStalled:
					server.Write(chunk[:at])
					client.Close()
					select {
					case <-p.stalled:
					case <-p.ended:
						return
					}
					server.Write(chunk[at:])
					server.Read(make([]byte, 1<<10)) // until it has answered
					return
				}
			}
		}
		if _, err := server.Write(chunk); err != nil {
			return
		}
	}
}

// down carries the answers, up to a commit's that is to be swallowed.
func (p *proxy) down(client, server net.Conn, cutting <-chan struct{}) {
	buffer := make([]byte, 1<<20)
	for {
		n, err := server.Read(buffer)
		if err != nil {
			client.Close()
			return
		}
		select {
		case <-cutting:
			if bytes.Contains(buffer[:n], []byte("COMMIT\x00")) || bytes.Contains(buffer[:n], []byte("SERROR\x00")) {
				p.wasCut()
				client.Close()
				server.Close()
				return
			}
			continue
		default:
		}
		if _, err := client.Write(buffer[:n]); err != nil {
			// The server's side stays open where its commit is still to come.
			continue
		}
	}
}
