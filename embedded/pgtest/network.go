package pgtest

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/manifold-es/manifold/migrations"
)

// Network is the network between one process and a database. A test can cut it, which the database sees as the death
// of the process, and can let it delay or cut a connection at a statement. All methods may be called concurrently.
type Network struct {
	listener net.Listener
	server   string
	serving  sync.WaitGroup
	dead     chan struct{} // closed when it is cut

	mu          sync.Mutex
	requests    int // of the process until it is cut; negative: no limit
	connections map[net.Conn]bool
	faults      []*Fault
	held        chan struct{} // new connections wait until it is closed; nil: they do not
	hungUp      bool          // a connection was cut: the process can no longer cancel what it did
}

// Fault is what happens when a network transports a statement. Each function may be nil. It runs in the connection's
// goroutine, so it may block to delay the connection. If it returns false, the connection is cut. With Commit or
// Ended, all but Before run once in a transaction.
type Fault struct {
	Statement string                // a part of the statement's name or SQL
	Before    func(*Statement) bool // before the statement reaches the server
	Commit    func(*Statement) bool // before the commit of its transaction reaches the server
	After     func(*Statement) bool // when the server has answered it and all that was sent with it, before the process is answered
	Ended     func(*Statement) bool // when its transaction has ended, before the process is answered
}

// Statement is a statement on its way.
type Statement struct {
	Name   string // "" if it is not prepared
	SQL    string
	Params [][]byte
	Rows   int // of its answer; not for Before

	fault      *Fault
	connection *connection
	request    int // which request of its connection it is in
	number     int // among the prepared statements of its request, counting from 1; 0: it is not prepared
	committing bool
}

// BeforeCommit is a fault that cuts the connection before the commit of a statement reaches the server, if due says so.
func BeforeCommit(statement string, due func() bool) Fault {
	return Fault{Statement: statement, Commit: func(*Statement) bool { return !due() }}
}

// AfterCommit is a fault that cuts the connection after a statement was committed, before the process is answered, if
// due says so.
func AfterCommit(statement string, due func() bool) Fault {
	return Fault{Statement: statement, Ended: func(*Statement) bool { return !due() }}
}

// HangUp ends the connection for the process. What the process has sent before still reaches the server.
func (s *Statement) HangUp() {
	s.connection.network.hangUp()
	s.connection.client.CloseWrite() //nolint:errcheck // the process may have gone
}

// NewNetwork returns a network to a database's server. It is cut when the test ends.
func NewNetwork(t testing.TB, db DB) *Network {
	t.Helper()
	at, err := url.Parse(db.URL(migrations.RoleApp))
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	n := &Network{listener: listener, server: at.Host, dead: make(chan struct{}), requests: -1, connections: make(map[net.Conn]bool)}
	n.serving.Go(n.accept)
	t.Cleanup(n.End)
	return n
}

// URL returns a role's URL through the network.
func (n *Network) URL(t testing.TB, db DB, role migrations.Role) string {
	t.Helper()
	at, err := url.Parse(db.URL(role))
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	at.Host = n.listener.Addr().String()
	return at.String()
}

// Before calls do when a statement that contains the text is about to reach the server. See Fault.
func (n *Network) Before(text string, do func() bool) {
	n.On(Fault{Statement: text, Before: func(*Statement) bool { return do() }})
}

// After calls do with the number of rows when the server has answered a statement that contains the text. See Fault.
func (n *Network) After(text string, do func(rows int) bool) {
	n.On(Fault{Statement: text, After: func(s *Statement) bool { return do(s.Rows) }})
}

// On adds a fault.
func (n *Network) On(fault Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = append(n.faults, &fault)
}

// Hold makes new connections wait until release is called or the network is cut.
func (n *Network) Hold() (release func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.held = make(chan struct{})
	return sync.OnceFunc(func() { close(n.held) })
}

// Dead is closed when the network is cut.
func (n *Network) Dead() <-chan struct{} { return n.dead }

// CutAfter cuts the network after so many further requests. The last one still reaches its server.
func (n *Network) CutAfter(requests int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.requests = requests
}

// CutAt cuts the network at an execution of a statement, counting from 1. At random, it does so before the statement
// reaches the server, or after the server has executed it and before the process is answered.
func (n *Network) CutAt(statement string, times int) {
	var sent, answered atomic.Int64
	before := rand.IntN(2) == 0
	n.On(Fault{
		Statement: statement,
		Before: func(*Statement) bool {
			if sent.Add(1) == int64(times) && before {
				n.Cut()
			}
			return true
		},
		After: func(*Statement) bool {
			if answered.Add(1) == int64(times) {
				n.Cut()
			}
			return true
		},
	})
}

// IsDead reports whether the network is cut.
func (n *Network) IsDead() bool {
	select {
	case <-n.dead:
		return true
	default:
		return false
	}
}

// Cut ends every connection. No new one is made.
func (n *Network) Cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.IsDead() {
		return
	}
	n.requests = 0
	close(n.dead)
	n.listener.Close()
	for conn := range n.connections {
		conn.Close()
	}
}

// End cuts the network and waits until it has ended.
func (n *Network) End() {
	n.Cut()
	n.serving.Wait()
}

// countRequest counts a request of the process; false if the network is now cut.
func (n *Network) countRequest() bool {
	n.mu.Lock()
	last := n.requests == 1
	if n.requests > 1 {
		n.requests--
	}
	n.mu.Unlock()
	if last {
		n.Cut()
	}
	return !last
}

func (n *Network) hangUp() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hungUp = true
}

func (n *Network) isHungUp() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hungUp
}

// add counts a connection; false if the network is cut.
func (n *Network) add(conn net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.IsDead() {
		conn.Close()
		return false
	}
	n.connections[conn] = true
	return true
}

func (n *Network) remove(conn net.Conn) {
	conn.Close()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.connections, conn)
}

// faultsOf returns the faults of a statement.
func (n *Network) faultsOf(s Statement) (found []*Statement) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.faults {
		if f := n.faults[i]; strings.Contains(s.Name+" "+s.SQL, f.Statement) {
			one := s
			one.fault = f
			found = append(found, &one)
		}
	}
	return found
}

func (n *Network) accept() {
	for {
		client, err := n.listener.Accept()
		if err != nil {
			return
		}
		n.serving.Go(func() { n.serve(client.(*net.TCPConn)) })
	}
}

// serve transports one connection until either end closes it.
func (n *Network) serve(client *net.TCPConn) {
	if !n.add(client) {
		return
	}
	defer n.remove(client)
	n.mu.Lock()
	held := n.held
	n.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-n.dead:
			return
		}
	}
	server, err := net.Dial("tcp", n.server)
	if err != nil || !n.add(server) {
		return
	}
	defer n.remove(server)
	c := &connection{network: n, client: client, server: server.(*net.TCPConn), prepared: make(map[string]string), requests: 1}
	ended := make(chan struct{})
	n.serving.Go(func() {
		defer close(ended)
		c.end(c.answers())
		client.Close()
	})
	c.end(c.statements())
	<-ended
}

// errCut means that the network has cut a connection.
var errCut = errors.New("pgtest: the network has cut the connection")

// cancelRequest begins the message by which a client cancels what another connection does.
const cancelRequest = 80877102

// connection is a connection between a process and a server.
type connection struct {
	network        *Network
	client, server *net.TCPConn
	prepared       map[string]string // SQL by name

	mu       sync.Mutex
	requests int // sent to the server. Each is answered by a ReadyForQuery, the startup by the first
	bound    int // prepared statements in the request being sent
	waiting  []*Statement
}

// end ends one direction. Unless the network has cut the connection, the server completes what it was sent.
func (c *connection) end(err error) {
	if errors.Is(err, errCut) {
		c.network.hangUp()
		c.client.Close()
		c.server.Close()
	}
	c.server.CloseWrite() //nolint:errcheck // it may have gone
}

// statements transports what the process sends, message by message.
func (c *connection) statements() error {
	in, out := bufio.NewReaderSize(c.client, 64<<10), bufio.NewWriterSize(c.server, 64<<10)
	startup, err := readMessage(in, 0)
	if err != nil {
		return err
	}
	if binary.BigEndian.Uint32(startup[4:]) == cancelRequest && c.network.isHungUp() {
		return errCut
	}
	for message := startup; ; {
		if _, err := out.Write(message); err != nil {
			return err
		}
		if isRequest := !strings.ContainsRune("PBDECH", rune(message[0])); isRequest || in.Buffered() == 0 {
			if err := out.Flush(); err != nil {
				return err
			}
			if isRequest && !c.network.countRequest() {
				return errCut
			}
		}
		if message, err = readMessage(in, 1); err != nil {
			return err
		}
		if err := c.applyFaults(message, out.Flush); err != nil {
			return err
		}
	}
}

// applyFaults applies the faults of a message. flush sends what comes before it.
func (c *connection) applyFaults(message []byte, flush func() error) error {
	var s Statement
	switch body := message[5:]; message[0] {
	case 'P':
		var parse pgproto3.Parse
		if err := parse.Decode(body); err != nil {
			return err
		}
		c.prepared[parse.Name] = parse.Query
		return nil
	case 'B':
		var bind pgproto3.Bind
		if err := bind.Decode(body); err != nil {
			return err
		}
		c.bound++
		s = Statement{Name: bind.PreparedStatement, SQL: c.prepared[bind.PreparedStatement], Params: bind.Parameters, number: c.bound}
	case 'Q':
		var query pgproto3.Query
		if err := query.Decode(body); err != nil {
			return err
		}
		s = Statement{SQL: query.String}
		defer c.request()
	case 'S':
		c.request()
		return nil
	default:
		return nil
	}
	s.connection = c
	run := func(fault func(*Statement) bool, s *Statement) error {
		if fault == nil {
			return nil
		}
		if err := flush(); err != nil {
			return err
		}
		if !fault(s) {
			return errCut
		}
		return nil
	}
	if s.SQL == "commit" {
		for _, waiting := range c.commit() {
			if err := run(waiting.fault.Commit, waiting); err != nil {
				return err
			}
		}
	}
	for _, found := range c.network.faultsOf(s) {
		if err := run(found.fault.Before, found); err != nil {
			return err
		}
		c.await(found)
	}
	return nil
}

func (c *connection) request() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	c.bound = 0
}

// await remembers a statement until its transaction has ended.
func (c *connection) await(s *Statement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isOnce := s.fault.Commit != nil || s.fault.Ended != nil
	if !isOnce || !slices.ContainsFunc(c.waiting, func(other *Statement) bool { return other.fault == s.fault && !other.committing }) {
		s.request = c.requests
		c.waiting = append(c.waiting, s)
	}
}

// commit returns the statements of the transaction that is about to be committed.
func (c *connection) commit() (statements []*Statement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.waiting {
		if !s.committing {
			s.committing = true
			statements = append(statements, s)
		}
	}
	return statements
}

// answered returns the waiting statements of the requests up to this one, and removes them if remove is set.
func (c *connection) answered(request int, remove bool) (statements []*Statement) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.waiting {
		if s.request <= request {
			statements = append(statements, s)
		}
	}
	if remove {
		c.waiting = slices.DeleteFunc(c.waiting, func(s *Statement) bool { return s.request <= request })
	}
	return statements
}

// answers transports what the server sends. Where a statement waits, the rest of its request's answer waits, too.
func (c *connection) answers() error {
	in := bufio.NewReaderSize(c.server, 64<<10)
	var held []byte
	for request, number := 0, 0; ; {
		message, err := readMessage(in, 1)
		if err != nil {
			return err
		}
		held = append(held, message...)
		isEnd := message[0] == 'Z'
		if message[0] == '2' { // BindComplete
			number++
		}
		if waiting := c.answered(request, isEnd && message[5] == 'I'); len(waiting) > 0 {
			for _, s := range waiting {
				if message[0] == 'D' && s.request == request && s.number == number {
					s.Rows++
				}
			}
			if !isEnd {
				continue
			}
			for _, s := range waiting {
				if s.request == request && s.fault.After != nil && !s.fault.After(s) {
					return errCut
				}
				if message[5] == 'I' && s.fault.Ended != nil && !s.fault.Ended(s) {
					return errCut
				}
			}
		}
		if isEnd {
			request++
			number = 0
		}
		if isEnd || in.Buffered() == 0 || len(held) > 64<<10 {
			_, _ = c.client.Write(held) // without a client, the server still completes what it was sent
			held = held[:0]
		}
	}
}

// readMessage reads a message: a type, except at the beginning of a connection, the length and the rest.
func readMessage(in *bufio.Reader, typed int) ([]byte, error) {
	head, err := in.Peek(typed + 4)
	if err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint32(head[typed:]))
	if length < 4 || length > 1<<30 {
		return nil, fmt.Errorf("pgtest: a message of %d bytes", length)
	}
	message := make([]byte, typed+length)
	_, err = io.ReadFull(in, message)
	return message, err
}
