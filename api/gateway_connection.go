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

// Limits of a gateway connection.
const (
	gatewayRate          = 200     // messages a second, also as a burst
	gatewayFlood         = 5 * 200 // burst of refused messages; refilled at gatewayRate; beyond it the connection ends
	gatewayInFlight      = 100     // unanswered events of groups
	gatewaySubscriptions = 100
	unknownBytes         = 16 << 10 // of a message before the client is known

	// drainWithin limits how long a closing connection finishes its work and returns unanswered events.
	drainWithin = 5 * time.Second
)

// gatewayOps maps operations, as clients name them, to their handlers. A handler takes its fields from the message. It
// either returns an error, which is sent to the client, or answers the message at once or later. Handlers are called
// one at a time, in the order of the messages, and must not block.
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

// gatewayConnection is one connection of the gateway. One goroutine reads messages and starts their operations. Another
// one writes outgoing messages. Each subscription has a goroutine that delivers its events, and job queues run slow
// operations.
type gatewayConnection struct {
	server    *Server
	socket    *socket
	requestID string
	sendQueue *gatewaySendQueue
	bucket    *rate.Limiter
	refused   *rate.Limiter
	inFlight  *semaphore.Weighted // of all groups

	alive     context.Context // ends, with the cause, when the connection is to close
	end       context.CancelCauseFunc
	work      context.Context // of operations; received messages are still handled when the connection closes
	endWork   context.CancelFunc
	sending   context.Context // ends when messages can no longer be sent
	endSends  context.CancelFunc
	under     *fairshare.Account // counts the connection for its tenant after AUTH; the reader's until the reader ends
	caller    caller             // for the reader and what it starts; unknown until authenticated
	authTimer *time.Timer        // nil if the request had a key

	watch     func()         // stops checking the key
	working   sync.WaitGroup // job queues
	waiting   atomic.Int64   // bytes in all job queues
	published *gatewayJobQueue

	mu            sync.Mutex
	ended         bool // no new operation may start
	subscriptions map[string]*gatewaySubscription
}

func newGatewayConnection(s *Server, socket *socket, requestID string) *gatewayConnection {
	g := &gatewayConnection{
		server: s, socket: socket, requestID: requestID, sendQueue: newGatewaySendQueue(),
		bucket: rate.NewLimiter(gatewayRate, gatewayRate), refused: rate.NewLimiter(gatewayRate, gatewayFlood),
		inFlight:      semaphore.NewWeighted(gatewayInFlight),
		subscriptions: map[string]*gatewaySubscription{}, watch: func() {},
	}
	g.published = g.newJobQueue()
	return g
}

// serve serves the connection until ctx ends, the client disconnects, or the client is refused. It then closes the
// connection, and returns when all its goroutines have ended. known is the caller of the request, if the request had a
// key.
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
		if err := g.sendQueue.run(flush, g.socket.send); err != nil {
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
	release := g.socket.endWith(g.alive) // limits the time for the remaining writes
	close(flush)
	writing.Wait()
	release()
	leaveGateway(g.socket, cause)
	reading.Wait()
}

// drain finishes the received operations as far as the client may still perform them, ends the subscriptions, and sends
// the reason for closing.
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
		// Messages that nobody reads may fill the send queue.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(g.alive), closeGrace)
		defer cancel()
		_ = g.sendQueue.send(ctx, answerTo(opErr, "").problem(refusal).end())
	}
}

// read reads messages until the connection ends.
func (g *gatewayConnection) read() error {
	for {
		// The context does not end the read: the library would cut the connection. Closing the socket ends it.
		kind, text, room, err := g.next()
		switch {
		case errors.Is(err, websocket.ErrMessageTooBig) || isBusy(err):
			return err
		case err != nil:
			return errGone
		case g.alive.Err() != nil: // we have sent a close frame and wait for the answer
		case kind != websocket.MessageText:
			return errBinary
		default:
			if err := g.receive(text, room); err != nil {
				return err
			}
		}
	}
}

// next reads a message, if the tenant has room for it, within the time limit of a request's body. The receiver must
// release room. It is nil before the client is known; messages are short until then.
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

// isBusy reports whether an error means a lack of room.
func isBusy(err error) bool {
	return domain.IsCode(err, domain.CodeTooManyRequests) || domain.IsCode(err, domain.CodeOverloaded)
}

// receive starts the operation of a message. An error ends the connection.
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

// authenticate handles AUTH.
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
				// The usual message mentions a header, which a message does not have.
				message = "this key does not work; send AUTH with one that has not been revoked"
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

// recognise accepts a caller, and ends the connection if its key is refused later.
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

// ping checks periodically that a silent client is still connected.
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

// answer sends a message, unless the connection can no longer send. It waits while the client does not read.
func (g *gatewayConnection) answer(message []byte) { _ = g.sendQueue.send(g.sending, message) }

// refuse answers a message with an error.
func (g *gatewayConnection) refuse(id string, err error) {
	g.answer(answerTo(opErr, id).problem(g.problem(err)).end())
}

// problem converts an error to one for the client, and logs faults of the service.
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

// newJobQueue returns a queue of the connection, which waits for its work before it ends.
func (g *gatewayConnection) newJobQueue() *gatewayJobQueue {
	return &gatewayJobQueue{all: &g.waiting, run: func(work func()) {
		g.working.Go(func() {
			if err := g.guarded(func() error { work(); return nil }); err != nil {
				g.end(err)
			}
		})
	}}
}

// add runs an operation on a job queue, with its own context, and sends its error to the client. It refuses the
// operation if too much waits in the queue. The lock is held.
func (g *gatewayConnection) add(queue *gatewayJobQueue, m *gatewayMessage, do func(ctx context.Context) error) error {
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
	m.waits = queue.add(job)
	if !m.waits {
		return domain.Errorf(domain.CodeTooManyRequests, "", "too much waits to be carried out; wait for answers before sending more")
	}
	return nil
}

// guarded calls run, which works outside of the request's goroutine. It logs a panic and returns it as an error without
// details for the client.
func (g *gatewayConnection) guarded(run func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			g.server.log.Error("a connection of the gateway panicked", "requestId", g.requestID, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
			err = domain.Errorf(codeInternal, "", "the service's log has the cause under the request id %s", g.requestID)
		}
	}()
	return run()
}
