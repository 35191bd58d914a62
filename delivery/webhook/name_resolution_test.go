package webhook

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// names is a DNS server whose answers change.
type names struct {
	conn net.PacketConn

	mu    sync.Mutex
	means map[string][][]string // by name: the addresses of its first answer, its second, and so on; the last one stays
	fail  dnsmessage.RCode      // its answer to all queries; 0: the addresses of the names
}

func newNames(t *testing.T) *names {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &names{conn: conn, means: make(map[string][][]string)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buffer := make([]byte, 4096)
		for {
			size, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			if answer, err := n.answer(buffer[:size]); err == nil {
				conn.WriteTo(answer, from) //nolint:errcheck // it is asked again
			}
		}
	}()
	t.Cleanup(func() { conn.Close(); <-done })
	return n
}

// answer answers one query. It counts queries for IPv4 addresses.
func (n *names) answer(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	q := m.Questions[0]
	name := strings.TrimSuffix(q.Name.String(), ".")
	m.Response, m.RCode, m.Additionals = true, n.fail, nil
	means := n.means[name]
	if len(means) == 0 && n.fail == 0 {
		m.RCode = dnsmessage.RCodeNameError
	}
	if len(means) > 0 {
		for _, text := range means[0] {
			addr := netip.MustParseAddr(text)
			header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class}
			switch {
			case q.Type == dnsmessage.TypeA && addr.Is4():
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: addr.As4()}})
			case q.Type == dnsmessage.TypeAAAA && addr.Is6():
				m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: addr.As16()}})
			}
		}
	}
	return m.Pack()
}

// set sets the addresses of a name in its first answer, its second, and so on.
func (n *names) set(name string, means ...[]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.means[name] = means
}

// next makes a name resolve to the next addresses.
func (n *names) next(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.means[name]) > 1 {
		n.means[name] = n.means[name][1:]
	}
}

func (n *names) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", n.conn.LocalAddr().String())
	}}
}

// errTried ends every connection to a public address in these tests, so none is made.
var errTried = errors.New("a public address, to which tests do not connect")

// A name that first resolves to a public address and later to an inside one leads nowhere. What counts is the address
// that is connected to.
func TestNamesWhoseAddressChanges(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n := newNames(t)
	changes := [][]string{
		{"8.8.8.8"}, {"127.0.0.1"}, {"169.254.169.254"}, {"::1"}, {"::ffff:127.0.0.1"}, {"64:ff9b::7f00:1"}, {"fd00::1"}, {"127.0.0.1", "::1"}, {"127.0.0.1", "10.0.0.1"}, {"8.8.8.8"},
	}
	n.set("rebind.example", changes...)
	s := newSender(nil, true, "v1")
	defer s.close()
	s.dialer.Resolver = n.resolver()
	tried := connectNowhere(s)
	url := "http://rebind.example:" + port
	for i, means := range changes {
		a := try(t, s, url, patience)
		if public := means[0] == "8.8.8.8"; public && (a.outcome != OutcomeFailed || !strings.Contains(a.err, errTried.Error())) {
			t.Errorf("%d, %v: the answer is %+v", i, means, a)
		} else if !public && (a.outcome != OutcomeBlocked || a.status != 0 || strings.Contains(a.err, means[0])) {
			t.Errorf("%d, %v: the answer is %+v", i, means, a)
		}
		n.next("rebind.example")
	}
	if got := tried(); len(got) != 2 || got[0] != "8.8.8.8:"+port || got[1] != got[0] {
		t.Errorf("it would have connected to %v", got)
	}
	if hits.Load() > 0 {
		t.Error("something has arrived inside")
	}
}

// Each of several addresses of a name is checked.
func TestNamesWithAddressesOfBothKinds(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n := newNames(t)
	n.set("both.example", []string{"8.8.8.8", "127.0.0.1", "2606:4700:4700::1111", "::1"})
	s := newSender(nil, true, "v1")
	defer s.close()
	s.dialer.Resolver = n.resolver()
	tried := connectNowhere(s)
	if a := try(t, s, "http://both.example:"+port, patience); a.status != 0 || a.outcome == OutcomeOK {
		t.Errorf("the answer is %+v", a)
	}
	for _, address := range tried() {
		if address != "8.8.8.8:"+port && address != "[2606:4700:4700::1111]:"+port {
			t.Errorf("it would have connected to %s", address)
		}
	}
	if hits.Load() > 0 {
		t.Error("something has arrived inside")
	}
}

func TestNamesThatTheOperatorAllows(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n := newNames(t)
	n.set("inside.example", []string{"127.0.0.1"})
	s := local(t)
	s.dialer.Resolver = n.resolver()
	if a := try(t, s, "http://inside.example:"+port, patience); a.outcome != OutcomeOK {
		t.Errorf("the answer is %+v", a)
	}
}

// The error for an unknown name does not reveal which server was asked.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	n := newNames(t)
	s := newSender(nil, true, "v1")
	defer s.close()
	s.dialer.Resolver = n.resolver()
	for _, fail := range []dnsmessage.RCode{0, dnsmessage.RCodeServerFailure, dnsmessage.RCodeRefused} {
		n.mu.Lock()
		n.fail = fail
		n.mu.Unlock()
		a := try(t, s, "http://nobody.example/", patience)
		if a.outcome != OutcomeFailed || !strings.Contains(a.err, "nobody.example") || strings.Contains(a.err, "127.0.0.1") || strings.Contains(a.err, ":") {
			t.Errorf("%s: the answer is %+v", fail, a)
		}
	}
}

// connectNowhere prevents a sender's connections to public addresses. The returned function reports the addresses that
// it would have connected to.
func connectNowhere(s *sender) (tried func() []string) {
	var mu sync.Mutex
	var all []string
	check := s.dialer.Control
	s.dialer.Control = func(network, address string, c syscall.RawConn) error {
		if err := check(network, address, c); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, address)
		return errTried
	}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}
