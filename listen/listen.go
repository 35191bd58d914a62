// Package listen accepts connections for an HTTP server, and keeps clients from crowding each other out.
//
// A Listener never stops accepting. When as many connections are open as it allows, or as one client's address may have,
// it closes the one that is missed least (room.go), and refuses the new one only where every other has a request of a
// known client under way. Known says that a request's client is known. Who a client is follows from its address, as
// PROXY protocol headers or forwarded addresses of trusted proxies name it (address.go). Requests that share connections are bounded alike (requests.go). Certificate serves TLS with
// files that may change (certificate.go).
package listen

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/pires/go-proxyproto"
)

const (
	// headerTimeout is how long a client has to send the header of a request, and to shake hands for TLS.
	headerTimeout = 10 * time.Second
	// proxyTimeout is how long a trusted proxy has to send the PROXY header.
	proxyTimeout = 5 * time.Second
	// idleTimeout is how long a connection may have no request.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes bounds the header of a request. The longest filter of a query, percent-encoded, has 24,000.
	maxHeaderBytes = 64 << 10
	// maxStreams bounds the requests under way on one connection of HTTP/2.
	maxStreams = 100
	// refusalTimeout is how long a refused client has to read why.
	refusalTimeout = 500 * time.Millisecond
	// maxRefusals is how many refused clients may be reading why. Further ones are cut off at once.
	maxRefusals = 64
)

// Config says what a Listener accepts.
type Config struct {
	Address     string // host:port; port 0 takes a free one
	Connections int    // open at the same time; at least 1
	PerAddress  int    // open at the same time by one client's address; 0: no bound of its own
	Proxies     Proxies
	Certificate *Certificate // nil: no TLS

	// Full and Crowded are the HTTP responses to a connection for which there is no room among all, or among those of its
	// address. Over TLS the connection is closed without a word.
	Full, Crowded []byte
}

// Listener accepts connections. All methods may be called concurrently.
type Listener struct {
	config   Config
	inner    net.Listener
	refusals chan struct{} // an element for each refused client that is reading why

	mu       sync.Mutex
	open     int
	requests int       // under way, of those that Limit counts
	unknown  list.List // of these, *pending of clients that are not known, the oldest first
	queues   queues
	clients  map[netip.Prefix]*client

	closed  atomic.Int64 // connections closed to make room
	refused atomic.Int64 // connections and requests refused
}

// client is what is known of one client's address. It exists while it has a connection or a counted request.
type client struct {
	open     int
	requests int
	unknown  list.List
	queues   queues
}

// Open begins to listen. The Listener must be served, or closed.
func Open(config Config) (*Listener, error) {
	inner, err := net.Listen("tcp", config.Address)
	if err != nil {
		return nil, explain(config.Address, err)
	}
	if config.PerAddress == 0 {
		config.PerAddress = math.MaxInt
	}
	return &Listener{config: config, inner: inner, refusals: make(chan struct{}, maxRefusals), clients: make(map[netip.Prefix]*client)}, nil
}

// Serve serves the Listener's connections with server until that is shut down or closed, and returns
// http.ErrServerClosed then. It sets the server's limits, hooks and TLS.
func (l *Listener) Serve(server *http.Server) error {
	server.ReadHeaderTimeout, server.IdleTimeout, server.MaxHeaderBytes = headerTimeout, idleTimeout, maxHeaderBytes
	server.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: maxStreams, WriteByteTimeout: 30 * time.Second}
	server.ConnState = l.changed
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, connOf(c))
	}
	if l.config.Certificate == nil {
		return server.Serve(l)
	}
	server.TLSConfig = l.config.Certificate.tlsConfig()
	return server.ServeTLS(l, "", "")
}

// Addr is where the Listener listens.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// Close stops accepting. Connections stay open.
func (l *Listener) Close() error { return l.inner.Close() }

// Stats are a Listener's figures.
type Stats struct {
	Open    int   // connections now
	Closed  int64 // connections closed so far to make room for others
	Refused int64 // connections and requests refused so far since there was no room
}

// Stats returns the figures as they are now.
func (l *Listener) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{Open: l.open, Closed: l.closed.Load(), Refused: l.refused.Load()}
}

// Accept returns the next connection for which there is room. It is for http.Server: see Serve.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.inner.Accept()
		if err != nil {
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
				l.makeRoom() // the server tries again
			}
			return nil, err
		}
		c := l.newConn(raw)
		if l.admit(c) {
			return c, nil
		}
	}
}

// conn is a connection of a Listener.
type conn struct {
	net.Conn          // with the PROXY header taken off, where there is one
	raw      net.Conn // as it was accepted
	listener *Listener
	known    atomic.Bool // a request of it had a key that works

	identify sync.Once
	proxied  bool       // a PROXY header comes first
	address  netip.Addr // the client's; the proxy's own until the PROXY header was read
	refusal  error      // why nothing is read from it

	// Under the listener's lock.
	admitted bool
	busy     bool    // a request is under way
	served   bool    // it has had one
	client   *client // nil where its address is a trusted proxy's
	prefix   netip.Prefix
	place    place
}

func (l *Listener) newConn(raw net.Conn) *conn {
	c := &conn{Conn: raw, raw: raw, listener: l, address: addressOf(raw.RemoteAddr())}
	if l.config.Proxies.Protocol && l.config.Proxies.trusts(c.address) {
		c.proxied = true
		c.Conn = proxyproto.NewConn(raw, proxyproto.WithPolicy(proxyproto.REQUIRE), proxyproto.SetReadHeaderTimeout(proxyTimeout))
	}
	return c
}

var errCrowded = errors.New("the client's address has too many connections")

// readProxyHeader learns the client's address from a trusted proxy, once. It waits for the proxy, and so is not for the
// goroutine that accepts.
func (c *conn) readProxyHeader() {
	if !c.proxied {
		return
	}
	c.identify.Do(func() {
		header := c.Conn.(*proxyproto.Conn)
		remote := header.RemoteAddr()
		// A header that cannot be read leaves the proxy's address, and fails each Read.
		address := addressOf(remote)
		if !address.IsValid() {
			return
		}
		c.refusal = c.listener.readdress(c, address)
	})
}

// Read reads from the client. It fails where a trusted proxy has sent no PROXY header.
func (c *conn) Read(p []byte) (int, error) {
	c.readProxyHeader()
	if c.refusal != nil {
		return 0, c.refusal
	}
	return c.Conn.Read(p)
}

// RemoteAddr is the client's address. It waits for the PROXY header where one is due.
func (c *conn) RemoteAddr() net.Addr {
	c.readProxyHeader()
	return c.Conn.RemoteAddr()
}

// LocalAddr is the address that the connection was accepted at, whatever a PROXY header says.
func (c *conn) LocalAddr() net.Addr { return c.raw.LocalAddr() }

// CloseWrite tells the client that nothing more comes. The server does so before it closes a connection whose request it
// has not read to the end, so that the client can read the answer.
func (c *conn) CloseWrite() error {
	if half, ok := c.raw.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close closes the connection, and gives its place back.
func (c *conn) Close() error {
	c.listener.forget(c)
	return c.raw.Close()
}

type connKey struct{}

// connOf finds the connection of a Listener below TLS.
func connOf(c net.Conn) *conn {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	found, _ := c.(*conn)
	return found
}

// Known notes that the client of the request that ctx belongs to is known by a key that works: the request is not ended for
// others, and its connection is not closed while it has a request, and after those of unknown clients when it has none.
func Known(ctx context.Context) {
	c, _ := ctx.Value(connKey{}).(*conn)
	if c == nil {
		return
	}
	if !c.known.Load() {
		c.listener.recognise(c)
	}
	if p, _ := ctx.Value(pendingKey{}).(*pending); p != nil {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		c.listener.accept(p)
	}
}
