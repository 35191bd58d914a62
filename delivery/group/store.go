package group

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
)

// Store keeps groups, each in its tenant. Errors that a caller can act on are *domain.Error.
type Store interface {
	selection.Log

	// PutGroup creates a group, or replaces its definition, and returns the result. An unchanged definition changes
	// nothing. start is where the partitions of a new group begin to read.
	PutGroup(ctx context.Context, tenant domain.TenantID, name string, definition domain.GroupDefinition, start int64) (group domain.Group, created bool, err error)
	Group(ctx context.Context, tenant domain.TenantID, name string) (domain.Group, error)
	// GroupStatus returns a group with its progress. Groups lists up to limit groups after a name, ordered by name.
	GroupStatus(ctx context.Context, tenant domain.TenantID, name string) (domain.GroupStatus, error)
	Groups(ctx context.Context, tenant domain.TenantID, after string, limit int) ([]domain.GroupStatus, error)
	DeleteGroup(ctx context.Context, tenant domain.TenantID, name string) error
	PauseGroup(ctx context.Context, tenant domain.TenantID, name string, paused bool) (domain.Group, error)

	// Ledger reads a partition with all its rows, in one snapshot. With wait, it first waits for a save in progress.
	Ledger(ctx context.Context, tenant domain.TenantID, name string, partition int, wait bool) (LedgerRow, error)
	// ReplaysBeside reads the oldest limit dead letters of a partition whose replay was requested and whose stream is
	// none of streams.
	ReplaysBeside(ctx context.Context, tenant domain.TenantID, name string, partition int, streams []string, limit int) ([]domain.DeadLetter, error)
	// SaveLedger saves a change. If the group or the ledger has another revision, saved is false and nothing was
	// written. now is the database's clock. If the outcome of a save is unknown, SaveLedger finds it out before it
	// returns, or returns domain.CodeOutcomeUnknown.
	SaveLedger(ctx context.Context, tenant domain.TenantID, name string, change LedgerChange) (now time.Time, saved bool, err error)
	// SeekGroup gives the group a new revision and replaces the ledgers of all its partitions. remake returns each new
	// ledger, given the old one. SeekGroup removes retries, and those dead letters after the new position whose replay
	// was requested.
	SeekGroup(ctx context.Context, tenant domain.TenantID, name string, remake func(partition int, ledger []byte) (again []byte, status domain.PartitionStatus, err error)) (domain.Group, error)

	// StreamsOf returns the streams of events by event id. It omits events that do not exist.
	StreamsOf(ctx context.Context, tenant domain.TenantID, ids []domain.EventID) (map[domain.EventID]string, error)
	// ReadPositions reads the events at these positions, in the given order. It omits events that do not exist.
	ReadPositions(ctx context.Context, tenant domain.TenantID, positions []int64) ([]domain.Event, error)
	// NextInStreams reads the next limit events of each stream after its place, of any type, up to the position to. It
	// returns them stream by stream in the order of places, each stream in order. If it returns fewer than limit for a
	// stream, there are no more up to that position. The caller filters by type, because a rare type may be far away.
	NextInStreams(ctx context.Context, tenant domain.TenantID, places []domain.StreamPlace, to int64, limit int) ([]domain.Event, error)

	DeadLetters(ctx context.Context, tenant domain.TenantID, name string, after int64, limit int) ([]domain.DeadLetter, error)
	// ReplayDeadLetters requests the replay of one dead letter, or of all if id is zero. It returns their number.
	ReplayDeadLetters(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error)
	DiscardDeadLetters(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error)

	// AnnounceGroupMember records a heartbeat of a new or existing member. If join is false and the member does not
	// exist, it returns domain.CodeNotFound. It removes members without a heartbeat for domain.GroupMemberDead, and
	// returns the live members ordered by id.
	AnnounceGroupMember(ctx context.Context, tenant domain.TenantID, name string, member domain.GroupMember, join bool) ([]domain.GroupMember, error)
	GroupMembers(ctx context.Context, tenant domain.TenantID, name string) ([]domain.GroupMember, error)
	RemoveGroupMember(ctx context.Context, tenant domain.TenantID, name string, id domain.GroupMemberID) error

	// NotifyGroup notifies other processes that a group may have something to deliver. It returns at once.
	NotifyGroup(tenant domain.TenantID, name string)
}
