package pgtest

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/migrations"
)

// Network is the network between one process and its databases. When it is cut, every connection ends and no new one is
// made, so the databases see what they see when a process is killed. Before and After act on single statements. All
// methods may be called concurrently.
type Network struct {
	listener net.Listener
	target   string
	serving  sync.WaitGroup
	dead     chan struct{} // closed when it is cut

	mu          sync.Mutex
	left        int // messages from the process until it is cut; negative: no limit
	connections map[net.Conn]bool
	hooks       []hook
}

// hook is a function for the statements that contain a text.
type hook struct {
	text  string
	after bool
	do    func() bool
}

// NewNetwork starts a network to a database's server. It is cut when the test ends.
func NewNetwork(t testing.TB, db DB) *Network {
	t.Helper()
	at, err := url.Parse(db.URL(migrations.RoleApp))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &Network{listener: listener, target: at.Host, dead: make(chan struct{}), left: -1, connections: make(map[net.Conn]bool)}
	n.serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			n.serving.Go(func() { n.serve(client) })
		}
	})
	t.Cleanup(n.End)
	return n
}

// URL returns a role's URL through the network.
func (n *Network) URL(t testing.TB, db DB, role migrations.Role) string {
	t.Helper()
	at, err := url.Parse(db.URL(role))
	if err != nil {
		t.Fatal(err)
	}
	at.Host = n.listener.Addr().String()
	return at.String()
}

// Before calls do when a statement that contains the text is about to reach the server. The connection waits until do
// returns. If do returns false, the connection ends and the statement never arrives.
func (n *Network) Before(text string, do func() bool) { n.hook(hook{text: text, do: do}) }

// After calls do when the server has answered a statement that contains the text, and all that was sent with it. The
// answer waits until do returns. If do returns false, the connection ends and the process never sees the answer.
func (n *Network) After(text string, do func() bool) { n.hook(hook{text: text, after: true, do: do}) }

func (n *Network) hook(h hook) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hooks = append(n.hooks, h)
}

// CutAfter cuts the network after so many further messages. The last one still reaches its server.
func (n *Network) CutAfter(messages int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.left = messages
}

// Dead is closed when the network is cut.
func (n *Network) Dead() <-chan struct{} { return n.dead }

// Cut cuts the network.
func (n *Network) Cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.left == 0 {
		return
	}
	n.left = 0
	close(n.dead)
	n.listener.Close()
	for connection := range n.connections {
		connection.Close()
	}
}

// End cuts the network and waits until it has ended.
func (n *Network) End() {
	n.Cut()
	n.serving.Wait()
}

// add counts a connection; false if the network is cut.
func (n *Network) add(connection net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.left == 0 {
		connection.Close()
		return false
	}
	n.connections[connection] = true
	return true
}

func (n *Network) remove(connection net.Conn) {
	connection.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.connections, connection)
}

// serve forwards one connection until either end closes it.
func (n *Network) serve(client net.Conn) {
	if !n.add(client) {
		return
	}
	defer n.remove(client)
	server, err := net.Dial("tcp", n.target)
	if err != nil || !n.add(server) {
		return
	}
	defer n.remove(server)
	s := &session{network: n, prepared: make(map[string]string)}
	n.serving.Go(func() {
		defer client.Close()
		defer server.Close()
		forward(server, client, s.answers, func() bool { return true })
	})
	forward(client, server, s.requests, n.sent)
}

// forward copies until an end is closed or a function returns false: before is called ahead of each piece, after when
// it was copied.
func forward(from, to net.Conn, before func(piece []byte) bool, after func() bool) {
	piece := make([]byte, 64<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			if !before(piece[:n]) {
				return
			}
			if _, err := to.Write(piece[:n]); err != nil || !after() {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// sent counts a message of the process; false if the network is cut.
func (n *Network) sent() bool {
	n.mu.Lock()
	last := n.left == 1
	if n.left > 1 {
		n.left--
	}
	continues := n.left != 0
	n.mu.Unlock()
	if last {
		n.Cut()
		return false
	}
	return continues
}

// session follows what one connection says in PostgreSQL's protocol.
type session struct {
	network  *Network
	prepared map[string]string // SQL of prepared statements, by name
	begun    bool              // the first message, which has no type, is over
	request  []byte            // the beginning of a message of the process
	answer   []byte            // the beginning of a message of the server

	mu       sync.Mutex
	answered []func() bool // to be called at the next answer
}

// requests calls the hooks of statements that end in a piece from the process.
func (s *session) requests(piece []byte) bool {
	s.request = append(s.request, piece...)
	if !s.begun && len(s.request) >= 4 {
		length := int(binary.BigEndian.Uint32(s.request))
		if len(s.request) < length {
			return true
		}
		s.begun, s.request = true, s.request[length:]
	}
	continues := true
	if s.begun {
		s.request = messages(s.request, func(kind byte, body []byte) {
			texts := strings.SplitN(string(body), "\x00", 3)
			switch kind {
			case 'P': // parse: a name, SQL
				s.prepared[texts[0]] = texts[1]
			case 'B': // bind: a portal, a name
				continues = s.statement(s.prepared[texts[1]]) && continues
			case 'Q': // a simple query
				continues = s.statement(texts[0]) && continues
			}
		})
	}
	return continues
}

// statement calls the hooks of a statement.
func (s *session) statement(sql string) bool {
	s.network.mu.Lock()
	hooks := s.network.hooks
	s.network.mu.Unlock()
	continues := true
	for _, h := range hooks {
		switch {
		case !strings.Contains(sql, h.text):
		case h.after:
			s.mu.Lock()
			s.answered = append(s.answered, h.do)
			s.mu.Unlock()
		default:
			continues = h.do() && continues
		}
	}
	return continues
}

// answers calls the hooks of statements whose answer ends in a piece from the server.
func (s *session) answers(piece []byte) bool {
	s.answer = append(s.answer, piece...)
	ready := false
	s.answer = messages(s.answer, func(kind byte, _ []byte) { ready = ready || kind == 'Z' })
	if !ready {
		return true
	}
	s.mu.Lock()
	answered := s.answered
	s.answered = nil
	s.mu.Unlock()
	continues := true
	for _, do := range answered {
		continues = do() && continues
	}
	return continues
}

// messages calls each for all whole messages, and returns the rest.
func messages(all []byte, each func(kind byte, body []byte)) (rest []byte) {
	for len(all) >= 5 {
		length := 1 + int(binary.BigEndian.Uint32(all[1:]))
		if len(all) < length {
			break
		}
		each(all[0], all[5:length])
		all = all[length:]
	}
	return bytes.Clone(all)
}
