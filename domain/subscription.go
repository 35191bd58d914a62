package domain

import "time"

// Selection says which events of a tenant's log a subscription is of: those of one stream, of some categories, or of the
// whole log; and of these, those of some types for which a filter is true.
type Selection struct {
	Stream     string   // a stream's name; empty: events of several streams
	Categories []string // without Stream: of these categories; none: the whole log
	Types      []string // none: all
	Filter     string   // an expression of the event (CEL); empty: all
}

// Follow is what a follower of a log wants.
type Follow struct {
	Selection
	From From
}

// Ordering says what a group promises of the order in which it delivers.
type Ordering string

const (
	// OrderingNone delivers in the log's order, and again whenever that is due: a consumer may see a stream's events overtake
	// one another.
	OrderingNone Ordering = "none"
	// OrderingStream has at most one event of a stream in flight, and delivers the next when that one is acknowledged, skipped
	// or parked.
	OrderingStream Ordering = "stream"
)

// GroupDefinition is what a team says of a group.
type GroupDefinition struct {
	Selection
	From        string // where a new group begins, as it was written: start, end, a position, a time or an event's id
	BatchSize   int    // events of one Receive, where it does not say
	MaxInFlight int    // delivered and not settled yet, in each partition
	AckTimeout  time.Duration
	MaxAttempts int           // deliveries before an event is parked
	BackoffMin  time.Duration // before the second attempt, doubled with each further one
	BackoffMax  time.Duration
	Ordering    Ordering
	Partitions  int // 0: none

	// Delay is how long after its recording an event is delivered at the soonest. Those behind it wait, too.
	Delay time.Duration
	// To is the last position of which the group delivers events; 0: it has no end.
	To int64
}

// Defaults and limits of a GroupDefinition.
const (
	DefaultBatchSize   = 100
	DefaultMaxInFlight = 1000
	DefaultAckTimeout  = 30 * time.Second
	DefaultPeek        = 10
	MaxPeek            = 100
	DefaultMaxAttempts = 5
	DefaultBackoffMin  = time.Second
	DefaultBackoffMax  = 5 * time.Minute

	MaxBatchSize   = 1000
	MaxMaxInFlight = 10_000
	MinAckTimeout  = time.Second
	MaxAckTimeout  = time.Hour
	MaxMaxAttempts = 1000
	MaxBackoff     = 24 * time.Hour
	MaxPartitions  = 256
	MaxDelay       = 30 * 24 * time.Hour
	MaxReasonBytes = 1000 // of a nack

	MaxGroupMembers = 1000 // of a group, alive
)

// Group is a named subscription whose checkpoint, leases and dead letters the service keeps.
type Group struct {
	Name string
	GroupDefinition
	Revision  int64 // grows with each change, pause, resume and seek
	Paused    bool
	CreatedAt time.Time
	UpdatedAt time.Time
}

// PartitionStatus is how far one partition of a group has come; a group without partitions has one, of number 0.
type PartitionStatus struct {
	Partition  int
	Checkpoint int64 // everything up to here is settled or set aside: in the retries, the dead letters, or behind a held stream
	ReadTo     int64 // everything up to here was looked at
	Oldest     int64 // the oldest event that is still to be settled, dead letters apart; 0: none
	InFlight   int64
	Retrying   int64 // waiting for their next attempt
	Parked     int64 // dead letters
	Owner      GroupMemberID
}

// GroupStatus is a group and how far it has come.
type GroupStatus struct {
	Group
	Partitions []PartitionStatus
	Head       int64 // of the tenant's log
	RemovedTo  int64 // the highest position of its categories that retention has removed; 0: none
}

// Attempt names one delivery of an event by a group: attempts of an event are numbered upwards and never used twice.
type Attempt struct {
	EventID EventID
	Attempt int
}

// Delivery is an event that a group has given to a consumer.
type Delivery struct {
	Event       Event
	Attempt     int
	Base        int       // attempts up to this one do not count: they were before a seek or a replay, or reached nobody
	AckDeadline time.Time // by the database's clock
	Expires     time.Time // AckDeadline by this process's clock, or earlier: from then on others may be given the event
	Partition   int
	Replays     int // how often it has come back from the dead letters
	// Gap is what retention had removed where the group has come to with this event, as it does by force, or by a place that lies
	// behind; nil: nothing. Each partition tells it, once as a rule.
	Gap *Gap
}

// Outcome says what became of an Attempt that a consumer has answered.
type Outcome string

const (
	// OutcomeDone means that it took effect.
	OutcomeDone Outcome = "done"
	// OutcomeStale means that another attempt has been made, or is due: nothing has changed.
	OutcomeStale Outcome = "stale"
	// OutcomeNotInFlight means that the group waits for no answer about the event: it was settled before, or never delivered.
	OutcomeNotInFlight Outcome = "not-in-flight"
)

// NackAction says what is to become of an event that a consumer could not handle.
type NackAction string

const (
	NackRetry NackAction = "retry" // deliver it again; parked where it had its last attempt
	NackPark  NackAction = "park"  // put it to the dead letters
	NackSkip  NackAction = "skip"  // forget it
)

// Nack is a consumer's word that it could not handle events.
type Nack struct {
	Action NackAction
	Delay  time.Duration // before the next attempt; negative: by the group's back-off
	Reason string
}

// Retry is an event that waits for its next attempt. It holds its stream in an ordered group.
type Retry struct {
	Partition int
	Position  int64
	EventID   EventID
	Stream    string
	Version   int64 // in its stream
	Attempt   int   // the last one made
	Base      int   // attempts up to this one do not count: they were before a seek or a replay
	Replays   int
	DueAt     time.Time
	Reason    string
}

// DeadLetter is an event that a group could not deliver, kept with what was said of it.
type DeadLetter struct {
	Partition     int
	Position      int64
	EventID       EventID
	Stream        string
	Version       int64 // in its stream
	Type          string
	Attempt       int // the last one made
	Base          int // as in Retry
	Replays       int // how often it was replayed before it came back here
	Reason        string
	FirstParkedAt time.Time // before any replay
	ParkedAt      time.Time
	ReplayAt      time.Time // a replay was asked for; zero: none
}

// GroupMemberID names a consumer that shares a group's partitions. It is fresh with each join.
type GroupMemberID uuid

// NewGroupMemberID returns a fresh id.
func NewGroupMemberID() GroupMemberID { return GroupMemberID(newUUID()) }

// ParseGroupMemberID reads the canonical form of a UUID.
func ParseGroupMemberID(text string) (GroupMemberID, error) {
	id, err := parseUUID(text)
	return GroupMemberID(id), err
}

// String returns the canonical form of 36 characters.
func (id GroupMemberID) String() string { return uuid(id).String() }

// IsZero reports whether no id was given.
func (id GroupMemberID) IsZero() bool { return id == GroupMemberID{} }

// GroupMember is a consumer that shares a group's partitions, as it has announced itself.
type GroupMember struct {
	ID         GroupMemberID
	Label      string // for people
	JoinedAt   time.Time
	AliveAt    time.Time // the last sign of life, by the database's clock
	Partitions []int     // that it receives from now
}

// The times of a group's membership.
const (
	GroupHeartbeat  = 15 * time.Second // between two signs of life; a receive is one
	GroupMemberDead = 45 * time.Second // a member that was silent for so long is swept
)

// LedgerRow is one partition of a group as the database keeps it, with all that belongs to it.
type LedgerRow struct {
	Group    Group
	Revision int64  // of the ledger; grows with each save, and each change of its dead letters
	Ledger   []byte // in package subscription's own encoding; nil: a group that has never delivered, which reads behind ReadTo
	ReadTo   int64
	Retries  []Retry
	Replays  []DeadLetter // dead letters whose replay was asked for, oldest first, at most MaxReplays
	Now      time.Time    // by the database's clock
}

// MaxReplays is how many replays a LedgerRow has at most.
const MaxReplays = 1000

// LedgerChange is one step of a group's partition. It is saved whole, or not at all where the group or the ledger has
// another revision.
type LedgerChange struct {
	Partition     int
	GroupRevision int64
	Revision      int64 // what the ledger's is before the change
	Ledger        []byte
	Status        PartitionStatus // for lists; Retrying and Parked are counted from the rows
	Retry         []Retry         // written, by position
	Unretry       []int64         // retries that are no more
	Park          []DeadLetter    // written, by position
	Unpark        []int64         // dead letters that are no more
}

// StreamPlace is a place in a stream: behind a version.
type StreamPlace struct {
	Stream  string
	Version int64
}
