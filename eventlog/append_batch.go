package eventlog

import (
	"context"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// Limits of one transaction. A single request may exceed batchBytes: it is then written alone.
const (
	batchEvents = 2000
	batchBytes  = 4 << 20
)

// batch is what a writer tries to write in one transaction: requests from the queue, and the plan that an attempt makes
// of them. It is reused for the next transaction.
type batch struct {
	requests    []*request // without an answer yet, in the order of arrival
	events      int
	bytes       int64
	failures    int  // consecutive attempts that failed because of the database
	unexplained int  // consecutive attempts that violated a unique constraint without a duplicate
	careful     bool // a guess was or may have been wrong: read every version
	single      bool // write one request at a time until the batch is empty: the database refuses one of them

	// The plan.
	read     map[string]int64 // versions read in this attempt; asked if still to be read
	versions map[string]int64 // of the streams, after the requests planned so far
	guesses  []streamVersion  // assumed versions, on which the plan depends
	ids      map[domain.EventID]struct{}
	written  []*request // to be written, in order
	firsts   []int64    // the version of the first event, for each stream of each request in written
	rows     int        // the number of their events
	settled  []settled  // to be answered without writing anything
	confirm  bool       // some of these answers are only valid at the head that the plan was made for
	found    bool       // some of these answers acknowledge events that are in the log already
	mustLoad bool       // load documents first: see InlineFolds.Fold
	ahead    map[string]int64
	unread   []*request                // whose conditions must be read
	tags     int                       // of the events of written
	tagged   map[string][]plannedEvent // those events, by tag; their positions rise

	lookUps     int // that this attempt's reading of conditions may take
	comparisons int // of conditions with planned events, in this plan
}

// settled is a request whose outcome needs no writing.
type settled struct {
	request  *request
	appended domain.Appended
	err      error
}

// asked marks a version in batch.read that is still to be read.
const asked = -1

func (b *batch) add(r *request) {
	b.requests = append(b.requests, r)
	b.events += r.events
	b.bytes += r.bytes
}

// begin forgets what an earlier attempt has read.
func (b *batch) begin() {
	if b.read == nil {
		b.read, b.versions, b.ids = make(map[string]int64), make(map[string]int64), make(map[domain.EventID]struct{})
	}
	clear(b.read)
	for _, r := range b.requests {
		r.found, r.checked, r.unmet = nil, false, nil
	}
	b.lookUps = 0
	b.reset()
}

func (b *batch) reset() {
	clear(b.versions)
	clear(b.ids)
	clear(b.written)
	clear(b.settled)
	clear(b.guesses)
	clear(b.unread)
	clear(b.tagged)
	b.unread, b.tags, b.comparisons = b.unread[:0], 0, 0
	b.guesses = b.guesses[:0]
	b.written, b.firsts, b.rows, b.settled, b.confirm, b.found, b.mustLoad = b.written[:0], b.firsts[:0], 0, b.settled[:0], false, false, false
}

// plan decides the outcome of each request, as if they were appended one after the other to the log as it is known. It
// returns what must be read first: streams with unknown versions, and requests whose ids must be looked up. b.unread
// has the requests whose conditions must be read. If there is none of these and b.mustLoad is false, the plan is
// complete. If ctx ends there is no plan.
func (b *batch) plan(ctx context.Context, log *logState) (streams []string, lookUps []*request) {
	b.reset()
	if log.folds != nil {
		log.folds.Begin(log.head)
	}
	requests := b.requests
	if b.single && len(requests) > 1 {
		requests = requests[:1]
	}
	for _, r := range requests {
		if r.found == nil && !r.fresh && (r.lookUp || log.lookFirst) {
			lookUps = append(lookUps, r)
			continue
		}
		// Ids are checked before expected versions, so that repeating a successful request never becomes a conflict.
		if answered, appended, err := r.answerFound(); answered {
			b.settled = append(b.settled, settled{r, appended, err})
			b.found = b.found || err == nil
			continue
		}
		if !r.fresh && b.shares(r) {
			r.lookUp = true // wait until the other request is written, then look it up
			continue
		}
		unknown := b.resolve(log, r)
		streams = append(streams, unknown...)
		if len(r.append.Conditions) > 0 && !r.checked && !log.proves(r.append.Conditions) {
			b.readConditionsOf(r)
			continue
		}
		if len(unknown) > 0 {
			continue
		}
		refused := b.conflict(r)
		conflict := refused != nil // with the head as it is known
		if refused == nil {
			refused = r.unmet
		}
		if refused == nil && len(r.append.Conditions) > 0 && b.mayMatch(r.append.Conditions) {
			continue // wait until the other requests are written, then read the conditions
		}
		if refused == nil && log.folds != nil {
			if log.folds.Full() {
				continue // wait for the next batch
			}
			var mustLoad bool
			if mustLoad, refused = log.folds.Fold(ctx, b.eventsOf(r, log.head)); mustLoad {
				b.mustLoad = true
				continue
			}
			if ctx.Err() != nil {
				return nil, nil
			}
			if conflict = refused != nil; conflict {
				refused = r.refusal(refused)
			}
		}
		if refused != nil {
			if !r.fresh && r.found == nil {
				r.lookUp = true
				lookUps = append(lookUps, r)
				continue
			}
			b.settled = append(b.settled, settled{r, domain.Appended{}, refused})
			b.confirm = b.confirm || conflict
			continue
		}
		b.accept(r, log.head)
	}
	if b.rows == 0 {
		// Without a write, no statement would check the guesses.
		for _, guess := range b.guesses {
			b.read[guess.stream] = asked
			streams = append(streams, guess.stream)
		}
	}
	return streams, lookUps
}

// shares reports whether the request has an id that another request of this plan will write.
func (b *batch) shares(r *request) bool {
	for _, id := range r.ids {
		if _, ok := b.ids[id]; ok {
			return true
		}
	}
	return false
}

// resolve puts the versions of the request's streams into b.versions. It returns the streams that must still be read,
// each once. A version that the request expects need not be read: it becomes a condition of the write. That saves a
// round trip for each new stream.
func (b *batch) resolve(log *logState, r *request) (unknown []string) {
	for i := range r.append.Streams {
		stream, expected := r.append.Streams[i].Stream, r.append.Streams[i].Expected
		if _, ok := b.versions[stream]; ok {
			continue
		}
		version, ok := b.read[stream]
		if !ok {
			if version, ok = log.versions.get(stream); !ok && expected >= 0 && !b.careful {
				b.guesses = append(b.guesses, streamVersion{stream, int64(expected)})
				b.versions[stream] = int64(expected)
				continue
			}
			if !ok {
				b.read[stream] = asked
				unknown = append(unknown, stream)
				continue
			}
		}
		if version != asked {
			b.versions[stream] = version
		}
	}
	return unknown
}

// conflict returns the error of a request whose expectation does not hold, or nil. For further occurrences of a stream
// in the request, every version is accepted.
func (b *batch) conflict(r *request) error {
	for i := range r.append.Streams {
		stream := &r.append.Streams[i]
		version := b.versions[stream.Stream]
		if stream.Expected.Holds(version) {
			continue
		}
		err := domain.Errorf(domain.CodeVersionConflict, "", "the stream %q is at version %d, and %s was expected", stream.Stream, version, stream.Expected)
		err.CurrentVersion, err.Stream = &version, stream.Stream
		return err
	}
	return nil
}

func (b *batch) accept(r *request, head int64) {
	b.acceptTags(r, head+int64(b.rows))
	for i := range r.append.Streams {
		stream := &r.append.Streams[i]
		version := b.versions[stream.Stream]
		b.firsts = append(b.firsts, version+1)
		b.versions[stream.Stream] = version + int64(len(stream.Events))
	}
	if !r.fresh {
		for _, id := range r.ids {
			b.ids[id] = struct{}{}
		}
	}
	b.written = append(b.written, r)
	b.rows += r.events
}

// remove removes the answered requests from the batch.
func (b *batch) remove(answered func(r *request) bool) {
	b.requests = slices.DeleteFunc(b.requests, func(r *request) bool {
		if !answered(r) {
			return false
		}
		b.events -= r.events
		b.bytes -= r.bytes
		return true
	})
	if len(b.requests) == 0 {
		b.single, b.careful = false, false
	}
}

// merge appends the requests of another batch to those of this one.
func (b *batch) merge(other *batch) {
	for _, r := range other.requests {
		b.add(r)
	}
	clear(other.requests)
	other.requests, other.events, other.bytes = other.requests[:0], 0, 0
	other.reset()
}

// giveUp answers the requests that cannot succeed after an attempt failed with err. The others stay in the batch.
func (w *writer) giveUp(b *batch, err error) {
	now := time.Now()
	retry := retryable(err)
	var culprit *request
	if !retry && refusesContent(err) {
		// Something in the batch is refused. The other requests must not suffer, so each is tried alone.
		if len(b.requests) > 1 && !b.single {
			b.single, retry = true, true
		} else if len(b.requests) > 0 {
			culprit, retry = b.requests[0], true
		}
	}
	b.remove(func(r *request) bool {
		switch {
		case r == culprit, !retry && !r.unknown: // finding out about a lost attempt is worth waiting
			w.answer(r, domain.Appended{}, r.failure(err))
		case r.late(now):
			w.answer(r, domain.Appended{}, r.failure(lateFor(err)))
		default:
			return false
		}
		return true
	})
}

// refusesContent reports whether an attempt failed with err because of what a request contains: PostgreSQL refuses it,
// or it changes inline documents that are too large.
func refusesContent(err error) bool {
	return pg.Refused(err) && pg.Unavailable(err) == err || domain.IsCode(err, domain.CodeTooCostly)
}

// lateFor returns the reason why a late request was not written after an attempt that failed with err. If something was
// refused, that was in another request.
func lateFor(err error) error {
	if refusesContent(err) {
		return context.DeadlineExceeded
	}
	return err
}
