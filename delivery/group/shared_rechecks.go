package group

import (
	"context"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// shareRechecksFor is how old the revisions may be with which a partition rechecks its ledger.
const shareRechecksFor = lookAgain / 2

// sharedRechecks reads the revisions of a tenant's ledgers once for all partitions that recheck theirs at about the
// same time. Otherwise a thousand groups whose consumers wait would read hundreds of unchanged ledgers a second.
// Methods may be called concurrently.
type sharedRechecks struct {
	store  *Postgres
	tenant domain.TenantID
	names  func() []string // of the tenant's groups in use

	mu   sync.Mutex
	last *recheck
}

// recheck is one read of revisions.
type recheck struct {
	asked, answered time.Time     // by the local clock
	done            chan struct{} // closed when answered, and the fields below, are set
	now             time.Time     // by the database's clock
	revisions       map[ledgerKey]ledgerRevisions
	err             error
}

type ledgerKey struct {
	name      string
	partition int
}

// ledgerRevisions are the revisions that a save compares.
type ledgerRevisions struct{ group, ledger int64 }

// recent returns a read that is not older than shareRechecksFor.
func (r *sharedRechecks) recent(ctx context.Context) (*recheck, error) {
	r.mu.Lock()
	read, now := r.last, time.Now()
	mine := read == nil || now.Sub(read.asked) > shareRechecksFor
	if mine {
		read = &recheck{asked: now, done: make(chan struct{})}
		r.last = read
	}
	r.mu.Unlock()
	if mine {
		read.now, read.revisions, read.err = r.store.LedgerRevisions(ctx, r.tenant, r.names())
		read.answered = time.Now()
		close(read.done)
	}
	select {
	case <-read.done:
		return read, read.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// recheck reports whether the known ledger is still the newest. If this cannot be found out, it is not.
func (p *partition) recheck(ctx context.Context) (unchanged bool) {
	read, err := p.group.sharedRechecks.recent(ctx)
	if err != nil || read.revisions[ledgerKey{p.group.name, p.number}] != (ledgerRevisions{p.row.Group.Revision, p.row.Revision}) {
		return false
	}
	p.clock = clock{there: read.now, asked: read.asked, answered: read.answered}
	p.noteUnchanged(read.asked)
	return true
}

// noteUnchanged records that the known ledger was the newest at a time. The next recheck may take place later.
func (p *partition) noteUnchanged(asked time.Time) {
	p.recheckAfter = lookAgain
	if asked.Sub(p.checkedAt) >= lookAgain {
		p.recheckAfter = lookSeldom
	}
	p.checkedAt = asked
}
