package rebuild_test

import (
	"context"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/rebuild"
)

// mortal is the network between one process and its databases. When it is cut, every connection ends and no new one is
// made, so the databases see what they see when a process is killed.
type mortal struct {
	listener net.Listener
	target   string
	serving  sync.WaitGroup
	dead     chan struct{} // closed when it is cut

	mu          sync.Mutex
	left        int // messages from the process until it is cut; negative: no limit
	connections map[net.Conn]bool
}

// newMortal starts a network to a database's server.
func newMortal(t *testing.T, db pgtest.DB) *mortal {
	t.Helper()
	at, err := url.Parse(db.URL(migrations.RoleApp))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mortal{listener: listener, target: at.Host, dead: make(chan struct{}), left: -1, connections: make(map[net.Conn]bool)}
	m.serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			m.serving.Go(func() { m.serve(client) })
		}
	})
	return m
}

// url returns a role's URL through the network.
func (m *mortal) url(t *testing.T, db pgtest.DB, role migrations.Role) string {
	t.Helper()
	at, err := url.Parse(db.URL(role))
	if err != nil {
		t.Fatal(err)
	}
	at.Host = m.listener.Addr().String()
	return at.String()
}

// cutAfter cuts the network after so many further messages. The last one still reaches its server.
func (m *mortal) cutAfter(messages int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = messages
}

// cut cuts the network.
func (m *mortal) cut() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == 0 {
		return
	}
	m.left = 0
	close(m.dead)
	m.listener.Close()
	for connection := range m.connections {
		connection.Close()
	}
}

// add counts a connection; false if the network is cut.
func (m *mortal) add(connection net.Conn) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == 0 {
		connection.Close()
		return false
	}
	m.connections[connection] = true
	return true
}

func (m *mortal) remove(connection net.Conn) {
	connection.Close()
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.connections, connection)
}

// serve forwards one connection until either end closes it.
func (m *mortal) serve(client net.Conn) {
	if !m.add(client) {
		return
	}
	defer m.remove(client)
	server, err := net.Dial("tcp", m.target)
	if err != nil || !m.add(server) {
		return
	}
	defer m.remove(server)
	m.serving.Go(func() {
		defer client.Close()
		forward(server, client, func() bool { return true })
	})
	forward(client, server, m.sent)
}

// forward copies until an end is closed or after, which it calls after each piece, returns false.
func forward(from, to net.Conn, after func() bool) {
	piece := make([]byte, 64<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 {
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
func (m *mortal) sent() bool {
	m.mu.Lock()
	last := m.left == 1
	if m.left > 1 {
		m.left--
	}
	goesOn := m.left != 0
	m.mu.Unlock()
	if last {
		m.cut()
		return false
	}
	return goesOn
}

// mortal sets a process up on the same databases, behind a separate network. The caller must call end when the
// process has stopped.
func (v *service) mortal(t *testing.T, config rebuild.Config) (process *service, network *mortal, end func()) {
	t.Helper()
	m := newMortal(t, v.db)
	url := func(role migrations.Role) string { return m.url(t, v.db, role) }
	p := *v
	p.store = openStore(t, url)
	driver := openDriver(t, url(migrations.RoleDocuments))
	p.drivers = map[string]drivers.Driver{"default": driver}
	return p.process(config), m, func() {
		m.cut()
		p.store.Close()
		driver.Close()
		m.serving.Wait()
	}
}

// dies runs a process that is killed after so many messages to its databases, until it is dead or the rebuild has
// ended. meanwhile is called when the process runs.
func (v *service) dies(t *testing.T, messages int, of domain.Rebuild, config rebuild.Config, meanwhile func()) {
	t.Helper()
	worker, network, end := v.mortal(t, config)
	defer end()
	network.cutAfter(messages)
	stop := worker.work(t)
	meanwhile()
	select {
	case <-network.dead:
	case <-v.over(t, of):
	}
	stop()
}

// cutsOnSave is a driver whose process is killed when it has saved for the first time.
type cutsOnSave struct {
	drivers.Driver
	network *mortal
}

func (c cutsOnSave) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	err := c.Driver.Save(ctx, build, tenant, batch)
	if err == nil {
		c.network.cut()
	}
	return err
}
