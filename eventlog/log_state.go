package eventlog

import (
	"math"

	"github.com/manifold-es/manifold/domain"
)

// logState is what a writer knows of its tenant's log. All of it is true as long as the compare-and-set on head and
// last succeeds, so using it needs no lock on the log.
type logState struct {
	known     bool // head and last are known
	head      int64
	last      batchID
	versions  versions
	tags      newestTagged
	contended bool // others append as well: lock the log's row first
	calm      int  // consecutive attempts under the lock without a foreign append before them
	lookFirst bool // duplicates keep arriving: look ids up before writing

	revision int64                // of the tenant's inline builds, which folds uses
	folds    InlineFolds          // nil: there are none
	unfit    []domain.TenantBuild // must no longer be folded into
	catchUps int                  // consecutive catch-ups of lagging builds
	begun    bool                 // by the open transaction: no other process can know of them yet
	plain    bool                 // the log's first append begins none, since some cannot be folded into
}

// forgetAll resets the state after an attempt with an unknown outcome.
func (l *logState) forgetAll() {
	if l.folds != nil {
		l.folds.Forget()
	}
	l.known, l.folds = false, nil
	l.versions.forget()
	l.tags.forget(math.MaxInt64) // until the head is known
}

// batchID identifies the batch that moved a head last; it is empty before a log's first batch.
type batchID struct {
	id   [16]byte
	some bool
}

func (b batchID) param() []byte {
	if !b.some {
		return nil
	}
	return b.id[:]
}
