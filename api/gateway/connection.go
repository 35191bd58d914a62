package gateway

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sync/semaphore"
	"golang.org/x/time/rate"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/socket"
	"github.com/manifold-es/manifold/api/transfer"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

// Limits of a gateway connection.
const (
	messageRate             = 200     // messages a second, also as a burst
	refusedBurst            = 5 * 200 // burst of refused messages; refilled at messageRate; beyond it the connection ends
	maxInFlight             = 100     // unanswered events of groups
	maxSubscriptions        = 100
	maxUnauthenticatedBytes = 16 << 10 // of a message before the client is known

	// drainWithin limits how long a closing connection finishes its work and returns unanswered events.
	drainWithin = 5 * time.Second
)

// operations maps operations, as clients name them, to their handlers. A handler takes its fields from the message. It
// either returns an error, which is sent to the client, or answers the message at once or later. Handlers are called
// one at a time, in the order of the messages, and must not block.
var operations = map[string]func(*connection, *clientMessage) error{
	"AUTH":        (*connection).authenticate,
	"SUBSCRIBE":   (*connection).subscribe,
	"UNSUBSCRIBE": (*connection).unsubscribe,
	"PAUSE":       (*connection).pause,
	"RESUME":      (*connection).resume,
	"ACK":         (*connection).ack,
	"NACK":        (*connection).nack,
	"MODACK":      (*connection).extend,
	"PUBLISH":     (*connection).publish,
	"COMMAND":     (*connection).command,
}

// connection is one connection of the gateway. One goroutine reads messages and starts their operations. Another
// one writes outgoing messages. Each subscription has a goroutine that delivers its events, and job queues run slow
// operations.
type connection struct {
	config    Config
	socket    *socket.Conn
	requestID string
	sendQueue *sendQueue
	bucket    *rate.Limiter
	refused   *rate.Limiter
	inFlight  *semaphore.Weighted // of all groups, with room that waiting receives have reserved
	sent      *semaphore.Weighted // one for each event in flight; all maxInFlight for an event that must be alone
	unsettled atomic.Int64        // events of groups that were sent and not answered

	alive     context.Context // ends, with the cause, when the connection is to close
	end       context.CancelCauseFunc
	work      context.Context // of operations; received messages are still handled when the connection closes
	endWork   context.CancelFunc
	sending   context.Context // ends when messages can no longer be sent
	endSends  context.CancelFunc
	admitted  *access.Admission // counts the connection for its tenant and key; after AUTH, the reader's until the reader ends
	caller    access.Caller     // for the reader and what it starts; unknown until authenticated
	authTimer *time.Timer       // nil if the request had a key

	stopWatching func()         // stops checking the key
	working      sync.WaitGroup // job queues
	waiting      atomic.Int64   // bytes in all job queues
	published    *jobQueue

	mu            sync.Mutex
	ended         bool // no new operation may start
	subscriptions map[string]*subscription
}

func newConnection(config Config, socket *socket.Conn, requestID string) *connection {
	g := &connection{
		config: config, socket: socket, requestID: requestID, sendQueue: newSendQueue(),
		bucket: rate.NewLimiter(messageRate, messageRate), refused: rate.NewLimiter(messageRate, refusedBurst),
		inFlight: semaphore.NewWeighted(maxInFlight), sent: semaphore.NewWeighted(maxInFlight),
		subscriptions: map[string]*subscription{}, stopWatching: func() {},
	}
	g.published = g.newJobQueue()
	return g
}

// serve serves the connection until ctx ends, the client disconnects, or the client is refused. It then closes the
// connection, and returns when all its goroutines have ended. known is the caller of the request, if the request had a
// key.
func (g *connection) serve(ctx context.Context, known access.Caller, admitted *access.Admission) {
	g.alive, g.end = context.WithCancelCause(ctx)
	defer g.end(nil)
	g.work, g.endWork = context.WithCancel(context.WithoutCancel(ctx))
	defer g.endWork()
	g.sending, g.endSends = context.WithCancel(g.work)
	defer g.endSends()

	g.admitted = admitted
	defer func() { g.admitted.Close() }()
	if known.Known() {
		g.accept(known)
	} else {
		g.socket.ReadLimit(maxUnauthenticatedBytes)
		g.authTimer = time.AfterFunc(g.config.AuthTimeout, func() { g.end(notAuthenticated(g.config.AuthTimeout)) })
		defer g.authTimer.Stop()
	}
	flush := make(chan struct{})
	var reading, writing, pinging sync.WaitGroup
	writing.Go(func() {
		defer g.endSends()
		if err := g.sendQueue.run(flush, g.socket.Send); err != nil && !errors.Is(err, net.ErrClosed) {
			g.end(errBroke)
		} // after net.ErrClosed, a close frame was sent, and the reader ends with the reason
	})
	reading.Go(func() { g.end(g.guarded(g.read)) })
	pinging.Go(func() { g.ping() })

	<-g.alive.Done()
	cause := context.Cause(g.alive)
	g.drain(cause)
	g.mu.Lock()
	unwatch := g.stopWatching
	g.mu.Unlock()
	unwatch()
	pinging.Wait()
	release := g.socket.EndWith(g.alive) // limits the time for the remaining writes
	close(flush)
	writing.Wait()
	release()
	closeSocket(g.socket, cause)
	reading.Wait()
}

// drain finishes the received operations as far as the client may still perform them, ends the subscriptions, and sends
// the reason for closing.
func (g *connection) drain(cause error) {
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
	g.leaveAll(errors.Is(cause, errBroke) || errors.Is(cause, socket.ErrSilent))
	if refused {
		// Messages that nobody reads may fill the send queue.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(g.alive), socket.CloseGrace)
		defer cancel()
		_ = g.sendQueue.send(ctx, replyTo(opErr, "").problem(refusal).end())
	}
}

// read reads messages until the connection ends.
func (g *connection) read() error {
	for {
		// Closing the socket ends the read.
		kind, text, room, err := g.next()
		switch {
		case errors.Is(err, websocket.ErrMessageTooBig) || isBusy(err):
			return err
		case err != nil:
			return goneWith(err)
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

// errBroke ends a connection that the client has not closed: the client may have died.
var errBroke = fmt.Errorf("%w without closing the connection", socket.ErrGone)

// goneWith returns the reason to end a connection on which a read has failed.
func goneWith(err error) error {
	switch websocket.CloseStatus(err) {
	case websocket.StatusNormalClosure, websocket.StatusGoingAway, websocket.StatusNoStatusRcvd:
		return socket.ErrGone
	}
	return errBroke
}

// next reads a message, if the tenant has room for it, within the time limit of a request's body. The receiver must
// release room. It is nil before the client is known; messages are short until then.
func (g *connection) next() (kind websocket.MessageType, text []byte, room *fairshare.Account, err error) {
	kind, from, err := g.socket.Reader()
	if err != nil {
		return kind, nil, nil, err
	}
	late := time.AfterFunc(g.config.Timeout+g.config.StallTimeout, func() { g.end(socket.ErrSilent) })
	defer late.Stop()
	limit := maxUnauthenticatedBytes
	if g.caller.Known() {
		room, limit = g.config.Bodies.Account(g.caller.ShareOf()), domain.MaxRequestBytes
	}
	charge := func(bytes int64) error { return room.Wait(g.alive, bytes, transfer.RoomPatience) }
	if text, err = transfer.ReadAll(from, -1, limit, charge, room); err != nil {
		room.Close()
	}
	if err == transfer.ErrTooLong {
		err = websocket.ErrMessageTooBig
	}
	return kind, text, room, err
}

// isBusy reports whether an error means a lack of room.
func isBusy(err error) bool {
	return domain.IsCode(err, domain.CodeTooManyRequests) || domain.IsCode(err, domain.CodeOverloaded)
}

// receive starts the operation of a message. An error ends the connection.
func (g *connection) receive(text []byte, room *fairshare.Account) error {
	m, err := readMessage(text)
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
		g.refuse(m.id, domain.Errorf(domain.CodeTooManyRequests, "", "message rejected: a connection may send %d messages a second", messageRate))
		return nil
	}
	if err == nil {
		err = g.admitted.Message(g.alive)
	}
	if err != nil {
		g.refuse(m.id, err)
		return nil
	}
	op := operations[m.op]
	switch {
	case op == nil:
		err = domain.Errorf(domain.CodeInvalidRequest, "op", "unknown operation %q; expected %s", domain.Clip(m.op, 40), strings.Join(OperationNames(), ", "))
	case !g.caller.Known() && m.op != "AUTH":
		err = domain.Errorf(domain.CodeUnauthenticated, "op", "the first message must be AUTH, with the key")
	default:
		err = op(g, &m)
	}
	if err != nil {
		g.refuse(m.id, err)
	}
	return nil
}

// OperationNames returns the operations that clients may send.
func OperationNames() []string { return slices.Sorted(maps.Keys(operations)) }

// authenticate handles AUTH.
func (g *connection) authenticate(m *clientMessage) error {
	key := m.fields.text("key", 1, maxKeyCharacters)
	if err := m.fields.end(); err != nil {
		return err
	}
	if g.caller.Known() {
		return domain.Errorf(domain.CodeInvalidRequest, "op", "already authenticated; open another connection for another key")
	}
	ctx, cancel := context.WithTimeout(g.work, g.config.Timeout)
	defer cancel()
	known, err := g.identify(ctx, key)
	if err != nil {
		g.config.Denied(ctx, err)
		if e, ok := errors.AsType[*domain.Error](err); ok && e.Where == "Authorization" {
			err = domain.Errorf(e.Code, "key", "%s", e.Message)
		}
		return err
	}
	if g.admitted, err = g.config.Enter(ctx, known); err != nil {
		return err
	}
	if !g.authTimer.Stop() {
		return nil // too late: the connection is ending
	}
	g.accept(known)
	g.answer(replyTo(opOK, m.id).text("tenant", known.Credential.Tenant.String()).end())
	return nil
}

// identify returns the caller with a key that may use the gateway.
func (g *connection) identify(ctx context.Context, key string) (access.Caller, error) {
	credential, err := g.config.Keys.Authenticate(ctx, key)
	if err != nil {
		return access.Caller{}, err
	}
	known, err := g.config.Caller(ctx, credential)
	if err == nil {
		err = known.Credential.RequireSome(Scopes...)
	}
	if err != nil {
		return access.Caller{}, &auth.DenialError{Credential: credential, Err: err}
	}
	return known, nil
}

// accept accepts a caller, and ends the connection if its key is refused later.
func (g *connection) accept(known access.Caller) {
	g.caller = known
	g.config.Known(g.alive)
	g.socket.ReadLimit(domain.MaxRequestBytes)
	allowed, stop := access.WhileAllowed(g.admitted.Context(g.alive), g.config.Keys, g.config.Recheck, known)
	context.AfterFunc(allowed, func() {
		if cause := context.Cause(allowed); problem.IsRefusal(cause) {
			g.end(cause)
		}
	})
	g.mu.Lock()
	g.stopWatching = stop
	g.mu.Unlock()
}

// ping checks periodically that a silent client is still connected.
func (g *connection) ping() {
	tick := time.NewTicker(g.config.Heartbeat)
	defer tick.Stop()
	for {
		select {
		case <-g.alive.Done():
			return
		case <-tick.C:
		}
		if err := g.socket.Ping(); err != nil {
			g.end(err)
			return
		}
	}
}

// answer sends a message, unless the connection can no longer send. It waits while the client does not read.
func (g *connection) answer(message []byte) { _ = g.sendQueue.send(g.sending, message) }

// refuse answers a message with an error.
func (g *connection) refuse(id string, err error) {
	if g.caller.Known() && problem.IsRefusal(err) {
		g.config.Denied(g.work, &auth.DenialError{Credential: g.caller.Credential, Err: err})
	}
	g.answer(replyTo(opErr, id).problem(g.problem(err)).end())
}

// problem converts an error to one for the client, and logs faults of the service.
func (g *connection) problem(err error) *domain.Error {
	e, fault := problem.Of(err)
	switch {
	case fault && errors.Is(err, context.Canceled) && g.alive.Err() != nil:
		e = domain.Errorf(domain.CodeUnavailable, "", "the connection is ending")
	case fault:
		g.config.Log.Error("internal error in a gateway message", "requestId", g.requestID, "error", err)
		e = domain.Errorf(problem.CodeInternal, "", "the service's log has the cause under the request id %s", g.requestID)
	case e.Code == domain.CodeUnavailable || e.Code == domain.CodeOutcomeUnknown:
		g.config.Log.Warn("database unavailable for a gateway message", "requestId", g.requestID, "error", err)
	}
	return e
}

// newJobQueue returns a queue of the connection, which waits for its work before it ends.
func (g *connection) newJobQueue() *jobQueue {
	return &jobQueue{all: &g.waiting, run: func(work func()) {
		g.working.Go(func() {
			if err := g.guarded(func() error { work(); return nil }); err != nil {
				g.end(err)
			}
		})
	}}
}

// add runs an operation on a job queue, with its own context, and sends its error to the client. It refuses the
// operation if too much waits in the queue. The lock is held.
func (g *connection) add(queue *jobQueue, m *clientMessage, do func(ctx context.Context) error) error {
	id, room := m.id, m.room
	job := queuedJob{bytes: m.size, do: func() {
		defer room.Close()
		ctx, cancel := context.WithTimeout(g.admitted.Context(g.work), g.config.Timeout)
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
		return domain.Errorf(domain.CodeTooManyRequests, "", "too many operations are waiting; wait for answers before sending more")
	}
	return nil
}

// guarded calls run, which works outside of the request's goroutine. It logs a panic and returns it as an error without
// details for the client.
func (g *connection) guarded(run func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			g.config.Log.Error("a connection of the gateway panicked", "requestId", g.requestID, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
			err = domain.Errorf(problem.CodeInternal, "", "the service's log has the cause under the request id %s", g.requestID)
		}
	}()
	return run()
}
