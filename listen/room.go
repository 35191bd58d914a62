package listen

import (
	"container/list"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// standing ranks how much a connection is worth keeping open: see queues.expendable.
type standing int

const (
	unknownIdle standing = iota // no request under way; its earlier requests were those of an unknown client
	unused                      // has not had a request yet
	unknownBusy                 // a request of an unknown client is under way
	knownIdle                   // no request under way; the client is known
	knownBusy                   // a request of a known client is under way; in no queue
)

// grace is how long a new client has to send a request and to become known before others like it may displace it.
// Without it, new connections would close each other while idle ones stay.
const grace = time.Second

// queues hold connections by standing. In each queue, the connection that has been there longest comes first.
type queues [knownBusy]list.List

// expendable returns the connection to close first, or nil. most is the maximum number of open connections, and as many
// are open. Within each standing it returns the connection that has had it for the longest time. Unknown clients
// displace each other while they have more than half of the connections, so that a flood of them leaves the other half
// to known clients.
func (q *queues) expendable(now time.Time, most int) *conn {
	first := func(s standing) *conn {
		if e := q[s].Front(); e != nil {
			return e.Value.(*conn)
		}
		return nil
	}
	if c := first(unknownIdle); c != nil {
		return c
	}
	for _, s := range [...]standing{unused, unknownBusy} {
		if c := first(s); c != nil && now.Sub(c.place.since) > grace {
			return c
		}
	}
	order := [...]standing{knownIdle, unused, unknownBusy}
	if q[unused].Len()+q[unknownBusy].Len() > most/2 {
		order = [...]standing{unused, unknownBusy, knownIdle}
	}
	for _, s := range order {
		if c := first(s); c != nil {
			return c
		}
	}
	return nil
}

// place is the position of a connection in the common queue and in that of its client.
type place struct {
	standing     standing
	since        time.Time
	all, clients *list.Element // nil while it is knownBusy
}

// enqueue moves a connection to the queue where it now belongs. The lock is held.
func (l *Listener) enqueue(c *conn) {
	l.dequeue(c)
	switch known := c.known.Load(); {
	case c.busy && known:
		c.place.standing = knownBusy
		return
	case c.busy:
		c.place.standing = unknownBusy
	case known:
		c.place.standing = knownIdle
	case c.served:
		c.place.standing = unknownIdle
	default:
		c.place.standing = unused
	}
	c.place.since = time.Now()
	c.place.all = l.queues[c.place.standing].PushBack(c)
	if c.client != nil {
		c.place.clients = c.client.queues[c.place.standing].PushBack(c)
	}
}

// dequeue removes a connection from its queues. The lock is held.
func (l *Listener) dequeue(c *conn) {
	if c.place.all != nil {
		l.queues[c.place.standing].Remove(c.place.all)
	}
	if c.place.clients != nil {
		c.client.queues[c.place.standing].Remove(c.place.clients)
	}
	c.place = place{}
}

// admit gives a new connection a place, or refuses and closes it.
func (l *Listener) admit(c *conn) bool {
	now := time.Now()
	l.mu.Lock()
	evicted, ok := l.assign(c, now)
	var refusal []byte
	switch {
	case !ok:
		refusal = l.config.Crowded
	case l.open >= l.config.Connections:
		victim := l.queues.expendable(now, l.config.Connections)
		if victim == nil {
			l.leave(c)
			ok, refusal = false, l.config.Full
			break
		}
		l.remove(victim)
		evicted = append(evicted, victim)
	}
	if ok {
		c.admitted = true
		l.open++
		l.enqueue(c)
	}
	l.mu.Unlock()
	l.closeAll(evicted)
	if !ok {
		l.refuse(c, refusal)
	}
	return ok
}

// assign counts a connection for its client's address, unless that is a trusted proxy's. It may evict a connection of
// the same client, which the caller must close. It returns false if the client has no room. The lock is held.
func (l *Listener) assign(c *conn, now time.Time) (evicted []*conn, ok bool) {
	if !c.address.IsValid() || l.config.Proxies.trusts(c.address) {
		return nil, true
	}
	c.prefix = prefixOf(c.address)
	of := l.clientAt(c.prefix)
	if of.open >= l.config.PerAddress {
		victim := of.queues.expendable(now, l.config.PerAddress)
		if victim == nil {
			return nil, false
		}
		l.remove(victim)
		evicted = []*conn{victim}
		of = l.clientAt(c.prefix) // deleted, if that was its only connection
	}
	of.open++
	c.client = of
	return evicted, true
}

// assignProxied counts a connection for the client that a PROXY header names.
func (l *Listener) assignProxied(c *conn, address netip.Addr) error {
	l.mu.Lock()
	c.address = address
	if !c.admitted {
		l.mu.Unlock()
		return net.ErrClosed
	}
	evicted, ok := l.assign(c, time.Now())
	if ok {
		l.enqueue(c)
	} else {
		l.remove(c)
	}
	l.mu.Unlock()
	l.closeAll(evicted)
	if !ok {
		l.refused.Add(1)
		select {
		case l.refusals <- struct{}{}:
			l.answer(c, l.config.Crowded)
			<-l.refusals
		default:
			_ = c.raw.Close()
		}
		return errCrowded
	}
	return nil
}

// makeRoom closes one connection, if any is expendable.
func (l *Listener) makeRoom() {
	l.mu.Lock()
	victim := l.queues.expendable(time.Now(), l.config.Connections)
	if victim != nil {
		l.remove(victim)
	}
	l.mu.Unlock()
	if victim != nil {
		l.closeAll([]*conn{victim})
	}
}

// closeAll closes connections that were evicted to make room.
func (l *Listener) closeAll(evicted []*conn) {
	for _, c := range evicted {
		l.closed.Add(1)
		_ = c.raw.Close() // the goroutine that serves it notices
	}
}

// refuse answers a connection for which there is no room, and closes it. It does not wait for the client.
func (l *Listener) refuse(c *conn, response []byte) {
	l.refused.Add(1)
	select {
	case l.refusals <- struct{}{}:
	default:
		_ = c.raw.Close()
		return
	}
	go func() {
		defer func() { <-l.refusals }()
		l.answer(c, response)
	}()
}

// answer gives a refused client a moment to read the reason, and closes its connection.
func (l *Listener) answer(c *conn, response []byte) {
	defer c.raw.Close()
	if l.config.Certificate != nil || c.raw.SetDeadline(time.Now().Add(refusalTimeout)) != nil {
		return
	}
	// Clients ignore a response that arrives before they have sent their request. A client that sends nothing gets the
	// response anyway.
	_, _ = c.raw.Read(make([]byte, 512))
	if c.raw.SetDeadline(time.Now().Add(refusalTimeout)) != nil {
		return
	}
	if _, err := c.raw.Write(response); err != nil || c.CloseWrite() != nil {
		return
	}
	// Closing a connection with unread bytes resets it, and the client may not see the response.
	_, _ = io.Copy(io.Discard, io.LimitReader(c.raw, maxHeaderBytes))
}

// changed receives the server's notifications about a connection's state.
func (l *Listener) changed(raw net.Conn, state http.ConnState) {
	c := connOf(raw)
	if c == nil {
		return
	}
	switch state {
	case http.StateActive, http.StateIdle:
		l.mu.Lock()
		defer l.mu.Unlock()
		c.busy = state == http.StateActive
		c.served = c.served || c.busy
		if c.admitted {
			l.enqueue(c)
		}
	case http.StateClosed:
		l.forget(c)
	}
	// A hijacked connection stays busy until its Close.
}

// markKnown marks the client of a connection as known.
func (l *Listener) markKnown(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.known.Store(true)
	if c.admitted {
		l.enqueue(c)
	}
}

// forget frees the place of a connection, if it still has one.
func (l *Listener) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.remove(c)
}

// remove is forget with the lock held.
func (l *Listener) remove(c *conn) {
	if !c.admitted {
		return
	}
	c.admitted = false
	l.open--
	l.dequeue(c)
	l.leave(c)
}

// leave subtracts a connection from its client's count. The lock is held.
func (l *Listener) leave(c *conn) {
	if c.client == nil {
		return
	}
	c.client.open--
	l.drop(c.prefix, c.client)
	c.client = nil
}

// clientAt returns the client at an address, and adds it if it is new. The lock is held.
func (l *Listener) clientAt(prefix netip.Prefix) *client {
	of := l.clients[prefix]
	if of == nil {
		of = &client{}
		l.clients[prefix] = of
	}
	return of
}

// drop deletes a client without connections and requests. The lock is held.
func (l *Listener) drop(prefix netip.Prefix, of *client) {
	if of.open == 0 && of.requests == 0 {
		delete(l.clients, prefix)
	}
}
