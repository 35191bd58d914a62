package eventlog

import (
	"bytes"
	"context"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/manifold-es/manifold/pg"
)

// Limits of a shared transaction. A tenant with more to write commits alone: its batch pays for a transaction.
const (
	sharedTenants = 64 // of one transaction
	sharedEvents  = 32 // of one tenant; 64 tenants then write about as much as the largest batch of one
	sharedBytes   = 64 << 10
)

const (
	// sharedWait limits how long a tenant waits to share a transaction.
	sharedWait = 100 * time.Millisecond
	// sharedLockTimeout limits how long a shared transaction waits for a log that another process appends to.
	sharedLockTimeout = 20 * time.Millisecond
	// aloneFor is how long a tenant commits alone after a shared transaction failed because of it.
	aloneFor = time.Minute
)

// sharedCommits writes small batches of several tenants in one transaction, so that they share the cost of its commit.
// When a transaction ends, the next one takes the tenants that have arrived meanwhile. One of their writers leads: it
// plans and sends the batches of all, while the others wait for it.
//
// Tenants must not slow each other down. So a tenant takes part only while its batch can be expected to be written at
// once. If one of them has to be waited for, or is refused, the transaction is rolled back, each of the tenants commits
// alone, and the one at fault does so for aloneFor. Decision 0073 has the whole argument.
type sharedCommits struct {
	from  int          // how many attempts must be in progress before another one shares a transaction
	most  int          // shared transactions at the same time
	alone atomic.Int64 // attempts in progress that share nothing

	mu      sync.Mutex
	running int // shared transactions in progress
	waiting []*participant
}

// participant is an attempt that waits to share a transaction, or takes part in one.
type participant struct {
	*attempt
	turn   chan []*participant // receives the participants that it must lead; closed if another writer has led
	unread []string            // streams whose versions the plan needs
	read   bool                // these versions were read
	sent   *flight             // the batch

	committed bool  // its part of the transaction was committed
	lost      error // the connection was lost, and the outcome is unknown
}

// newSharedCommits returns the sharedCommits of a Log with so many connections. With more of them, the database is
// likely to have more processors. In a distributed database, tenants do not share: a transaction on several nodes is
// committed in two phases, and waits for the slowest node.
func newSharedCommits(connections int, distributed bool) sharedCommits {
	if distributed {
		return sharedCommits{from: math.MaxInt, most: 1}
	}
	return sharedCommits{from: max(2, connections/4), most: max(2, connections/8)}
}

// mayShare reports whether the next batch is likely to be written at once: no other process appends to the log, the
// batch is small, and no earlier attempt has left requests.
func (w *writer) mayShare(b *batch) bool {
	log := &w.log
	return log.known && !log.contended && !log.lookFirst && log.folds == nil && len(log.unfit) == 0 &&
		len(b.requests) == 0 && time.Now().After(w.aloneUntil) && w.fewWaiting()
}

// fewWaiting reports whether the waiting requests fit into a shared transaction.
func (w *writer) fewWaiting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	events, size := 0, int64(0)
	for _, r := range w.queue {
		events += r.events
		size += r.bytes
		if events > sharedEvents || size > sharedBytes {
			return false
		}
	}
	return true
}

// commit makes an attempt, together with those of other tenants if that is worthwhile.
func (c *sharedCommits) commit(ctx context.Context, a *attempt) error {
	if a.w.mayShare(a.batch) && c.busy() {
		p := &participant{attempt: a, turn: make(chan []*participant, 1)}
		if together := c.join(p); together != nil {
			c.lead(ctx, together)
		}
		switch {
		case p.lost != nil:
			a.uncertain = true
			return p.lost
		case p.committed:
			return a.land(p.sent, nil)
		}
		a.batch.begin() // nothing was written
	}
	c.alone.Add(1)
	defer c.alone.Add(-1)
	return a.run(ctx)
}

// busy reports whether enough other attempts are in progress to share a transaction. While shared transactions take
// turns, everybody joins them: small transactions between them would cost more than the wait.
func (c *sharedCommits) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running == c.most || c.running+int(c.alone.Load()) >= c.from
}

// join returns the participants that p must lead. It returns nil if another writer has led p, or if no transaction has
// begun in time.
func (c *sharedCommits) join(p *participant) []*participant {
	c.mu.Lock()
	if c.running < c.most {
		c.running++
		c.mu.Unlock()
		return []*participant{p}
	}
	c.waiting = append(c.waiting, p)
	c.mu.Unlock()
	timeout := time.NewTimer(sharedWait)
	defer timeout.Stop()
	select {
	case together := <-p.turn:
		return together
	case <-timeout.C:
	}
	c.mu.Lock()
	i := slices.Index(c.waiting, p)
	if i >= 0 {
		c.waiting = slices.Delete(c.waiting, i, i+1)
	}
	c.mu.Unlock()
	if i >= 0 {
		return nil
	}
	return <-p.turn // it already takes part
}

// handOver wakes the other participants of a transaction that has ended, and lets a waiting writer lead the next one.
func (c *sharedCommits) handOver(ended []*participant) {
	for _, p := range ended[1:] {
		close(p.turn)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.waiting) == 0 {
		c.running--
		return
	}
	n := min(len(c.waiting), sharedTenants)
	next := slices.Clone(c.waiting[:n])
	c.waiting = slices.Delete(c.waiting, 0, n)
	next[0].turn <- next
}

// lead writes the batches of the participants in one transaction. The first participant is the caller's.
func (c *sharedCommits) lead(ctx context.Context, together []*participant) {
	defer c.handOver(together)
	s := together[0].w.store
	ctx, cancel := context.WithTimeout(ctx, s.appendTimeout/4)
	defer cancel()
	x, err := s.db.App.Pipeline(ctx, together[0].w.tenant)
	if err != nil {
		return
	}
	defer x.Close()
	// All processes lock logs in the order of their tenants, so that they cannot deadlock.
	ready := slices.SortedFunc(slices.Values(together), func(a, b *participant) int {
		return bytes.Compare(a.w.tenant[:], b.w.tenant[:])
	})
	for _, p := range ready {
		p.x = x
		p.w.moveQueued(p.batch)
	}
	ready = slices.DeleteFunc(ready, func(p *participant) bool { return !p.plan(ctx) })
	if len(ready) == 0 {
		return
	}
	x.BeginShared(sharedLockTimeout)
	if ready = readVersions(ctx, x, ready); len(ready) == 0 {
		return
	}
	for _, p := range ready {
		x.Under(p.w.tenant)
		p.sent = p.sendBatch(p.batch)
	}
	x.Commit()
	switch err := x.Run(); {
	case err == nil:
		for _, p := range ready {
			p.committed = true
		}
	case pg.Refused(err):
		blame(err, ready, func(p *participant) bool { return p.sent.answered })
	default:
		x.Abandon()
		for _, p := range ready {
			p.lost = err
		}
	}
}

// blame makes the first participant that was not answered commit alone for a while, if PostgreSQL refused its
// statement.
func blame(err error, participants []*participant, answered func(p *participant) bool) {
	if i := slices.IndexFunc(participants, func(p *participant) bool { return !answered(p) }); i >= 0 && pg.Refused(err) {
		participants[i].w.aloneUntil = time.Now().Add(aloneFor)
	}
}

// plan plans the participant's batch. It returns false if the batch must be written alone.
func (p *participant) plan(ctx context.Context) bool {
	if len(p.batch.requests) == 0 || p.batch.events > sharedEvents || p.batch.bytes > sharedBytes {
		return false
	}
	streams, lookUps := p.batch.plan(ctx, p.log)
	p.unread = streams
	return len(lookUps) == 0 && len(p.batch.unread) == 0 && (len(streams) > 0 || p.batch.rows > 0)
}

// readVersions reads the versions that the participants' plans need, and returns those whose plan is then complete.
func readVersions(ctx context.Context, x *pg.Pipeline, planned []*participant) []*participant {
	complete := func(p *participant) bool { return len(p.unread) == 0 }
	for _, p := range planned {
		if !complete(p) {
			x.Under(p.w.tenant)
			p.sendVersions(p.unread, func(pgconn.CommandTag) { p.read = true })
		}
	}
	if !slices.ContainsFunc(planned, func(p *participant) bool { return !complete(p) }) {
		return planned
	}
	if err := x.Run(); err != nil {
		blame(err, planned, func(p *participant) bool { return complete(p) || p.read })
		return nil
	}
	return slices.DeleteFunc(planned, func(p *participant) bool {
		return !complete(p) && !(p.plan(ctx) && complete(p))
	})
}
