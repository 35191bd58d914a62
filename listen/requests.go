package listen

import (
	"container/list"
	"context"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// pending is a request under way that Limit counts.
type pending struct {
	cancel  context.CancelFunc
	control *http.ResponseController
	address netip.Addr // the client's; invalid if it is unknown
	client  *client    // nil if its address is unknown
	prefix  netip.Prefix

	mu   sync.Mutex
	over bool // its handler has returned

	// The listener's lock guards these fields.
	counted      bool
	all, clients *list.Element // in the lists of unknown clients' requests; nil for a known client
}

type pendingKey struct{}

// Limit bounds the requests under way on connections that carry several at once (HTTP/2), or those of several clients
// (trusted proxies). The limits are those of connections: Config.Connections in total, half of that for unknown
// clients, and Config.PerAddress for one client. One request more ends the oldest request of an unknown client. Limit
// calls refuse for a request that finds no room; crowded means that its own address has too many.
func (l *Listener) Limit(next http.Handler, refuse func(w http.ResponseWriter, request *http.Request, crowded bool)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		c, _ := request.Context().Value(connKey{}).(*conn)
		if c == nil {
			next.ServeHTTP(w, request)
			return
		}
		proxied := l.config.Proxies.trusts(c.address)
		if !proxied && request.ProtoMajor < 2 {
			next.ServeHTTP(w, request)
			return
		}
		address := c.address
		if proxied {
			address = l.config.Proxies.client(request.Header)
		}
		ctx, cancel := context.WithCancel(request.Context())
		defer cancel()
		p := &pending{cancel: cancel, control: http.NewResponseController(w), address: address}
		full, crowded := l.begin(p)
		if full || crowded {
			l.refused.Add(1)
			refuse(w, request, crowded)
			return
		}
		defer l.end(p)
		next.ServeHTTP(w, request.WithContext(context.WithValue(ctx, pendingKey{}, p)))
	})
}

// ClientAddress returns the address of the client of ctx's request, without a zone; IPv4 within IPv6 is IPv4. For a
// request through trusted proxies it is the address that they report. It is invalid if they report none, and if the
// request did not come through a Listener with Limit.
func ClientAddress(ctx context.Context) netip.Addr {
	if p, _ := ctx.Value(pendingKey{}).(*pending); p != nil {
		return p.address
	}
	if c, _ := ctx.Value(connKey{}).(*conn); c != nil {
		return c.address
	}
	return netip.Addr{}
}

// begin counts a request, per client if its address is known, and ends other requests to make room. Unless there is no
// room, the caller must call end after the request.
func (l *Listener) begin(p *pending) (full, crowded bool) {
	l.mu.Lock()
	var evicted []*pending
	evict := func(unknown *list.List) (found bool) {
		first := unknown.Front()
		if first == nil {
			return false
		}
		victim := first.Value.(*pending)
		l.uncount(victim)
		evicted = append(evicted, victim)
		return true
	}
	if p.address.IsValid() {
		p.prefix = prefixOf(p.address)
		p.client = l.clientAt(p.prefix)
		crowded = p.client.requests >= l.config.PerAddress && !evict(&p.client.unknown)
	}
	if !crowded && (l.requests >= l.config.Connections || l.unknown.Len() >= max(1, l.config.Connections/2)) {
		full = !evict(&l.unknown)
	}
	switch {
	case !full && !crowded:
		p.counted = true
		l.requests++
		p.all = l.unknown.PushBack(p)
		if p.client != nil {
			p.client = l.clientAt(p.prefix) // the client is deleted if its only request was ended
			p.client.requests++
			p.clients = p.client.unknown.PushBack(p)
		}
	case p.client != nil:
		l.drop(p.prefix, p.client)
	}
	l.mu.Unlock()
	for _, victim := range evicted {
		l.refused.Add(1)
		victim.evict()
	}
	return full, crowded
}

// evict makes a request's handler return: all its further reads and writes fail.
func (p *pending) evict() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return // the connection may already carry its next request
	}
	p.cancel()
	past := time.Unix(1, 0)
	_ = p.control.SetReadDeadline(past)
	_ = p.control.SetWriteDeadline(past)
}

// end stops counting a request whose handler has returned.
func (l *Listener) end(p *pending) {
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.uncount(p)
}

// uncount subtracts a request from the counts that include it. The lock is held.
func (l *Listener) uncount(p *pending) {
	if !p.counted {
		return
	}
	p.counted = false
	l.requests--
	if p.client != nil {
		p.client.requests--
	}
	l.accept(p)
	if p.client != nil {
		l.drop(p.prefix, p.client)
	}
}

// accept removes a request from the requests of unknown clients. The lock is held.
func (l *Listener) accept(p *pending) {
	if p.all == nil {
		return
	}
	l.unknown.Remove(p.all)
	if p.clients != nil {
		p.client.unknown.Remove(p.clients)
	}
	p.all, p.clients = nil, nil
}
