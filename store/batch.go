package store

import (
	"context"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Bounds of what is written in one transaction. One request may be larger than batchBytes: it goes alone.
const (
	batchEvents = 2000
	batchBytes  = 4 << 20
)

// batch is what a writer tries to write in one transaction: requests taken from the queue, and the plan that an attempt
// makes of them. It is used again for the next one.
type batch struct {
	requests []*request // without an answer yet, in the order of their arrival
	events   int
	bytes    int64
	failures int  // attempts in a row that failed for the database's reasons
	puzzles  int  // attempts in a row that broke a unique constraint which no duplicate explains
	careful  bool // a guess was wrong, or may have been: read every version
	single   bool // one request at a time, until the batch is empty: one of them is refused by the database

	// The plan.
	read     map[string]int64 // versions read in this attempt; asked where they are still to be read
	versions map[string]int64 // of the streams behind the requests planned so far
	guesses  []streamVersion  // versions that were not read, and without which the plan is nothing
	ids      map[domain.EventID]struct{}
	written  []*request // to be written, in order
	firsts   []int64    // for each stream of each of these, the version of its first event
	rows     int        // their events
	settled  []settled  // to be answered without anything written for them
	confirm  bool       // some of these answers hold only for the head that the plan was made at
	again    bool       // documents are to be loaded first: see InlineFolds.Fold
	ahead    map[string]int64
}

// settled is a request with an outcome that needs no writing.
type settled struct {
	request  *request
	appended domain.Appended
	err      error
}

// asked stands in batch.read for a version that is to be read.
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
		r.found = nil
	}
	b.reset()
}

func (b *batch) reset() {
	clear(b.versions)
	clear(b.ids)
	clear(b.written)
	clear(b.settled)
	clear(b.guesses)
	b.guesses = b.guesses[:0]
	b.written, b.firsts, b.rows, b.settled, b.confirm, b.again = b.written[:0], b.firsts[:0], 0, b.settled[:0], false, false
}

// plan decides what becomes of each request, as if they were appended one after the other to the log as it is known. It
// returns what has to be read first, streams whose versions are not known and requests whose ids are to be looked up;
// where it returns nothing, and b.again is false, the plan is whole. Where ctx ends there is no plan.
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
		// Ids come before expected versions: a repeated success never becomes a conflict.
		if answered, appended, err := r.answerFound(); answered {
			b.settled = append(b.settled, settled{r, appended, err})
			continue
		}
		if !r.fresh && b.shares(r) {
			r.lookUp = true // it waits for the other to be written, and is looked up then
			continue
		}
		if unknown := b.resolve(log, r); len(unknown) > 0 {
			streams = append(streams, unknown...)
			continue
		}
		refused := b.conflict(r)
		if refused == nil && log.folds != nil {
			var again bool
			if again, refused = log.folds.Fold(ctx, b.eventsOf(r, log.head)); again {
				b.again = true
				continue
			}
			if ctx.Err() != nil {
				return nil, nil
			}
			if refused != nil {
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
			b.confirm = true
			continue
		}
		b.accept(r)
	}
	if b.rows == 0 {
		// Nothing is sent that a guess could be held against.
		for _, guess := range b.guesses {
			b.read[guess.stream] = asked
			streams = append(streams, guess.stream)
		}
	}
	return streams, lookUps
}

// shares reports whether an id of the request is another's that is to be written with this plan.
func (b *batch) shares(r *request) bool {
	for _, id := range r.ids {
		if _, ok := b.ids[id]; ok {
			return true
		}
	}
	return false
}

// resolve sees to it that the versions of the request's streams are in b.versions, and returns the streams that are
// still to be read, each once. Where a version is expected it need not be read: that the stream has it becomes a condition
// of the write, which saves a round trip for each new stream.
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

// conflict returns the error of a request whose expectation does not hold, or nil. Where a stream comes again in the
// request, anything holds.
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

func (b *batch) accept(r *request) {
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

// remove takes the request, which was answered, out of the batch.
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

// take moves the requests of another batch behind those of this one.
func (b *batch) take(other *batch) {
	for _, r := range other.requests {
		b.add(r)
	}
	clear(other.requests)
	other.requests, other.events, other.bytes = other.requests[:0], 0, 0
	other.reset()
}

// giveUp answers the requests that err, by which an attempt failed, leaves no hope for; the others stay in the batch.
func (w *writer) giveUp(b *batch, err error) {
	now := time.Now()
	again := passing(err)
	var culprit *request
	if !again && refused(err) && unavailable(err) == err {
		// PostgreSQL refuses something in it. The others must not suffer: each is tried alone.
		if len(b.requests) > 1 && !b.single {
			b.single, again = true, true
		} else if len(b.requests) > 0 {
			culprit, again = b.requests[0], true
		}
	}
	b.remove(func(r *request) bool {
		switch {
		case r == culprit, !again && !r.unknown: // to find out what became of a lost attempt is worth waiting for
			w.answer(r, domain.Appended{}, r.failure(err))
		case r.late(now):
			w.answer(r, domain.Appended{}, r.failure(lateFor(err)))
		default:
			return false
		}
		return true
	})
}

// lateFor is why a request that is late was not written, after an attempt that failed with err: what PostgreSQL refuses
// is another request's.
func lateFor(err error) error {
	if refused(err) && unavailable(err) == err {
		return context.DeadlineExceeded
	}
	return err
}
