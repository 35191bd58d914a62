package eventlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/attribute"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// Limits of the append path where Config has zeros.
const (
	defaultQueueBytes      = 32 << 20
	defaultTotalQueueBytes = 256 << 20
	defaultAppendTimeout   = 10 * time.Second
)

// eventOverhead is the size in a queue that an event adds to its data, metadata and names.
const eventOverhead = 96

// tagOverhead is likewise what a tag adds to its own length.
const tagOverhead = 32

// request is one Append on its way through a writer.
type request struct {
	append   domain.Append
	ids      []domain.EventID // of all events in order; fixed before the first attempt
	events   int
	bytes    int64
	deadline time.Time
	done     chan struct{} // closed when appended or err is set
	span     *tracing.Span // nil: not traced

	// The writer's fields, once it has taken the request from its queue.
	there   bool    // its events are in the log, but a failover may lose them: the standbys have not confirmed them yet
	fresh   bool    // every id was generated here and no attempt has an unknown outcome: none can exist already
	lookUp  bool    // look the ids up before writing the request
	found   []found // by event, after the lookup; nil before
	checked bool    // this attempt has read whether the conditions hold at the head
	unmet   error   // why they do not, or cannot be checked
	unknown bool    // the connection was lost during an attempt, with an unknown outcome

	answered bool // appended and err are set
	appended domain.Appended
	err      error
}

// found is the existing log entry for an id of a request; position 0: there is none.
type found struct {
	position, version int64
	same              bool // stream, type and data equal those of the request
}

// Append appends a request to the tenant's log: all of its events, or none. The result lists streams and events in the
// request's order. Append returns these errors:
//
//   - domain.CodeVersionConflict: a stream's version is not as expected; CurrentVersion and Stream say where it is
//   - domain.CodeConditionFailed: events match one of the conditions; FailedCondition says which
//   - domain.CodeTooCostly: a condition has to look at too many events
//   - domain.CodeDuplicateID, CodeEventIDConflict, CodePartialDuplicate: see the codes
//   - domain.CodeInvalidRequest: no event, a repeated stream with an expectation other than domain.Any, or text
//     that the database refuses
//   - domain.CodeRefused: an inline projection cannot fold an event of the request, which Where names
//   - domain.CodeTooManyRequests, CodeOverloaded: too much of the tenant, or of all tenants, is waiting
//   - domain.CodeOutcomeUnknown: the connection was lost and nobody could say in time what became of the request, or ctx
//     ended while it was being written. It may be repeated with the same ids
//   - domain.CodeUnavailable: the database did not answer in time; nothing was appended
//
// If ctx ends before writing has begun, nothing is appended, and the error wraps that of ctx. Requests of one tenant
// that wait at the same time are written together. Callers should check names and JSON first (domain.CheckStream,
// CheckType, CheckJSON). If the database still refuses something, only its own request fails. The request must no
// longer be changed, not even after Append has returned early.
func (s *Log) Append(ctx context.Context, tenant domain.TenantID, a domain.Append) (domain.Appended, error) {
	r, err := s.newRequest(a)
	if err != nil {
		return domain.Appended{}, err
	}
	if r.span = s.tracer.Within(ctx, "append"); r.span == nil {
		return s.write(ctx, tenant, r)
	}
	r.span.Set(tracing.Tenant(tenant), attribute.Int("manifold.events", r.events))
	appended, err := s.write(ctx, tenant, r)
	r.span.End(err)
	return appended, err
}

// write hands a request to its tenant's writer, and waits for the outcome.
func (s *Log) write(ctx context.Context, tenant domain.TenantID, r *request) (domain.Appended, error) {
	w, err := s.enqueue(tenant, r)
	if err != nil {
		return domain.Appended{}, err
	}
	select {
	case <-r.done:
		return r.appended, r.err
	case <-ctx.Done():
	}
	if w.withdraw(r) {
		return domain.Appended{}, fmt.Errorf("append: withdrawn before it was written: %w", context.Cause(ctx))
	}
	select {
	case <-r.done: // it finished first
		return r.appended, r.err
	default:
		return domain.Appended{}, domain.Errorf(domain.CodeOutcomeUnknown, "", "the request was given up while it was being written; repeat it with the same event ids to find out")
	}
}

// newRequest makes the checks that need no log, and assigns ids to events without one.
func (s *Log) newRequest(a domain.Append) (*request, error) {
	if err := domain.CheckConditions("condition", a.Conditions); err != nil {
		return nil, err
	}
	r := &request{append: a, fresh: true, deadline: time.Now().Add(s.appendTimeout), done: make(chan struct{})}
	for i := range a.Streams {
		stream := &a.Streams[i]
		if len(stream.Events) == 0 {
			return nil, domain.Errorf(domain.CodeInvalidRequest, Place(a, i, -1, "events"), "no events to append")
		}
		r.events += len(stream.Events)
		r.bytes += int64(len(stream.Stream))
	}
	if r.events == 0 {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "streams", "no stream to append to")
	}
	if len(a.Streams) > 1 {
		streams := make(map[string]struct{}, len(a.Streams))
		for i := range a.Streams {
			stream := &a.Streams[i]
			if _, repeated := streams[stream.Stream]; repeated && stream.Expected != domain.Any {
				return nil, domain.Errorf(domain.CodeInvalidRequest, Place(a, i, -1, "expectedVersion"),
					"the stream %q is repeated in the request; a repetition must expect any, because its version was checked at the first", stream.Stream)
			}
			streams[stream.Stream] = struct{}{}
		}
	}
	r.ids = make([]domain.EventID, 0, r.events)
	for i := range a.Streams {
		events := a.Streams[i].Events
		for j := range events {
			e := &events[j]
			r.bytes += int64(len(e.Data) + len(e.Metadata) + len(e.Type) + eventOverhead)
			for _, tag := range e.Tags {
				r.bytes += int64(len(tag) + tagOverhead)
			}
			if len(e.Data) == 0 {
				return nil, domain.Errorf(domain.CodeInvalidJSON, Place(a, i, j, "data"), "the event has no data; null is allowed")
			}
			id := e.ID
			if id.IsZero() {
				id = domain.NewEventID()
			} else {
				r.fresh = false
			}
			r.ids = append(r.ids, id)
		}
	}
	if !r.fresh && r.events > 1 {
		ids := make(map[domain.EventID]struct{}, r.events)
		for n, id := range r.ids {
			if _, twice := ids[id]; twice {
				i, j := r.place(n)
				return nil, domain.Errorf(domain.CodeDuplicateID, Place(a, i, j, "id"), "the event id %s is in the request twice", id)
			}
			ids[id] = struct{}{}
		}
	}
	return r, nil
}

// place returns the stream's and the event's index of the request's n-th event.
func (r *request) place(n int) (stream, event int) {
	for i := range r.append.Streams {
		if events := len(r.append.Streams[i].Events); n >= events {
			n -= events
			continue
		}
		return i, n
	}
	return len(r.append.Streams), 0
}

// Place names a field of a request: "events[3].id", or "streams[1].events[3].id" if there are several streams. event -1
// means the stream itself.
func Place(a domain.Append, stream, event int, field string) string {
	prefix := ""
	if len(a.Streams) > 1 {
		prefix = fmt.Sprintf("streams[%d].", stream)
	}
	if event < 0 {
		return prefix + field
	}
	return fmt.Sprintf("%sevents[%d].%s", prefix, event, field)
}

// answerAt returns the result of a request whose events are in the log, at the positions and versions that at returns.
func (r *request) answerAt(duplicate bool, at func(n int) (position, version int64)) domain.Appended {
	events := make([]domain.AppendedEvent, r.events)
	appended := domain.Appended{Streams: make([]domain.AppendedStream, len(r.append.Streams)), Duplicate: duplicate}
	n := 0
	for i := range r.append.Streams {
		stream := &r.append.Streams[i]
		first := n
		answered := domain.AppendedStream{Stream: stream.Stream}
		for range stream.Events {
			position, version := at(n)
			events[n] = domain.AppendedEvent{ID: r.ids[n], Version: version, Position: position}
			answered.Version = max(answered.Version, version)
			appended.Position = max(appended.Position, position)
			n++
		}
		answered.Events = events[first:n:n]
		appended.Streams[i] = answered
	}
	return appended
}

// answerFound answers a request from the log entries found for its ids. It returns false if none of them exists.
func (r *request) answerFound() (answered bool, _ domain.Appended, _ error) {
	there, other := 0, -1
	for n, f := range r.found {
		if f.position == 0 {
			continue
		}
		there++
		if !f.same && other < 0 {
			other = n
		}
	}
	switch {
	case there == 0:
		return false, domain.Appended{}, nil
	case other >= 0:
		i, j := r.place(other)
		err := domain.Errorf(domain.CodeEventIDConflict, Place(r.append, i, j, "id"),
			"the event id %s is in the log already, at position %d, with another stream, type or data", r.ids[other], r.found[other].position)
		err.Stream = r.append.Streams[i].Stream
		return true, domain.Appended{}, err
	case there < r.events:
		return true, domain.Appended{}, domain.Errorf(domain.CodePartialDuplicate, "",
			"%d of the request's %d events are in the log already; repeat a request as it was, or send the new events alone", there, r.events)
	}
	// Events that a lost attempt of this same request wrote are no duplicates.
	return true, r.answerAt(!r.unknown, func(n int) (int64, int64) { return r.found[n].position, r.found[n].version }), nil
}

// late reports whether the request's deadline has passed.
func (r *request) late(now time.Time) bool { return !now.Before(r.deadline) }

// failure returns the error for a request that is abandoned because of err.
func (r *request) failure(err error) error {
	if r.unknown || r.there {
		return domain.Errorf(domain.CodeOutcomeUnknown, "", "the connection to the database was lost while the request was being written; repeat it with the same event ids to find out")
	}
	if native := pg.SQLState(err); len(native) == 5 && native[:2] == "22" {
		return domain.Errorf(domain.CodeInvalidRequest, "", "the database cannot keep the request: %s", native)
	} else if len(native) == 5 && native[:2] == "54" {
		return domain.Errorf(domain.CodeTooLarge, "", "the request, or a document that an inline projection makes of it, is beyond what the database can keep: %s", native)
	}
	if retryable(err) {
		return pg.CannotServe("the database did not answer in time; nothing was appended", err)
	}
	err = pg.Unavailable(err)
	if _, ok := errors.AsType[*domain.Error](err); ok {
		return err
	}
	return fmt.Errorf("append: %w", err)
}

// retryable reports whether an attempt that failed with err, and certainly wrote nothing, may be retried.
func retryable(err error) bool {
	if _, connecting := errors.AsType[*pgconn.ConnectError](err); connecting {
		return false // report at once, rather than let the client wait
	}
	if pg.Disconnected(err) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	state := pg.SQLState(err)
	return pg.Busy(state) || state == pg.ReadOnly || state == "57014" // 57014: the statement took too long
}
