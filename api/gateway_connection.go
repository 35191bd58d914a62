package api

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

// Limits of a connection of the gateway.
const (
	gatewayRate          = 200     // messages a second, and at once
	gatewayFlood         = 5 * 200 // refused messages at once, and gatewayRate a second: above it the connection ends
	gatewayInFlight      = 100     // events of groups that are not answered yet
	gatewaySubscriptions = 100
	unknownBytes         = 16 << 10 // of a message before it is known who the client is

	// drainWithin bounds what is still carried out, and put back, when a connection ends.
	drainWithin = 5 * time.Second
)

// gatewayOps are the operations, by the names that clients use. Each takes its fields out of the message, and either refuses it
// with an error, which is answered, or answers it, then or later. They are called one after the other, as messages come, and must
// not block.
var gatewayOps = map[string]func(*gatewayConnection, *gatewayMessage) error{
	"AUTH":        (*gatewayConnection).authenticate,
	"SUBSCRIBE":   (*gatewayConnection).subscribe,
	"UNSUBSCRIBE": (*gatewayConnection).unsubscribe,
	"PAUSE":       (*gatewayConnection).pause,
	"RESUME":      (*gatewayConnection).resume,
	"ACK":         (*gatewayConnection).ack,
	"NACK":        (*gatewayConnection).nack,
	"MODACK":      (*gatewayConnection).extend,
	"PUBLISH":     (*gatewayConnection).publish,
}

// gatewayConnection is one connection of the gateway. One goroutine reads messages and begins what they ask for, one writes what
// is to be sent; each subscription has one that delivers; and lanes carry out what takes time.
type gatewayConnection struct {
	server    *Server
	socket    *socket
	requestID string
	outbox    *gatewayOutbox
	bucket    *rate.Limiter
	refused   *rate.Limiter
	inFlight  *semaphore.Weighted // of all groups

	alive     context.Context // ended, with the cause, when the connection is to end
	end       context.CancelCauseFunc
	work      context.Context // of what messages ask for: what has come is still carried out when the connection ends
	endWork   context.CancelFunc
	sending   context.Context // ended when nothing can be sent any more
	endSends  context.CancelFunc
	under     *fairshare.Account // the tenant has this connection under way, where AUTH has counted it; the reader's until that has ended
	caller    caller             // the reader's, and with what it begins; nobody until it is known
	authTimer *time.Timer        // nil where the request had a key

	watch     func()         // ends looking at the key
	working   sync.WaitGroup // lanes
	waiting   atomic.Int64   // bytes, in all lanes
	published *gatewayLane

	mu            sync.Mutex
	ended         bool // nothing new is carried out
	subscriptions map[string]*gatewaySubscription
}

func newGatewayConnection(s *Server, socket *socket, requestID string) *gatewayConnection {
	g := &gatewayConnection{
		server: s, socket: socket, requestID: requestID, outbox: newGatewayOutbox(),
		bucket: rate.NewLimiter(gatewayRate, gatewayRate), refused: rate.NewLimiter(gatewayRate, gatewayFlood),
		inFlight:      semaphore.NewWeighted(gatewayInFlight),
		subscriptions: map[string]*gatewaySubscription{}, watch: func() {},
	}
	g.published = g.newLane()
	return g
}

// serve serves the connection until ctx ends, the client goes, or is refused, and closes it. It returns when nothing of it runs any
// more. known is whose key the request had, if it had one.
func (g *gatewayConnection) serve(ctx context.Context, known caller) {
	g.alive, g.end = context.WithCancelCause(ctx)
	defer g.end(nil)
	g.work, g.endWork = context.WithCancel(context.WithoutCancel(ctx))
	defer g.endWork()
	g.sending, g.endSends = context.WithCancel(g.work)
	defer g.endSends()

	defer func() { g.under.Close() }()
	if known.known() {
		g.recognise(known)
	} else {
		g.socket.ws.SetReadLimit(unknownBytes)
		g.authTimer = time.AfterFunc(g.server.authTimeout, func() { g.end(speechless(g.server.authTimeout)) })
		defer g.authTimer.Stop()
	}
	flush := make(chan struct{})
	var reading, writing, pinging sync.WaitGroup
	writing.Go(func() {
		defer g.endSends()
		if err := g.outbox.run(flush, g.socket.send); err != nil {
			g.end(errGone)
		}
	})
	reading.Go(func() { g.end(g.guarded(g.read)) })
	pinging.Go(func() { g.ping() })

	<-g.alive.Done()
	cause := context.Cause(g.alive)
	g.drain(cause)
	g.mu.Lock()
	unwatch := g.watch
	g.mu.Unlock()
	unwatch()
	pinging.Wait()
	release := g.socket.endWith(g.alive) // what is still to be written is written soon, or never
	close(flush)
	writing.Wait()
	release()
	leaveGateway(g.socket, cause)
	reading.Wait()
}

// drain carries out what has come, as far as the client may still have that, ends the subscriptions, and says why it refuses to go
// on.
func (g *gatewayConnection) drain(cause error) {
	g.mu.Lock()
	g.ended = true
	g.mu.Unlock()
	refusal, refused := errors.AsType[*domain.Error](cause)
	late := time.AfterFunc(drainWithin, g.endWork)
	defer late.Stop()
	if refused {
		g.endWork()
	}
	g.working.Wait()
	g.leaveAll()
	if refused {
		// The outbox's room may be taken by what nobody reads.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(g.alive), closeGrace)
		defer cancel()
		_ = g.outbox.send(ctx, answerTo(opErr, "").problem(refusal).end())
	}
}

// read reads messages until the connection ends.
func (g *gatewayConnection) read() error {
	for {
		// The context is not for ending: the library would cut the connection. Closing the socket ends it.
		kind, text, room, err := g.next()
		switch {
		case errors.Is(err, websocket.ErrMessageTooBig) || isBusy(err):
			return err
		case err != nil:
			return errGone
		case g.alive.Err() != nil: // the answer to our closing is awaited
		case kind != websocket.MessageText:
			return errBinary
		default:
			if err := g.receive(text, room); err != nil {
				return err
			}
		}
	}
}

// next reads a message, as far as the tenant has room for it, and in no more time than a request's body has. The room is the
// receiver's, and nil where it is not known who the client is: then messages are short.
func (g *gatewayConnection) next() (kind websocket.MessageType, text []byte, room *fairshare.Account, err error) {
	kind, from, err := g.socket.ws.Reader(context.Background())
	if err != nil {
		return kind, nil, nil, err
	}
	late := time.AfterFunc(g.server.timeout+g.server.stallTimeout, func() { g.end(errSilent) })
	defer late.Stop()
	limit := unknownBytes
	if g.caller.known() {
		room, limit = g.server.budgets.bodies.Account(g.caller.tenant), domain.MaxRequestBytes
	}
	take := func(bytes int64) error { return room.Wait(g.alive, bytes, roomPatience) }
	if text, err = readAll(from, -1, limit, take, room); err != nil {
		room.Close()
	}
	if err == errTooLong {
		err = websocket.ErrMessageTooBig
	}
	return kind, text, room, err
}

// isBusy says whether an error is that there is no room.
func isBusy(err error) bool {
	return domain.IsCode(err, domain.CodeTooManyRequests) || domain.IsCode(err, domain.CodeOverloaded)
}

// receive begins what a message asks for. An error ends the connection.
func (g *gatewayConnection) receive(text []byte, room *fairshare.Account) error {
	m, err := readGatewayMessage(text)
	m.room = room
	defer func() {
		if !m.waits {
			room.Close()
		}
	}()
	if !g.bucket.Allow() {
		if !g.refused.Allow() {
			return errFlood
		}
		g.refuse(m.id, domain.Errorf(domain.CodeTooManyRequests, "", "a connection takes %d messages a second; this one was not carried out", gatewayRate))
		return nil
	}
	if err != nil {
		g.refuse(m.id, err)
		return nil
	}
	op := gatewayOps[m.op]
	switch {
	case op == nil:
		err = domain.Errorf(domain.CodeInvalidRequest, "op", "there is no operation %q; there are %s", clip(m.op, 40), strings.Join(gatewayOpNames(), ", "))
	case !g.caller.known() && m.op != "AUTH":
		err = domain.Errorf(domain.CodeUnauthenticated, "op", "the first message must be AUTH, with the key")
	default:
		err = op(g, &m)
	}
	if err != nil {
		g.refuse(m.id, err)
	}
	return nil
}

func gatewayOpNames() []string {
	var names []string
	for name := range gatewayOps {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// authenticate is AUTH.
func (g *gatewayConnection) authenticate(m *gatewayMessage) error {
	key := m.fields.text("key", 1, maxKeyCharacters)
	if err := m.fields.end(); err != nil {
		return err
	}
	if g.caller.known() {
		return domain.Errorf(domain.CodeInvalidRequest, "op", "this connection has a key; open another one for another key")
	}
	ctx, cancel := context.WithTimeout(g.work, g.server.timeout)
	defer cancel()
	credential, err := g.server.config.Keys.Authenticate(ctx, key)
	if err == nil {
		err = credential.RequireSome(gatewayScopes...)
	}
	if err != nil {
		if e, ok := errors.AsType[*domain.Error](err); ok && e.Where == "Authorization" {
			message := e.Message
			if e.Code == domain.CodeUnauthenticated {
				message = "this key does not work; send AUTH with one that has not been revoked" // there is no header here
			}
			err = domain.Errorf(e.Code, "key", "%s", message)
		}
		return err
	}
	known := caller{tenant: credential.Tenant, credential: credential}
	if g.under, err = g.server.enter(known); err != nil {
		return err
	}
	if !g.authTimer.Stop() {
		return nil // too late: the connection is ending
	}
	g.recognise(known)
	g.answer(answerTo(opOK, m.id).text("tenant", credential.Tenant.String()).end())
	return nil
}

// recognise lets a caller in, and ends the connection when its key is refused later.
func (g *gatewayConnection) recognise(known caller) {
	g.caller = known
	g.server.known(g.alive)
	g.socket.ws.SetReadLimit(domain.MaxRequestBytes)
	allowed, stop := g.server.whileAllowed(g.alive, known)
	context.AfterFunc(allowed, func() {
		if cause := context.Cause(allowed); isRefusal(cause) {
			g.end(cause)
		}
	})
	g.mu.Lock()
	g.watch = stop
	g.mu.Unlock()
}

// ping sees to it that a client that is silent is still there.
func (g *gatewayConnection) ping() {
	tick := time.NewTicker(g.server.heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-g.alive.Done():
			return
		case <-tick.C:
		}
		if err := g.socket.ping(); err != nil {
			g.end(err)
			return
		}
	}
}

// answer sends a message, unless nothing can be sent any more. It waits while the client does not read.
func (g *gatewayConnection) answer(message []byte) { _ = g.outbox.send(g.sending, message) }

// refuse answers a message with an error.
func (g *gatewayConnection) refuse(id string, err error) {
	g.answer(answerTo(opErr, id).problem(g.problem(err)).end())
}

// problem is what the client is told of an error. What is a fault of the service, the log tells.
func (g *gatewayConnection) problem(err error) *domain.Error {
	e, fault := clientError(err)
	switch {
	case fault && errors.Is(err, context.Canceled) && g.alive.Err() != nil:
		e = domain.Errorf(domain.CodeUnavailable, "", "the connection is ending")
	case fault:
		g.server.log.Error("a message failed", "requestId", g.requestID, "error", err)
		e = domain.Errorf(codeInternal, "", "the service's log has the cause under the request id %s", g.requestID)
	case e.Code == domain.CodeUnavailable || e.Code == domain.CodeOutcomeUnknown:
		g.server.log.Warn("a database did not serve a message", "requestId", g.requestID, "error", err)
	}
	return e
}

// newLane returns a lane that is waited for when the connection ends.
func (g *gatewayConnection) newLane() *gatewayLane {
	return &gatewayLane{all: &g.waiting, run: func(work func()) {
		g.working.Go(func() {
			if err := g.guarded(func() error { work(); return nil }); err != nil {
				g.end(err)
			}
		})
	}}
}

// add has something done on a lane, with a context of its own, and answers with an error that it returns. It refuses where too
// much waits on the lane. The lock is held.
func (g *gatewayConnection) add(lane *gatewayLane, m *gatewayMessage, do func(ctx context.Context) error) error {
	id, room := m.id, m.room
	job := gatewayJob{bytes: m.size, do: func() {
		defer room.Close()
		ctx, cancel := context.WithTimeout(g.work, g.server.timeout)
		defer cancel()
		if err := do(ctx); err != nil {
			g.refuse(id, err)
		}
	}}
	if g.ended {
		return nil
	}
	m.waits = lane.add(job)
	if !m.waits {
		return domain.Errorf(domain.CodeTooManyRequests, "", "too much waits to be carried out; wait for answers before sending more")
	}
	return nil
}

// guarded runs what is done beside the request's own goroutine. A panic is logged, and is an error that clients are told nothing of.
func (g *gatewayConnection) guarded(run func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			g.server.log.Error("a connection of the gateway panicked", "requestId", g.requestID, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
			err = domain.Errorf(codeInternal, "", "the service's log has the cause under the request id %s", g.requestID)
		}
	}()
	return run()
}
