package subscription

import (
	"context"
	"log/slog"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Store keeps groups, each under its tenant. Errors that a caller can act on are *domain.Error.
type Store interface {
	Log

	// PutGroup makes a group, or replaces the definition of one, and returns it as it is then. A definition that is there already
	// as it is changes nothing. start is where a new one's partitions begin to read.
	PutGroup(ctx context.Context, tenant domain.TenantID, name string, definition domain.GroupDefinition, start int64) (group domain.Group, created bool, err error)
	Group(ctx context.Context, tenant domain.TenantID, name string) (domain.Group, error)
	// GroupStatus is a group with how far it has come; Groups lists them by name, those behind a name, at most so many.
	GroupStatus(ctx context.Context, tenant domain.TenantID, name string) (domain.GroupStatus, error)
	Groups(ctx context.Context, tenant domain.TenantID, after string, limit int) ([]domain.GroupStatus, error)
	DeleteGroup(ctx context.Context, tenant domain.TenantID, name string) error
	PauseGroup(ctx context.Context, tenant domain.TenantID, name string, paused bool) (domain.Group, error)

	// Ledger reads a partition with all that belongs to it, in one snapshot. With wait it first waits for whoever is saving it.
	Ledger(ctx context.Context, tenant domain.TenantID, name string, partition int, wait bool) (domain.LedgerRow, error)
	// SaveLedger makes a change; saved is false, and nothing was written, where group or ledger have other revisions.
	// now is the database's clock. Where the outcome of a save cannot be known, it is found out before it returns, or the error is
	// domain.CodeOutcomeUnknown.
	SaveLedger(ctx context.Context, tenant domain.TenantID, name string, change domain.LedgerChange) (now time.Time, saved bool, err error)
	// SeekGroup gives the group a new revision and writes the ledgers of all its partitions anew, which make returns from what
	// they were; retries are removed.
	SeekGroup(ctx context.Context, tenant domain.TenantID, name string, remake func(partition int, ledger []byte) (again []byte, status domain.PartitionStatus, err error)) (domain.Group, error)

	// ReadPositions reads the events at these positions, in the order in which they are given; those that are not there are left out.
	ReadPositions(ctx context.Context, tenant domain.TenantID, positions []int64) ([]domain.Event, error)
	// NextInStreams reads, of each stream, the next limit events behind the place, of whatever type, as far as they are not
	// beyond the position to: stream by stream in the order of places, each in its order. Where it gives fewer than limit of a
	// stream, there are no more up to that position. Looking for types is the caller's: a rare one may be far.
	NextInStreams(ctx context.Context, tenant domain.TenantID, places []domain.StreamPlace, to int64, limit int) ([]domain.Event, error)

	DeadLetters(ctx context.Context, tenant domain.TenantID, name string, after int64, limit int) ([]domain.DeadLetter, error)
	// ReplayDeadLetters asks for the replay of one, or of all with the zero id, and returns of how many.
	ReplayDeadLetters(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error)
	DiscardDeadLetters(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error)

	// AnnounceGroupMember gives a sign of life, of a new member or one that is there (domain.CodeNotFound where join is false and it is
	// not), sweeps those that have been silent for domain.GroupMemberDead, and returns those that are alive by their ids.
	AnnounceGroupMember(ctx context.Context, tenant domain.TenantID, name string, member domain.GroupMember, join bool) ([]domain.GroupMember, error)
	GroupMembers(ctx context.Context, tenant domain.TenantID, name string) ([]domain.GroupMember, error)
	RemoveGroupMember(ctx context.Context, tenant domain.TenantID, name string, id domain.GroupMemberID) error

	// NotifyGroup tells other processes that a group may have something to deliver; it returns at once.
	NotifyGroup(tenant domain.TenantID, name string)
}

// GroupsConfig is what Groups are made of.
type GroupsConfig struct {
	Store    Store
	Log      *slog.Logger
	Observer GroupObserver
}

// GroupObserver has functions that are called as things happen, from many goroutines, and must not block. Each is optional.
type GroupObserver struct {
	Delivered func(events int)
	Acked     func(events int, held time.Duration) // held: since the oldest of them was delivered
	Nacked    func(action domain.NackAction, events int)
	Expired   func(events int)
	Parked    func(events int)
	Received  func(took time.Duration, events int) // a receive, its waiting left out
}

// Groups deliver events to consumers. All methods may be called concurrently, and by any number of processes at once.
type Groups struct{}

// NewGroups returns Groups; Run must be running.
func NewGroups(config GroupsConfig) *Groups { return &Groups{} }

// Run looks after what times out, until ctx ends.
func (g *Groups) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Wake tells that a log has moved, and Notice that another process has changed a group. They return at once.
func (g *Groups) Wake(head domain.Head) {}

// Notice tells that a group may have something to deliver.
func (g *Groups) Notice(tenant domain.TenantID, name string) {}

// Put makes a group, or changes one.
func (g *Groups) Put(ctx context.Context, tenant domain.TenantID, name string, definition domain.GroupDefinition) (status domain.GroupStatus, created bool, err error) {
	return domain.GroupStatus{}, false, notYet()
}

// Get returns a group.
func (g *Groups) Get(ctx context.Context, tenant domain.TenantID, name string) (domain.GroupStatus, error) {
	return domain.GroupStatus{}, notYet()
}

// List returns the groups behind a name, by name, at most so many.
func (g *Groups) List(ctx context.Context, tenant domain.TenantID, after string, limit int) ([]domain.GroupStatus, error) {
	return nil, notYet()
}

// Delete removes a group.
func (g *Groups) Delete(ctx context.Context, tenant domain.TenantID, name string) error {
	return notYet()
}

// Pause stops or resumes deliveries.
func (g *Groups) Pause(ctx context.Context, tenant domain.TenantID, name string, paused bool) (domain.GroupStatus, error) {
	return domain.GroupStatus{}, notYet()
}

// Seek moves a group.
func (g *Groups) Seek(ctx context.Context, tenant domain.TenantID, name string, to domain.From) (domain.GroupStatus, error) {
	return domain.GroupStatus{}, notYet()
}

// Receive asks for events.
type Receive struct {
	Batch  int           // at most so many; 0: the group's batch size
	Wait   time.Duration // for an event where none is due
	Member domain.GroupMemberID
}

// Receive leases events to a consumer.
func (g *Groups) Receive(ctx context.Context, tenant domain.TenantID, name string, wanted Receive) ([]domain.Delivery, error) {
	return nil, notYet()
}

// Ack settles events. Outcomes are in the order of attempts.
func (g *Groups) Ack(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt) ([]domain.Outcome, error) {
	return nil, notYet()
}

// Nack says that events could not be handled.
func (g *Groups) Nack(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt, nack domain.Nack) ([]domain.Outcome, error) {
	return nil, notYet()
}

// Extend moves deadlines to now and by; 0: by the group's AckTimeout.
func (g *Groups) Extend(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt, by time.Duration) ([]domain.Outcome, error) {
	return nil, notYet()
}

// DeadLetters are the dead letters behind a position, at most so many, each with its event.
func (g *Groups) DeadLetters(ctx context.Context, tenant domain.TenantID, name string, after int64, limit int) ([]DeadLetter, error) {
	return nil, notYet()
}

// DeadLetter is a dead letter with its event.
type DeadLetter struct {
	domain.DeadLetter
	Event domain.Event
}

// Replay has one dead letter, or with the zero id all, delivered again, and returns how many these are.
func (g *Groups) Replay(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error) {
	return 0, notYet()
}

// Discard removes one dead letter, or with the zero id all, and returns how many these were.
func (g *Groups) Discard(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error) {
	return 0, notYet()
}

func notYet() error { return domain.Errorf(domain.CodeUnsupported, "", "this is not there yet") }
