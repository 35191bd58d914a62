package group

import (
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Retry is an event that waits for its next attempt. In an ordered group it holds its stream.
type Retry struct {
	Partition int
	Position  int64
	EventID   domain.EventID
	Stream    string
	Version   int64 // in its stream
	Attempt   int   // the last one made
	Base      int   // attempts up to this one do not count: they preceded a seek or a replay
	Replays   int
	DueAt     time.Time
	Reason    string
}

// LedgerRow is one partition of a group as the database keeps it, with its retries and requested replays.
type LedgerRow struct {
	Group    domain.Group
	Revision int64  // of the ledger; increases with each save and each change of its dead letters
	Ledger   []byte // in the encoding of package group; nil: the group has never delivered and reads on after ReadTo
	ReadTo   int64
	Retries  []Retry
	Replays  []domain.DeadLetter // dead letters with a requested replay, oldest first, at most domain.MaxReplays
	Now      time.Time           // by the database's clock
}

// LedgerChange is one step of a group's partition. It is saved as a whole, or not at all if the revision of the group
// or of the ledger has changed.
type LedgerChange struct {
	Partition     int
	GroupRevision int64
	Revision      int64 // the ledger's revision before the change
	Ledger        []byte
	Status        domain.PartitionStatus // for lists; Retrying and Parked are counted from the rows
	Retry         []Retry                // retries to write, by position
	Unretry       []int64                // retries to delete
	Park          []domain.DeadLetter    // dead letters to write, by position
	Unpark        []int64                // dead letters to delete
}
