package listen

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pires/go-proxyproto"
)

// patience is how long a test waits for something that should happen at once.
const patience = 20 * time.Second

// backend is a server with a Listener.
type backend struct {
	*Listener
	address string
	endless *atomic.Int64 // endless responses under way
}

// serve runs a handler for tests. It answers /known as if the key were valid, /wait when the client has gone or
// released is closed, /endless with as much as the client reads, and /client with ClientAddress. It answers everything
// else with the remote address.
func serve(t *testing.T, config Config, released <-chan struct{}) *backend {
	t.Helper()
	config.Address = "127.0.0.1:0"
	config.Full, config.Crowded = raw(503), raw(429)
	l, err := Open(config)
	if err != nil {
		t.Fatal(err)
	}
	endless := new(atomic.Int64)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/known") {
			Known(r.Context())
		}
		if strings.HasSuffix(r.URL.Path, "/wait") {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			select {
			case <-released:
			case <-r.Context().Done():
			}
			return
		}
		if r.URL.Path == "/endless" {
			endless.Add(1)
			defer endless.Add(-1)
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					return
				}
			}
			return
		}
		if r.URL.Path == "/client" {
			fmt.Fprint(w, ClientAddress(r.Context()))
			return
		}
		fmt.Fprint(w, r.RemoteAddr)
	})
	server := &http.Server{ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError), Handler: l.Limit(handler, func(w http.ResponseWriter, _ *http.Request, crowded bool) {
		if crowded {
			w.WriteHeader(http.StatusTooManyRequests)
		} else {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})}
	served := make(chan error, 1)
	go func() { served <- l.Serve(server) }()
	t.Cleanup(func() {
		server.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	return &backend{l, l.Addr().String(), endless}
}

// underWay returns the number of counted requests.
func (b *backend) underWay() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests
}

// waiting returns the number of connections that have had a request and have none now. A client receives its response
// a moment before its connection counts as waiting.
func (b *backend) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queues[unknownIdle].Len() + b.queues[knownIdle].Len()
}

func raw(status int) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", status, http.StatusText(status))
}

// peer is a client with one connection.
type peer struct {
	t *testing.T
	net.Conn
	read *bufio.Reader
}

// dial connects from one of this machine's addresses; if from is empty, from 127.0.0.1.
func (b *backend) dial(t *testing.T, from string) *peer {
	t.Helper()
	dialer := net.Dialer{Timeout: patience}
	if from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	c, err := dialer.DialContext(t.Context(), "tcp", b.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &peer{t, c, bufio.NewReader(c)}
}

// send sends a request.
func (p *peer) send(path string, header ...string) {
	p.t.Helper()
	text := "GET " + path + " HTTP/1.1\r\nHost: x\r\n"
	for _, line := range header {
		text += line + "\r\n"
	}
	if _, err := io.WriteString(p, text+"\r\n"); err != nil {
		p.t.Fatal(err)
	}
}

// answer reads a response's status, and its body unless the response is endless.
func (p *peer) answer(goesOn bool) (status int, body string, err error) {
	r, err := http.ReadResponse(p.read, nil)
	if err != nil {
		return 0, "", err
	}
	if goesOn {
		return r.StatusCode, "", nil
	}
	text, err := io.ReadAll(r.Body)
	return r.StatusCode, string(text), err
}

// asks sends a request and checks the status of the response.
func (p *peer) asks(path string, want int, header ...string) (body string) {
	p.t.Helper()
	p.send(path, header...)
	status, body, err := p.answer(strings.HasSuffix(path, "/wait"))
	if err != nil || status != want {
		p.t.Fatalf("GET %s is answered %d, %v; want %d", path, status, err, want)
	}
	return body
}

// ends waits until an endless response has ended.
func (p *peer) ends() {
	p.t.Helper()
	if _, err := io.Copy(io.Discard, p.read); isTimeout(err) {
		p.t.Fatal("the request continues")
	}
}

// isClosed waits until the service has closed the connection.
func (p *peer) isClosed() {
	p.t.Helper()
	if _, err := p.read.ReadByte(); err == nil || errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
		p.t.Errorf("the connection is not closed: %v", err)
	}
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// settles waits until the listener's counters are as wanted.
func (b *backend) settles(t *testing.T, want func(Stats) bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); !want(b.Stats()); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("the figures are %+v", b.Stats())
		}
	}
}

// However many connections are idle or silent, the next client is answered.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	const most = 8
	for _, path := range []string{"", "/", "/known"} {
		b := serve(t, Config{Connections: most}, nil)
		idle := make([]*peer, most)
		for i := range idle {
			idle[i] = b.dial(t, "")
			if path != "" {
				idle[i].asks(path, 200)
				b.settles(t, func(Stats) bool { return b.waiting() == i+1 })
			}
		}
		b.settles(t, func(s Stats) bool { return s.Open == most })
		first := b.dial(t, "")
		first.asks("/", 200)
		idle[0].isClosed()
		for range 3 * most {
			b.dial(t, "").asks("/", 200)
		}
		b.settles(t, func(s Stats) bool { return s.Open == most && s.Closed == 3*most+1 && s.Refused == 0 })
	}
}

// A known client is not closed for others while it has a request. A client that arrives when all places are taken gets
// a reason.
func TestWorkingConnectionsStay(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	b := serve(t, Config{Connections: 3}, released)
	working := []*peer{b.dial(t, ""), b.dial(t, "")}
	for _, p := range working {
		p.asks("/known/wait", 200)
	}
	stranger := b.dial(t, "")
	stranger.asks("/wait", 200)
	third := b.dial(t, "")
	third.asks("/known/wait", 200)
	stranger.isClosed()
	refused := b.dial(t, "")
	if status, _, err := refused.answer(false); err != nil || status != 503 {
		t.Errorf("beyond the last place: %d, %v", status, err)
	}
	refused.isClosed()
	close(released)
	for _, p := range append(working, third) {
		if chunk, err := p.read.ReadString('\n'); err != nil || chunk != "0\r\n" { // the end of a chunked body
			t.Errorf("a working connection was cut: %q, %v", chunk, err)
		}
	}
	b.settles(t, func(Stats) bool { return b.waiting() > 0 })
	b.dial(t, "").asks("/", 200)
}

// A flood of clients without a key closes its own connections only, and not those of a known client that is idle
// between requests.
func TestAFloodLeavesKnownClientsAlone(t *testing.T) {
	t.Parallel()
	const most = 8
	b := serve(t, Config{Connections: most}, nil)
	known := b.dial(t, "")
	known.asks("/known", 200)
	for i := range 10 * most {
		p := b.dial(t, "")
		if i%2 == 0 {
			p.asks("/", 200)
		}
	}
	b.settles(t, func(s Stats) bool { return s.Open == most && s.Closed == 9*most+1 })
	known.asks("/known", 200)
}

// Each address has a limit, and reaching it affects no other address.
func TestConnectionsOfOneAddress(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	defer close(released)
	b := serve(t, Config{Connections: 100, PerAddress: 2}, released)
	bystander := b.dial(t, "127.0.0.1")
	bystander.asks("/", 200)
	greedy := []*peer{b.dial(t, "127.0.0.2"), b.dial(t, "127.0.0.2"), b.dial(t, "127.0.0.2")}
	greedy[0].isClosed()
	greedy[1].asks("/known/wait", 200)
	greedy[2].asks("/known/wait", 200)
	more := b.dial(t, "127.0.0.2")
	if status, _, err := more.answer(false); err != nil || status != 429 {
		t.Errorf("beyond the address's bound: %d, %v", status, err)
	}
	bystander.asks("/", 200)
	b.dial(t, "127.0.0.3").asks("/", 200)
}

// The least valuable connection is closed first, and known clients always keep half of the connections.
func TestWhatIsClosedFirst(t *testing.T) {
	t.Parallel()
	now := time.Now()
	fill := func(most int) (*Listener, func(known, busy, served bool, since time.Duration) *conn) {
		l := &Listener{config: Config{Connections: most, PerAddress: most}, clients: make(map[netip.Prefix]*client)}
		return l, func(known, busy, served bool, since time.Duration) *conn {
			c := &conn{listener: l, admitted: true, busy: busy, served: served}
			c.known.Store(known)
			l.open++
			l.enqueue(c)
			c.place.since = now.Add(-since)
			return c
		}
	}
	closes := func(l *Listener, wanted ...*conn) {
		t.Helper()
		for i, want := range wanted {
			got := l.queues.expendable(now, l.config.Connections)
			if got != want {
				t.Fatalf("number %d is %+v, want %+v", i, got, want)
			}
			if got != nil {
				l.remove(got)
			}
		}
	}
	l, add := fill(100)
	add(true, true, true, time.Hour)
	strangeOld, idleOne, silentOld := add(false, true, true, time.Minute), add(true, false, true, time.Minute), add(false, false, false, time.Minute)
	silentNew, strangeNew, spentNew := add(false, false, false, 0), add(false, true, true, 0), add(false, false, true, 0)
	closes(l, spentNew, silentOld, strangeOld, idleOne, silentNew, strangeNew, nil)
	if l.open != 1 {
		t.Errorf("%d are open", l.open)
	}

	l, add = fill(4)
	idleOne = add(true, false, true, time.Minute)
	first, second, third := add(false, false, false, 0), add(false, false, false, 0), add(false, true, true, 0)
	closes(l, first, idleOne, second, third, nil)
}

// trusting returns a configuration that trusts 127.0.0.1 only.
func trusting(protocol bool, header string) Config {
	return Config{Connections: 100, PerAddress: 2, Proxies: Proxies{Trusted: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Protocol: protocol, Header: header}}
}

// header returns a PROXY header for a client.
func header(version byte, client string) string {
	address := netip.MustParseAddrPort(client)
	to := &net.TCPAddr{IP: net.ParseIP("192.0.2.1"), Port: 80}
	if address.Addr().Is6() {
		to.IP = net.ParseIP("2001:db8:ffff::1")
	}
	text, err := proxyproto.HeaderProxyFromAddrs(version, net.TCPAddrFromAddrPort(address), to).Format()
	if err != nil {
		panic(err)
	}
	return string(text)
}

// A trusted proxy determines the client's address, in both versions of the protocol. The limit applies to that client.
func TestProxyProtocol(t *testing.T) {
	t.Parallel()
	for _, version := range []byte{1, 2} {
		released := make(chan struct{})
		b := serve(t, trusting(true, ""), released)
		through := func(client string) *peer {
			p := b.dial(t, "127.0.0.1")
			if _, err := io.WriteString(p, header(version, client)); err != nil {
				t.Fatal(err)
			}
			return p
		}
		if seen := through("203.0.113.7:4711").asks("/", 200); seen != "203.0.113.7:4711" {
			t.Errorf("version %d: the client is seen as %s", version, seen)
		}
		// All addresses of one /64 network are one client.
		for i := range 2 {
			through(fmt.Sprintf("[2001:db8::%d]:1", i+1)).asks("/known/wait", 200)
		}
		more := through("[2001:db8::3]:1")
		if status, _, err := more.answer(false); err != nil || status != 429 {
			t.Errorf("version %d: beyond a client's bound: %d, %v", version, status, err)
		}
		// The maximum of refused clients are reading the reason, so this one is disconnected at once.
		for range maxRefusals {
			b.refusals <- struct{}{}
		}
		through("[2001:db8::4]:1").isClosed()
		for range maxRefusals {
			<-b.refusals
		}
		through("[2001:db8:0:1::1]:1").asks("/", 200)

		// PROXY headers from other addresses are not believed, neither for the sender nor for the address they name.
		liar := b.dial(t, "127.0.0.2")
		if _, err := io.WriteString(liar, header(version, "203.0.113.7:4711")); err != nil {
			t.Fatal(err)
		}
		liar.send("/")
		if status, _, err := liar.answer(false); err == nil && status != 400 {
			t.Errorf("version %d: a header from elsewhere is answered %d", version, status)
		}
		if seen := b.dial(t, "127.0.0.2").asks("/", 200); !strings.HasPrefix(seen, "127.0.0.2:") {
			t.Errorf("without a header it is seen as %s", seen)
		}

		// A proxy must send the header, and a slow one delays no other connection.
		b.dial(t, "127.0.0.1")
		without := b.dial(t, "127.0.0.1")
		without.send("/")
		without.isClosed()
		close(released)
	}
}

// The last address in a header that is not a proxy's counts. The client may have made up those before it.
func TestForwardedAddresses(t *testing.T) {
	t.Parallel()
	p := trusting(false, "X-Forwarded-For").Proxies
	for _, c := range []struct {
		header string
		values []string
		want   string
	}{
		{"X-Forwarded-For", []string{"203.0.113.7"}, "203.0.113.7"},
		{"X-Forwarded-For", []string{"198.51.100.1, 203.0.113.7, 127.0.0.1"}, "203.0.113.7"},
		{"X-Forwarded-For", []string{"198.51.100.1", "203.0.113.7:4711"}, "203.0.113.7"},
		{"X-Forwarded-For", []string{"203.0.113.7, [2001:db8::1]:4711"}, "2001:db8::1"},
		{"X-Forwarded-For", []string{"::ffff:203.0.113.7"}, "203.0.113.7"},
		{"X-Forwarded-For", []string{"203.0.113.7, unknown"}, ""},
		{"X-Forwarded-For", []string{"127.0.0.1"}, ""},
		{"X-Forwarded-For", nil, ""},
		{"Forwarded", []string{`for=198.51.100.1, for="[2001:db8::1]:4711";proto=https`}, "2001:db8::1"},
		{"Forwarded", []string{`for="198.51.100.1`, `by=127.0.0.1; For=203.0.113.7`}, "203.0.113.7"},
		{"Forwarded", []string{`for="_hidden"`}, ""},
	} {
		p.Header = c.header
		got := p.client(http.Header{c.header: c.values})
		if want, _ := netip.ParseAddr(c.want); got != want {
			t.Errorf("%s: %q is %s, want %s", c.header, c.values, got, want)
		}
	}
}

// Requests through a forwarding proxy are limited per client. The header has no effect on requests from elsewhere.
func TestRequestsThroughAProxy(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	b := serve(t, trusting(false, "X-Forwarded-For"), released)
	const greedy, other = "X-Forwarded-For: 203.0.113.7", "X-Forwarded-For: 203.0.113.7, 203.0.113.8"
	for range 2 {
		b.dial(t, "127.0.0.1").asks("/known/wait", 200, greedy)
	}
	b.dial(t, "127.0.0.1").asks("/", 429, greedy)
	b.dial(t, "127.0.0.1").asks("/", 200, other)
	// The connections of any other address are counted, whatever its header says.
	for range 2 {
		b.dial(t, "127.0.0.2").asks("/known/wait", 200, other)
	}
	more := b.dial(t, "127.0.0.2")
	if status, _, err := more.answer(false); err != nil || status != 429 {
		t.Errorf("beyond an address's bound: %d, %v", status, err)
	}
	close(released)
	b.settles(t, func(Stats) bool { return b.underWay() == 0 })
}

// The client's address is that of the connection, or what a trusted proxy reports.
func TestClientAddress(t *testing.T) {
	t.Parallel()
	b := serve(t, trusting(false, "X-Forwarded-For"), nil)
	const forwarded = "X-Forwarded-For: 198.51.100.1, 203.0.113.7"
	unknown := netip.Addr{}.String()
	for want, got := range map[string]string{
		"203.0.113.7": b.dial(t, "127.0.0.1").asks("/client", 200, forwarded),
		unknown:       b.dial(t, "127.0.0.1").asks("/client", 200),
		"127.0.0.2":   b.dial(t, "127.0.0.2").asks("/client", 200, forwarded),
	} {
		if got != want {
			t.Errorf("the client's address is %s, want %s", got, want)
		}
	}
	if address := ClientAddress(t.Context()); address.IsValid() {
		t.Errorf("outside of a request: %s", address)
	}
	p := serve(t, trusting(true, ""), nil).dial(t, "127.0.0.1")
	if _, err := io.WriteString(p, header(2, "[2001:db8::1]:4711")); err != nil {
		t.Fatal(err)
	}
	if got := p.asks("/client", 200); got != "2001:db8::1" {
		t.Errorf("by the PROXY protocol the client's address is %s", got)
	}
}

// Requests of clients without a key do not keep out those with one, whatever addresses they come from. With a proxy,
// the oldest of them are ended for others as soon as they are half of all allowed requests.
func TestUnknownClientsRequestsMakeRoom(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	defer close(released)
	config := trusting(false, "X-Forwarded-For")
	config.Connections = 4
	b := serve(t, config, released)
	from := func(client int) string { return fmt.Sprintf("X-Forwarded-For: 203.0.113.%d", client) }
	var strangers []*peer
	for n := range 8 {
		p := b.dial(t, "127.0.0.1")
		p.asks("/wait", 200, from(n))
		strangers = append(strangers, p)
	}
	for _, p := range strangers[:6] {
		p.ends()
	}
	for n := range 4 {
		b.dial(t, "127.0.0.1").asks("/known/wait", 200, from(100+n))
	}
	for _, p := range strangers[6:] {
		p.ends()
	}
	b.dial(t, "127.0.0.1").asks("/known", 503, from(200))
}

// An address's own requests without a key make room for its requests with a key.
func TestUnknownRequestsOfAnAddressMakeRoom(t *testing.T) {
	t.Parallel()
	released := make(chan struct{})
	defer close(released)
	b := serve(t, trusting(false, "X-Forwarded-For"), released)
	const client = "X-Forwarded-For: 203.0.113.7"
	first := b.dial(t, "127.0.0.1")
	first.asks("/wait", 200, client)
	b.dial(t, "127.0.0.1").asks("/wait", 200, client)
	for range 2 {
		b.dial(t, "127.0.0.1").asks("/known/wait", 200, client)
	}
	first.ends()
	b.dial(t, "127.0.0.1").asks("/known", 429, client)
}

// An error about a wrong address explains what is wrong and what to write instead.
func TestWrongAddresses(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"8080", "127.0.0.1:99999"} {
		if err := Try(address); err == nil || !strings.Contains(err.Error(), `"`+address+`" is no address to listen on`) || !strings.Contains(err.Error(), "write 127.0.0.1:8080") {
			t.Errorf("%s: %v", address, err)
		}
	}
}
