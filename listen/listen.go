// Package listen accepts connections for an HTTP server and keeps clients from crowding each other out.
//
// A Listener never stops accepting. Config limits the open connections, in total and per client address. When a limit
// is reached, the Listener closes the least valuable connection (room.go). It refuses the new connection only if every
// other one has a request of a known client under way. The server calls Known when it has identified the client of a
// request. A client's address comes from the connection, from PROXY protocol headers, or from the forwarding headers of
// trusted proxies (address.go). Requests that share connections have the same limits (requests.go). Certificate serves
// TLS with files that may change (certificate.go).
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
	// headerTimeout is how long a client has for the header of a request, and for the TLS handshake.
	headerTimeout = 10 * time.Second
	// proxyTimeout is how long a trusted proxy has to send the PROXY header.
	proxyTimeout = 5 * time.Second
	// idleTimeout is how long a connection may stay open without a request.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes limits the header of a request. The longest filter of a query has 24,000 bytes when
	// percent-encoded.
	maxHeaderBytes = 64 << 10
	// maxStreams limits the concurrent requests on one HTTP/2 connection.
	maxStreams = 100
	// refusalTimeout is how long a refused client has to read the reason.
	refusalTimeout = 500 * time.Millisecond
	// maxRefusals is how many refused clients may be reading the reason at the same time. Further ones are disconnected
	// at once.
	maxRefusals = 64
)

// Config says what a Listener accepts.
type Config struct {
	Address     string // host:port; port 0 chooses a free port
	Connections int    // limit of open connections; at least 1
	PerAddress  int    // limit of open connections per client address; 0: none
	Proxies     Proxies
	Certificate *Certificate // nil: no TLS

	// Full and Crowded are the HTTP responses to refused connections: Full if the Listener has no room, Crowded if the
	// client's address has none. Over TLS the connection is closed without a response.
	Full, Crowded []byte
}

// Listener accepts connections. All methods are safe for concurrent use.
type Listener struct {
	config   Config
	inner    net.Listener
	refusals chan struct{} // one element per refused client that is reading the reason

	mu       sync.Mutex
	open     int
	requests int       // requests under way that Limit counts
	unknown  list.List // those of unknown clients, as *pending, the oldest first
	queues   queues
	clients  map[netip.Prefix]*client

	closed  atomic.Int64 // connections closed to make room
	refused atomic.Int64 // connections and requests refused
}

// client counts what one client address has open. It exists while the address has a connection or a counted request.
type client struct {
	open     int
	requests int
	unknown  list.List
	queues   queues
}

// Open starts to listen. The caller must serve the Listener or close it.
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

// Serve serves the Listener's connections with server until the server is shut down or closed, and then returns
// http.ErrServerClosed. It sets the server's limits, hooks and TLS.
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

// Addr returns the address that the Listener listens on.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// Close stops accepting. Open connections stay open.
func (l *Listener) Close() error { return l.inner.Close() }

// Stats are a Listener's counters.
type Stats struct {
	Open    int   // connections that are open now
	Closed  int64 // connections closed so far to make room
	Refused int64 // connections and requests refused so far for lack of room
}

// Stats returns the current counters.
func (l *Listener) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Stats{Open: l.open, Closed: l.closed.Load(), Refused: l.refused.Load()}
}

// Accept returns the next connection for which there is room. http.Server calls it: see Serve.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.inner.Accept()
		if err != nil {
			if errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) {
				l.makeRoom() // the server then retries
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
	net.Conn          // without the PROXY header
	raw      net.Conn // the connection as it was accepted
	listener *Listener
	known    atomic.Bool // one of its requests had a valid key

	identify sync.Once
	proxied  bool       // a PROXY header comes first
	address  netip.Addr // the client's; the proxy's until the PROXY header was read
	refusal  error      // why nothing can be read from it

	// The listener's lock guards these fields.
	admitted bool
	busy     bool    // a request is under way
	served   bool    // it has had a request
	client   *client // nil if its address is a trusted proxy's
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

// readProxyHeader reads the client's address from a trusted proxy, once. It waits for the proxy, so the goroutine that
// accepts must not call it.
func (c *conn) readProxyHeader() {
	if !c.proxied {
		return
	}
	c.identify.Do(func() {
		header := c.Conn.(*proxyproto.Conn)
		remote := header.RemoteAddr()
		// After an unreadable header, the proxy's address stays and each Read fails.
		address := addressOf(remote)
		if !address.IsValid() {
			return
		}
		c.refusal = c.listener.assignProxied(c, address)
	})
}

// Read reads from the client. It fails if a trusted proxy has sent no PROXY header.
func (c *conn) Read(p []byte) (int, error) {
	c.readProxyHeader()
	if c.refusal != nil {
		return 0, c.refusal
	}
	return c.Conn.Read(p)
}

// RemoteAddr returns the client's address. If a PROXY header is expected, RemoteAddr waits for it.
func (c *conn) RemoteAddr() net.Addr {
	c.readProxyHeader()
	return c.Conn.RemoteAddr()
}

// LocalAddr returns the address at which the connection was accepted, whatever a PROXY header says.
func (c *conn) LocalAddr() net.Addr { return c.raw.LocalAddr() }

// CloseWrite signals the end of the response to the client. The server calls it before it closes a connection whose
// request it has not read completely, so that the client can read the response.
func (c *conn) CloseWrite() error {
	if half, ok := c.raw.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// Close closes the connection and frees its place.
func (c *conn) Close() error {
	c.listener.forget(c)
	return c.raw.Close()
}

type connKey struct{}

// connOf returns the Listener's connection beneath TLS.
func connOf(c net.Conn) *conn {
	if encrypted, ok := c.(*tls.Conn); ok {
		c = encrypted.NetConn()
	}
	found, _ := c.(*conn)
	return found
}

// Known marks the client of ctx's request as known, because its key is valid. The request is then never ended to make
// room. Its connection is not closed while it has a request, and after those of unknown clients when it is idle.
func Known(ctx context.Context) {
	c, _ := ctx.Value(connKey{}).(*conn)
	if c == nil {
		return
	}
	if !c.known.Load() {
		c.listener.markKnown(c)
	}
	if p, _ := ctx.Value(pendingKey{}).(*pending); p != nil {
		c.listener.mu.Lock()
		defer c.listener.mu.Unlock()
		c.listener.accept(p)
	}
}
