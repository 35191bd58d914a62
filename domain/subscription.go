package domain

import "time"

// Selection says which events of a tenant's log a subscription selects: those of one stream, of some categories, or of
// the whole log. Types, a query and a filter can restrict the selection further.
type Selection struct {
	Stream     string   // a stream's name; empty: any stream
	Categories []string // only if Stream is empty: of these categories; none: the whole log
	Types      []string // none: all
	Query      Query    // none: all
	Filter     string   // an expression of the event (CEL); empty: all
}

// Follow says what a follower of a log receives.
type Follow struct {
	Selection
	From From
}

// Ordering is a group's guarantee about the order of delivery.
type Ordering string

const (
	// OrderingNone delivers in the log's order and redelivers an event whenever that is due. So the events of a stream
	// may overtake one another.
	OrderingNone Ordering = "none"
	// OrderingStream has at most one event of a stream in flight. It delivers the next one after that event is
	// acknowledged, skipped or parked.
	OrderingStream Ordering = "stream"
)

// GroupDefinition is a team's definition of a group.
type GroupDefinition struct {
	Selection
	From        string // where a new group begins, as written: start, end, a position, a time or an event's id
	BatchSize   int    // events per Receive that does not state a number
	MaxInFlight int    // delivered and not yet settled, in each partition
	AckTimeout  time.Duration
	MaxAttempts int           // deliveries before an event is parked
	BackoffMin  time.Duration // before the second attempt; doubled with each further attempt
	BackoffMax  time.Duration
	Ordering    Ordering
	Partitions  int // 0: none

	// Delay is the shortest time between an event's recording and its delivery. Later events wait for it, too.
	Delay time.Duration
	// To is the position of the last event that the group delivers; 0: no end.
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
	MaxReasonBytes = 1000 // of a nack's reason

	MaxGroupMembers = 1000 // alive members of a group
)

// Group is a named subscription. The service keeps its checkpoint, leases and dead letters.
type Group struct {
	Name string
	GroupDefinition
	Revision  int64 // increases with each change, pause, resume and seek
	Paused    bool
	CreatedAt time.Time
	UpdatedAt time.Time
}

// PartitionStatus is the progress of one partition of a group. A group without partitions has one, with number 0.
type PartitionStatus struct {
	Partition  int
	Checkpoint int64 // everything up to here is settled, or set aside: as a retry, as a dead letter, or after a held event of its stream
	ReadTo     int64 // everything up to here has been read
	Oldest     int64 // the oldest event not yet settled, dead letters excluded; 0: none
	InFlight   int64
	Retrying   int64 // waiting for the next attempt
	Parked     int64 // dead letters
	Owner      GroupMemberID
}

// GroupStatus is a group and its progress.
type GroupStatus struct {
	Group
	Partitions []PartitionStatus
	Head       int64 // of the tenant's log
	RemovedTo  int64 // the highest position of its categories that retention has removed; 0: none
}

// Attempt identifies one delivery of an event by a group. The attempts of an event are numbered upwards, and no number
// is reused.
type Attempt struct {
	EventID EventID
	Attempt int
}

// Delivery is an event that a group has delivered to a consumer.
type Delivery struct {
	Event       Event
	Attempt     int
	Base        int       // attempts up to this one do not count: they preceded a seek or a replay, or reached nobody
	AckDeadline time.Time // by the database's clock
	Expires     time.Time // AckDeadline by this process's clock, or earlier; the lease ends then and the event may be redelivered
	Partition   int
	MaxAttempts int   // of the group: an event with as many Attempts is not redelivered
	Cursor      int64 // of the group or partition after the delivery: PartitionStatus.Checkpoint
	Replays     int   // how often it was replayed from the dead letters
	// Alone means that the last delivery was interrupted: its consumer may have died of this event. It is then the only
	// event of its answer, and the consumer should work on nothing else meanwhile.
	Alone bool
	// Gap is what retention had removed in the range that the group passed to reach this event; nil: nothing. It occurs
	// after a forced removal, or if the group's position is before the removed range. Each partition usually reports a
	// gap once.
	Gap *Gap
}

// Attempts returns how many deliveries of the event count, with this one. It is compared with MaxAttempts.
func (d *Delivery) Attempts() int { return d.Attempt - d.Base }

// AttemptOf returns the attempt that an answer to a delivery names.
func AttemptOf(d *Delivery) Attempt { return Attempt{EventID: d.Event.ID, Attempt: d.Attempt} }

// AttemptsOf returns the attempts of several deliveries, in their order.
func AttemptsOf(deliveries []Delivery) []Attempt {
	all := make([]Attempt, len(deliveries))
	for i := range deliveries {
		all[i] = AttemptOf(&deliveries[i])
	}
	return all
}

// Outcome is the result of a consumer's answer to an Attempt.
type Outcome string

const (
	// OutcomeDone means that the answer took effect.
	OutcomeDone Outcome = "done"
	// OutcomeStale means that another attempt has been made or is due. Nothing has changed.
	OutcomeStale Outcome = "stale"
	// OutcomeNotInFlight means that the group expects no answer for the event: it was settled before, or never
	// delivered.
	OutcomeNotInFlight Outcome = "not-in-flight"
)

// NackAction says what to do with an event that a consumer could not handle.
type NackAction string

const (
	NackRetry NackAction = "retry" // redeliver it, or park it after its last attempt
	NackPark  NackAction = "park"  // move it to the dead letters
	NackSkip  NackAction = "skip"  // drop it
)

// Nack says that a consumer could not handle events.
type Nack struct {
	Action NackAction
	Delay  time.Duration // before the next attempt; negative: the group's backoff
	Reason string
}

// DeadLetter is an event that a group could not deliver, with the details of the failure.
type DeadLetter struct {
	Partition     int
	Position      int64
	EventID       EventID
	Stream        string
	Version       int64 // in its stream
	Type          string
	Attempt       int // the last one made
	Base          int // as in Retry
	Replays       int // how often it was replayed before it was parked again
	Reason        string
	FirstParkedAt time.Time // before any replay
	ParkedAt      time.Time
	ReplayAt      time.Time // when a replay was requested; zero: none was
}

// GroupMemberID identifies a consumer that shares a group's partitions. A consumer gets a new one at each join.
type GroupMemberID UUID

// NewGroupMemberID returns a new id.
func NewGroupMemberID() GroupMemberID { return GroupMemberID(NewUUID()) }

// ParseGroupMemberID parses the canonical form of a UUID.
func ParseGroupMemberID(text string) (GroupMemberID, error) {
	id, err := ParseUUID(text)
	return GroupMemberID(id), err
}

// String returns the canonical form of 36 characters.
func (id GroupMemberID) String() string { return UUID(id).String() }

// IsZero reports whether no id was given.
func (id GroupMemberID) IsZero() bool { return id == GroupMemberID{} }

// GroupMember is a consumer that shares a group's partitions, as announced by itself.
type GroupMember struct {
	ID         GroupMemberID
	Label      string // for people
	JoinedAt   time.Time
	AliveAt    time.Time // the last sign of life, by the database's clock
	Partitions []int     // that it receives from now
}

// The times of a group's membership.
const (
	GroupHeartbeat  = 15 * time.Second // between two signs of life; a receive counts as one
	GroupMemberDead = 45 * time.Second // a member that was silent for this long is removed
)

// MaxReplays limits the replays of a LedgerRow.
const MaxReplays = 1000

// StreamPlace is a place in a stream: after a version.
type StreamPlace struct {
	Stream  string
	Version int64
}
