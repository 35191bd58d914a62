package store

import "github.com/manifold-es/manifold/domain"

// logState is what a writer knows of its tenant's log. While the compare-and-set on head and last passes, all of it is
// true; so nothing in it needs a lock on the log while it is used.
type logState struct {
	known     bool // head and last are known
	head      int64
	last      batchID
	versions  versions
	contended bool // somebody else appends as well: lock the log's row first
	calm      int  // attempts in a row under the lock before which nobody else had appended
	lookFirst bool // duplicates keep coming: look ids up before writing

	revision int64                // of the tenant's inline builds, which folds fold into
	folds    InlineFolds          // nil: there are none
	unfit    []domain.TenantBuild // that are not to be folded into any more
	mends    int                  // in a row, of builds that were behind
	begun    bool                 // by the transaction that is open: nobody else can know of them yet
	plain    bool                 // the log's first append begins none, since there are some that cannot be folded into
}

// forgetAll is for when nobody knows what became of an attempt.
func (l *logState) forgetAll() {
	if l.folds != nil {
		l.folds.Forget()
	}
	l.known, l.folds = false, nil
	l.versions.forget()
}

// batchID names what moved a head last; none before a log's first batch.
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
