package eventlog

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// flight is a batch that was sent to be written, with the answers so far.
type flight struct {
	*batch
	id       batchID
	began    time.Time
	waiting  []pg.Sent
	moved    bool
	at       time.Time
	answered bool // all of its statements were executed
	inserted int64
	tags     int64   // inserted
	first    int64   // the head for which it was sent
	ahead    bool    // the log state already includes this batch, which may not be committed yet
	next     *flight // sent after this one
}

// pipelined is the number of events from which on a batch has another one sent after it. Below that, it is better to
// put all waiting requests into one batch: the cost of each transaction would outweigh the pauses.
const pipelined = 100

// write moves the head and inserts the plan's events, and then does the same for the batches sent after it.
func (a *attempt) write(ctx context.Context) error {
	f, err := a.send(ctx, a.batch)
	if f == nil {
		return err // nothing was sent
	}
	for err == nil {
		err = a.land(f, a.x.Receive(f.waiting))
		if err != nil || f.next == nil {
			return err
		}
		a.batch, a.next = a.next, a.batch
		f = f.next
	}
	a.uncertain = true
	return err
}

// send sends the plan of a batch, in a transaction that ends with it.
func (a *attempt) send(ctx context.Context, b *batch) (*flight, error) {
	a.begin()
	a.begun = false
	f := a.sendBatch(b)
	if err := a.sendFolds(b); err != nil {
		return nil, err
	}
	// Documents are loaded for a committed head, so nothing is sent after a batch that saves documents.
	if b.rows >= pipelined && !a.locked && !a.log.contended && a.next != nil && a.log.folds == nil {
		a.x.Reached(func() { a.follow(ctx, f) })
	}
	a.x.Commit()
	var err error
	f.waiting, err = a.x.SendOff()
	return f, err
}

// sendBatch sends the statements that write the plan of a batch.
func (a *attempt) sendBatch(b *batch) *flight {
	f := &flight{batch: b, first: a.log.head, id: batchID{domain.NewEventID(), true}, began: time.Now()}
	tenant, head := pg.TenantParam(a.w.tenant), a.log.head
	move, params := &moveHead, [][]byte{tenant, pg.Int8Param(head), pg.Int8Param(int64(b.rows)), f.id.param(), a.log.last.param(), pg.Int8Param(a.log.revision)}
	if a.log.folds != nil {
		move = &moveHeadInline
	}
	if len(b.guesses) > 0 {
		streams, versions := guessParams(b.guesses)
		move, params = &moveHeadIf, append(params, streams, versions)
		if a.log.folds != nil {
			move = &moveHeadIfInline
		}
	}
	a.x.Send(move, params, func(values [][]byte) error {
		f.moved, f.at = true, pg.TimeValue(values[0])
		return nil
	})
	buffers := buffersPool.Get().(*buffers)
	defer buffersPool.Put(buffers)
	if b.tags > 0 {
		p := b.taggedParams()
		params = append(buffers.insert(tenant, f.id.param(), head, b), p.tagged)
		a.x.SendTagged(&insertTaggedEvents, params, nil, func(tag pgconn.CommandTag) { f.inserted = tag.RowsAffected() })
		a.x.Send(&insertRuns, [][]byte{tenant, f.id.param(), pg.Int8Param(head), p.runs, p.derived, p.firsts}, nil)
		a.x.SendTagged(&insertByTag, [][]byte{tenant, f.id.param(), pg.Int8Param(head), p.tags, p.places, p.types}, nil,
			func(tag pgconn.CommandTag) { f.answered, f.tags = true, tag.RowsAffected() })
		return f
	}
	insert := &insertEvents
	if b.rows == 1 {
		insert, params = &insertEvent, buffers.insertOne(tenant, f.id.param(), head, b)
	} else {
		params = buffers.insert(tenant, f.id.param(), head, b)
	}
	a.x.SendTagged(insert, params, nil, func(tag pgconn.CommandTag) { f.answered, f.inserted = true, tag.RowsAffected() })
	return f
}

// follow sends another batch after one that was inserted and is being committed. Anything that is not simple is left to
// the next attempt.
func (a *attempt) follow(ctx context.Context, f *flight) {
	if !f.whole() || f.single || len(f.written)+len(f.settled) < len(f.requests) || !a.mayKeepConnection() {
		return
	}
	next := a.next
	next.begin()
	a.w.moveQueued(next)
	if len(next.requests) == 0 {
		return
	}
	a.advance(f)
	if streams, lookUps := next.plan(ctx, a.log); len(streams)+len(lookUps)+len(next.unread) > 0 || next.rows == 0 || ctx.Err() != nil {
		next.reset()
		return
	}
	// If it cannot be sent, the connection is broken, and the commit before it fails as well.
	f.next, _ = a.send(ctx, next)
}

// mayKeepConnection reports whether the connection may be kept for another batch. Nobody may be waiting for a
// connection. And enough of the attempt's time must be left for PostgreSQL to answer before it ends.
func (a *attempt) mayKeepConnection() bool {
	s := a.w.store
	return time.Since(a.since) < s.appendTimeout/10 && s.db.Spare()
}

// whole reports whether the batch was inserted as planned.
func (f *flight) whole() bool {
	return f.moved && f.inserted == int64(f.rows) && f.tags == int64(f.batch.tags)
}

// advance sets the log state to what it is after the batch.
func (a *attempt) advance(f *flight) {
	if f.ahead {
		return
	}
	f.ahead = true
	a.log.head += int64(f.rows)
	a.log.last = f.id
	a.remember(f.batch)
}

// remember stores the versions and the newest tags that a plan results in.
func (a *attempt) remember(b *batch) {
	for tag, events := range b.tagged {
		a.log.tags.put(tag, events[len(events)-1].position)
	}
	for stream, version := range b.versions {
		a.log.versions.put(stream, version)
	}
}

// land handles the outcome of a batch that was sent; err is the error of its transaction.
func (a *attempt) land(f *flight, err error) error {
	b, log := f.batch, a.log
	a.w.store.traceCommit(f, err)
	switch {
	case err != nil && (f.next != nil || !pg.Refused(err)):
		a.uncertain = true
		a.x.Abandon()
		return err
	case err != nil && f.ahead:
		log.forgetAll()
		return err
	case pg.SQLState(err) == pg.UniqueViolation:
		return a.handleDuplicate(err)
	case pg.SQLState(err) == lostAttempt, err == nil && !f.moved:
		a.noteLostHead()
		if len(b.guesses) > 0 {
			b.careful = true
			log.calm = calmAfter - 1 // it may only have been a wrong guess
		}
		return nil
	case log.folds != nil && (pg.SQLState(err) == buildElsewhere || pg.SQLState(err) == noTable):
		return a.buildMoved(err)
	case err != nil:
		return err
	case !f.whole():
		log.forgetAll()
		return fmt.Errorf("%d of %d events and %d of %d tags of batch %x were inserted", f.inserted, b.rows, f.tags, b.tags, f.id.id)
	}
	if log.folds != nil {
		log.folds.Committed()
	}
	a.advance(f)
	b.unexplained, b.careful = 0, false
	head := domain.Head{Tenant: a.w.tenant, Position: f.first + int64(b.rows), LastAt: f.at}
	rows, requests := b.rows, len(b.written)
	a.answer(b, f.first)
	if log.begun {
		// Another process may have changed an upcaster meanwhile without seeing these builds. They are visible now, so
		// open them again.
		log.forgetAll()
	}
	s := a.w.store
	if s.db.Distributed && log.folds != nil {
		s.confirm(head)
	} else {
		s.heads.moved(head)
	}
	if s.observer.Appended != nil {
		s.observer.Appended(rows, requests, time.Since(f.began))
	}
	return nil
}

// handleDuplicate handles a violated unique constraint: ids of the batch already exist, and the next attempt looks them
// up. If they had been looked up before, something that the writer remembers is wrong.
func (a *attempt) handleDuplicate(err error) error {
	b := a.batch
	explained := false
	for _, r := range b.written {
		if !r.fresh && r.found == nil {
			r.lookUp, explained = true, true
		}
	}
	a.log.lookFirst = true
	if explained {
		return nil
	}
	a.log.forgetAll()
	if b.unexplained++; b.unexplained > maxUnexplained {
		b.unexplained = 0
		return err
	}
	return nil
}

// buildMoved handles a build that was not at the batch's beginning. For example, an earlier release may have appended
// without folding. The builds are then opened again.
func (a *attempt) buildMoved(err error) error {
	a.log.forgetAll()
	if a.batch.unexplained++; a.batch.unexplained > maxUnexplained {
		a.batch.unexplained = 0
		return err
	}
	return nil
}

// answer answers the requests that were written after a position, and those that the plan settled without writing.
func (a *attempt) answer(b *batch, position int64) {
	first := 0
	for _, r := range b.written {
		stream, left := 0, len(r.append.Streams[0].Events)
		version := b.firsts[first]
		appended := r.answerAt(false, func(int) (int64, int64) {
			for left == 0 {
				stream++
				left, version = len(r.append.Streams[stream].Events), b.firsts[first+stream]
			}
			left--
			position++
			version++
			return position, version - 1
		})
		first += len(r.append.Streams)
		a.w.answer(r, appended, nil)
	}
	for _, s := range b.settled {
		a.w.answer(s.request, s.appended, s.err)
	}
	b.remove(func(r *request) bool { return r.answered })
	b.reset()
}
