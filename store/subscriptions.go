package store

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
)

func notYet() error { return domain.Errorf(domain.CodeUnsupported, "", "this is not there yet") }

func (s *Store) PutGroup(ctx context.Context, tenant domain.TenantID, name string, definition domain.GroupDefinition, start int64) (group domain.Group, created bool, err error) {
	return domain.Group{}, false, notYet()
}

func (s *Store) Group(ctx context.Context, tenant domain.TenantID, name string) (domain.Group, error) {
	return domain.Group{}, notYet()
}

func (s *Store) GroupStatus(ctx context.Context, tenant domain.TenantID, name string) (domain.GroupStatus, error) {
	return domain.GroupStatus{}, notYet()
}

func (s *Store) Groups(ctx context.Context, tenant domain.TenantID, after string, limit int) ([]domain.GroupStatus, error) {
	return nil, notYet()
}

func (s *Store) DeleteGroup(ctx context.Context, tenant domain.TenantID, name string) error {
	return notYet()
}

func (s *Store) PauseGroup(ctx context.Context, tenant domain.TenantID, name string, paused bool) (domain.Group, error) {
	return domain.Group{}, notYet()
}

func (s *Store) Ledger(ctx context.Context, tenant domain.TenantID, name string, partition int, wait bool) (domain.LedgerRow, error) {
	return domain.LedgerRow{}, notYet()
}

func (s *Store) SaveLedger(ctx context.Context, tenant domain.TenantID, name string, change domain.LedgerChange) (now time.Time, saved bool, err error) {
	return time.Time{}, false, notYet()
}

func (s *Store) SeekGroup(ctx context.Context, tenant domain.TenantID, name string, remake func(partition int, ledger []byte) (again []byte, status domain.PartitionStatus, err error)) (domain.Group, error) {
	return domain.Group{}, notYet()
}

func (s *Store) ReadPositions(ctx context.Context, tenant domain.TenantID, positions []int64) ([]domain.Event, error) {
	return nil, notYet()
}

func (s *Store) NextInStreams(ctx context.Context, tenant domain.TenantID, places []domain.StreamPlace, to int64, types []string, limit int) ([]domain.Event, error) {
	return nil, notYet()
}

func (s *Store) DeadLetters(ctx context.Context, tenant domain.TenantID, name string, after int64, limit int) ([]domain.DeadLetter, error) {
	return nil, notYet()
}

func (s *Store) ReplayDeadLetters(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error) {
	return 0, notYet()
}

func (s *Store) DiscardDeadLetters(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error) {
	return 0, notYet()
}

func (s *Store) AnnounceGroupMember(ctx context.Context, tenant domain.TenantID, name string, member domain.GroupMember, join bool) ([]domain.GroupMember, error) {
	return nil, notYet()
}

func (s *Store) GroupMembers(ctx context.Context, tenant domain.TenantID, name string) ([]domain.GroupMember, error) {
	return nil, notYet()
}

func (s *Store) RemoveGroupMember(ctx context.Context, tenant domain.TenantID, name string, id domain.GroupMemberID) error {
	return notYet()
}

func (s *Store) NotifyGroup(tenant domain.TenantID, name string) {}

func (s *Store) EventPosition(ctx context.Context, tenant domain.TenantID, id domain.EventID) (int64, error) {
	return 0, notYet()
}

func (s *Store) VersionBefore(ctx context.Context, tenant domain.TenantID, stream string, position int64) (int64, error) {
	return 0, notYet()
}
