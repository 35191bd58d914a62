package subscription

import (
	"context"
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
	// ReplaysBeside reads the first limit dead letters of a partition whose replay was asked for and that are of none of these streams,
	// oldest first.
	ReplaysBeside(ctx context.Context, tenant domain.TenantID, name string, partition int, streams []string, limit int) ([]domain.DeadLetter, error)
	// SaveLedger makes a change; saved is false, and nothing was written, where group or ledger have other revisions.
	// now is the database's clock. Where the outcome of a save cannot be known, it is found out before it returns, or the error is
	// domain.CodeOutcomeUnknown.
	SaveLedger(ctx context.Context, tenant domain.TenantID, name string, change domain.LedgerChange) (now time.Time, saved bool, err error)
	// SeekGroup gives the group a new revision and writes the ledgers of all its partitions anew, which make returns from what
	// they were; retries are removed, and dead letters behind where they go on whose replay was asked for.
	SeekGroup(ctx context.Context, tenant domain.TenantID, name string, remake func(partition int, ledger []byte) (again []byte, status domain.PartitionStatus, err error)) (domain.Group, error)

	// StreamsOf returns the streams of events by their ids; those that are not there are left out.
	StreamsOf(ctx context.Context, tenant domain.TenantID, ids []domain.EventID) (map[domain.EventID]string, error)
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
