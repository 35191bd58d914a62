package group

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/limits"
	"github.com/manifold-es/manifold/pg"
)

// MaxGroups is how many groups a tenant may have, not counting service groups.
const MaxGroups = 1000

// Lock order: a transaction that locks several rows of a group locks the group's own row first, and then its ledgers in
// the order of their partitions. A transaction that writes related rows, such as a member, holds the group's row so
// that the group cannot be removed meanwhile.

// storedGroup is the stored form of a group's definition. Fields of a later release, which may run at the same time,
// are ignored.
type storedGroup struct {
	Stream      string           `json:"stream,omitempty"`
	Categories  []string         `json:"categories,omitempty"`
	Types       []string         `json:"types,omitempty"`
	Query       domain.QueryForm `json:"query,omitzero"`
	Filter      string           `json:"filter,omitempty"`
	From        string           `json:"from,omitempty"`
	BatchSize   int              `json:"batchSize"`
	MaxInFlight int              `json:"maxInFlight"`
	AckTimeout  int64            `json:"ackTimeout"` // all times are in milliseconds
	MaxAttempts int              `json:"maxAttempts"`
	BackoffMin  int64            `json:"backoffMin"`
	BackoffMax  int64            `json:"backoffMax"`
	Ordering    string           `json:"ordering"`
	Partitions  int              `json:"partitions,omitempty"`
	Delay       int64            `json:"delay,omitempty"`
	To          int64            `json:"to,omitempty"`
}

func newStoredGroup(d domain.GroupDefinition) storedGroup {
	return storedGroup{
		Stream: d.Stream, Categories: pg.NilIfEmpty(d.Categories), Types: pg.NilIfEmpty(d.Types), Query: domain.QueryForm{Items: d.Query.Clone()}, Filter: d.Filter,
		From: d.From, BatchSize: d.BatchSize, MaxInFlight: d.MaxInFlight, AckTimeout: d.AckTimeout.Milliseconds(), MaxAttempts: d.MaxAttempts,
		BackoffMin: d.BackoffMin.Milliseconds(), BackoffMax: d.BackoffMax.Milliseconds(), Ordering: string(d.Ordering), Partitions: d.Partitions,
		Delay: d.Delay.Milliseconds(), To: d.To,
	}
}

func readGroupDefinition(raw []byte) (domain.GroupDefinition, error) {
	var k storedGroup
	if err := json.Unmarshal(raw, &k); err != nil {
		return domain.GroupDefinition{}, fmt.Errorf("read the stored definition of a group: %w", err)
	}
	return domain.GroupDefinition{
		Selection: domain.Selection{Stream: k.Stream, Categories: k.Categories, Types: k.Types, Query: k.Query.Items, Filter: k.Filter},
		From:      k.From, BatchSize: k.BatchSize, MaxInFlight: k.MaxInFlight, AckTimeout: time.Duration(k.AckTimeout) * time.Millisecond,
		MaxAttempts: k.MaxAttempts, BackoffMin: time.Duration(k.BackoffMin) * time.Millisecond, BackoffMax: time.Duration(k.BackoffMax) * time.Millisecond,
		Ordering: domain.Ordering(k.Ordering), Partitions: k.Partitions, Delay: time.Duration(k.Delay) * time.Millisecond, To: k.To,
	}, nil
}

// groupColumns are the first columns that groupValue expects, of the table of groups as s.
const groupColumns = `s.name, s.definition, s.revision, s.paused, s.created_at, s.updated_at`

// groupValue decodes groupColumns.
func groupValue(values [][]byte) (domain.Group, error) {
	definition, err := readGroupDefinition(pg.JSONValue(values[1]))
	return domain.Group{
		Name: string(values[0]), GroupDefinition: definition, Revision: pg.Int8Value(values[2]), Paused: pg.BoolValue(values[3]),
		CreatedAt: pg.TimeValue(values[4]), UpdatedAt: pg.TimeValue(values[5]),
	}, err
}

func scanGroup(row pgx.CollectableRow) (domain.Group, error) {
	var g domain.Group
	var definition []byte
	if err := row.Scan(&g.Name, &definition, &g.Revision, &g.Paused, (*pg.Moment)(&g.CreatedAt), (*pg.Moment)(&g.UpdatedAt)); err != nil {
		return domain.Group{}, err
	}
	var err error
	g.GroupDefinition, err = readGroupDefinition(definition)
	return g, err
}

func noGroup(name string) error {
	return domain.Errorf(domain.CodeNotFound, "name", "there is no group %q; create it with PUT /v1/subscriptions/%s", name, name)
}

// PutGroup creates a group, whose partitions begin to read at the position start, or replaces the definition of an
// existing one. It returns the resulting group. If the definition is the same, nothing changes, including the revision.
// The number of partitions and the ordering cannot change; the error is domain.CodeConflict. Of several concurrent
// calls, one creates the group. A tenant may have MaxGroups, not counting service groups; beyond that the error
// is domain.CodeQuotaExceeded.
func (s *Postgres) PutGroup(ctx context.Context, tenant domain.TenantID, name string, definition domain.GroupDefinition, start int64) (group domain.Group, created bool, err error) {
	if err := domain.CheckGroupName("name", name); err != nil {
		return domain.Group{}, false, err
	}
	changed := false
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) (err error) {
		group, created, changed, err = PutGroupTx(ctx, tx, tenant, name, definition, start)
		return err
	})
	if err != nil {
		return domain.Group{}, false, err
	}
	if created || changed {
		s.NotifyGroup(tenant, name)
	}
	return group, created, nil
}

// PutGroupTx creates a group or changes its definition, as PutGroup does.
func PutGroupTx(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, name string, definition domain.GroupDefinition, start int64) (group domain.Group, created, changed bool, err error) {
	kept := newStoredGroup(definition)
	raw, err := json.Marshal(kept)
	if err != nil {
		return domain.Group{}, false, false, fmt.Errorf("write the group's definition: %w", err)
	}
	rows, _ := tx.Query(ctx, `
		insert into subscriptions as s (tenant_id, name, definition, revision) values ($1, $2, $3, $4)
		on conflict (tenant_id, name) do nothing returning `+groupColumns, tenant, name, raw, pg.FirstRevision())
	group, err = pgx.CollectExactlyOneRow(rows, scanGroup)
	switch {
	case err == nil:
		return group, true, false, makeLedgers(ctx, tx, tenant, name, max(1, definition.Partitions), max(0, start-1))
	case !errors.Is(err, pgx.ErrNoRows):
		return domain.Group{}, false, false, fmt.Errorf("create a group: %w", err)
	}
	if group, err = lockGroup(ctx, tx, tenant, name); err != nil {
		return domain.Group{}, false, false, err
	}
	switch {
	case group.Partitions != definition.Partitions:
		return domain.Group{}, false, false, domain.Errorf(domain.CodeConflict, "partitions", "group %q has %d partitions and keeps them; create another group", name, group.Partitions)
	case group.Ordering != definition.Ordering:
		return domain.Group{}, false, false, domain.Errorf(domain.CodeConflict, "ordering", "group %q has the ordering %q and keeps it; create another group", name, group.Ordering)
	case reflect.DeepEqual(newStoredGroup(group.GroupDefinition), kept):
		return group, false, false, nil
	}
	rows, _ = tx.Query(ctx, `
		update subscriptions as s set definition = $3, revision = s.revision + 1, updated_at = now()
		where s.tenant_id = $1 and s.name = $2 returning `+groupColumns, tenant, name, raw)
	if group, err = pgx.CollectExactlyOneRow(rows, scanGroup); err != nil {
		return domain.Group{}, false, false, fmt.Errorf("change a group: %w", err)
	}
	return group, false, true, nil
}

// makeLedgers creates the rows of a new group's partitions.
func makeLedgers(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, name string, partitions int, readTo int64) error {
	if _, _, ours := domain.ParseServiceGroup(name); !ours {
		if err := limits.Groups.Check(ctx, tx, tenant, MaxGroups); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, `
		insert into subscription_ledgers (tenant_id, name, partition, revision, checkpoint, read_to)
		select s.tenant_id, s.name, p.n, $4::bigint, $5::bigint, $5::bigint
		from subscriptions as s cross join generate_series(0, $3::int - 1) as p(n)
		where s.tenant_id = $1 and s.name = $2`, tenant, name, partitions, pg.FirstRevision(), readTo)
	if err != nil {
		return fmt.Errorf("create a group's ledgers: %w", err)
	}
	return nil
}

// lockGroup locks a group's row and returns the group, or domain.CodeNotFound if there is none.
func lockGroup(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, name string) (domain.Group, error) {
	rows, _ := tx.Query(ctx, "select "+groupColumns+" from subscriptions as s where s.tenant_id = $1 and s.name = $2 for update", tenant, name)
	group, err := pgx.CollectExactlyOneRow(rows, scanGroup)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return domain.Group{}, noGroup(name)
	case err != nil:
		return domain.Group{}, fmt.Errorf("lock a group: %w", err)
	}
	return group, nil
}

var readGroup = pg.Statement{Name: "manifold_group", SQL: `select ` + groupColumns + ` from subscriptions as s where s.tenant_id = $1::uuid and s.name = $2::text`}

// Group returns a group, or domain.CodeNotFound if there is none.
func (s *Postgres) Group(ctx context.Context, tenant domain.TenantID, name string) (domain.Group, error) {
	var group domain.Group
	err := s.db.Read(ctx, tenant, func() { group = domain.Group{} }, groupQuery(tenant, name, &group))
	if err == nil && group.Name == "" {
		err = noGroup(name)
	}
	return group, err
}

// groupQuery reads a group. The name is empty if there is none.
func groupQuery(tenant domain.TenantID, name string, group *domain.Group) pg.Query {
	return pg.Query{Statement: &readGroup, Params: [][]byte{pg.TenantParam(tenant), []byte(name)}, Row: func(values [][]byte) (err error) {
		*group, err = groupValue(values)
		return err
	}}
}

// Only the first of a group's rows contains its definition, which may be long.
const statusSQL = `
	select s.name, case when l.partition = 0 then s.definition end, s.revision, s.paused, s.created_at, s.updated_at,
		l.partition::bigint, l.checkpoint, l.read_to, l.oldest, l.in_flight, l.retrying, l.parked, l.owner
	from (%s) as s
	cross join lateral (
		select * from subscription_ledgers as l where l.tenant_id = s.tenant_id and l.name = s.name order by l.partition
	) as l
	order by s.name, l.partition`

var (
	groupStatus = pg.Statement{Name: "manifold_group_status", SQL: fmt.Sprintf(statusSQL,
		`select * from subscriptions as s where s.tenant_id = $1::uuid and s.name = $2::text`)}
	groupStatuses = pg.Statement{Name: "manifold_group_statuses", SQL: fmt.Sprintf(statusSQL,
		`select * from subscriptions as s where s.tenant_id = $1::uuid and s.name > $2::text order by s.name limit $3::bigint`)}
)

// GroupStatus returns a group with its progress, or domain.CodeNotFound if there is none.
func (s *Postgres) GroupStatus(ctx context.Context, tenant domain.TenantID, name string) (domain.GroupStatus, error) {
	found, err := s.groupStatuses(ctx, tenant, &groupStatus, pg.TenantParam(tenant), []byte(name))
	if err == nil && len(found) == 0 {
		err = noGroup(name)
	}
	if err != nil {
		return domain.GroupStatus{}, err
	}
	return found[0], nil
}

// Groups returns the first limit groups after the name after (empty: from the first) with their progress, ordered by
// name.
func (s *Postgres) Groups(ctx context.Context, tenant domain.TenantID, after string, limit int) ([]domain.GroupStatus, error) {
	return s.groupStatuses(ctx, tenant, &groupStatuses, pg.TenantParam(tenant), []byte(after), pg.Int8Param(int64(limit)))
}

func (s *Postgres) groupStatuses(ctx context.Context, tenant domain.TenantID, st *pg.Statement, params ...[]byte) ([]domain.GroupStatus, error) {
	var head int64
	var found []domain.GroupStatus
	reset := func() { head, found = 0, nil }
	err := s.db.ReadSnapshot(ctx, tenant, reset,
		pg.Query{Statement: st, Params: params, Row: func(values [][]byte) error {
			if values[1] != nil {
				group, err := groupValue(values)
				if err != nil {
					return err
				}
				found = append(found, domain.GroupStatus{Group: group})
			}
			last := &found[len(found)-1]
			last.Partitions = append(last.Partitions, partitionValue(values[6:]))
			return nil
		}},
		eventlog.HeadQuery(tenant, &head),
	)
	if err != nil {
		return nil, err
	}
	for i := range found {
		found[i].Head = head
	}
	return found, nil
}

func partitionValue(values [][]byte) domain.PartitionStatus {
	return domain.PartitionStatus{
		Partition: int(pg.Int8Value(values[0])), Checkpoint: pg.Int8Value(values[1]), ReadTo: pg.Int8Value(values[2]), Oldest: pg.Int8Value(values[3]),
		InFlight: pg.Int8Value(values[4]), Retrying: pg.Int8Value(values[5]), Parked: pg.Int8Value(values[6]), Owner: pg.UUIDValue(values[7]),
	}
}

// PauseGroup pauses or resumes a group and returns the resulting group. If it already is in that state, it keeps its
// revision.
func (s *Postgres) PauseGroup(ctx context.Context, tenant domain.TenantID, name string, paused bool) (domain.Group, error) {
	var group domain.Group
	changed := false
	err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) (err error) {
		if group, err = lockGroup(ctx, tx, tenant, name); err != nil || group.Paused == paused {
			return err
		}
		changed = true
		rows, _ := tx.Query(ctx, `
			update subscriptions as s set paused = $3, revision = s.revision + 1, updated_at = now()
			where s.tenant_id = $1 and s.name = $2 returning `+groupColumns, tenant, name, paused)
		if group, err = pgx.CollectExactlyOneRow(rows, scanGroup); err != nil {
			return fmt.Errorf("pause or resume a group: %w", err)
		}
		return nil
	})
	if err != nil {
		return domain.Group{}, err
	}
	if changed {
		s.NotifyGroup(tenant, name)
	}
	return group, nil
}

// groupTables are the tables with a group's rows, in the order in which they are emptied. A concurrent save of a ledger
// then finds none, or is waited for.
var groupTables = [...]string{"subscriptions", "subscription_ledgers", "subscription_retries", "dead_letters", "subscription_members"}

// DeleteGroup removes a group with everything that belongs to it, or returns domain.CodeNotFound if there is none. It
// removes the dead letters first, in slices. If the call is interrupted, the group may remain with fewer dead letters.
func (s *Postgres) DeleteGroup(ctx context.Context, tenant domain.TenantID, name string) error {
	if _, err := s.DiscardDeadLetters(ctx, tenant, name, domain.EventID{}); err != nil {
		return err
	}
	err := pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		return RemoveGroupTx(ctx, tx, tenant, name)
	})
	if err == nil {
		s.NotifyGroup(tenant, name)
	}
	return err
}

// RemoveGroupTx removes a group's rows, or returns domain.CodeNotFound if there is no such group.
func RemoveGroupTx(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, name string) error {
	if _, err := lockGroup(ctx, tx, tenant, name); err != nil {
		return err
	}
	if err := lockLedgers(ctx, tx, tenant, name, nil); err != nil {
		return err
	}
	for _, table := range groupTables {
		if _, err := tx.Exec(ctx, "delete from "+table+" as t where t.tenant_id = $1 and t.name = $2", tenant, name); err != nil {
			return fmt.Errorf("remove a group's rows of %s: %w", table, err)
		}
	}
	return nil
}

// lockLedgers locks the ledgers of a group's partitions; nil: of all.
func lockLedgers(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, name string, partitions []int) error {
	_, err := tx.Exec(ctx, `
		select from subscription_ledgers as l
		where l.tenant_id = $1 and l.name = $2 and ($3::int[] is null or l.partition = any($3)) order by l.partition for update`, tenant, name, partitions)
	if err != nil {
		return fmt.Errorf("lock a group's ledgers: %w", err)
	}
	return nil
}

// holdGroup prevents the removal of a group until the transaction ends. It returns domain.CodeNotFound if there is no
// such group.
func holdGroup(ctx context.Context, tx pgx.Tx, tenant domain.TenantID, name string) error {
	held, err := tx.Exec(ctx, "select from subscriptions as s where s.tenant_id = $1 and s.name = $2 for key share", tenant, name)
	switch {
	case err != nil:
		return fmt.Errorf("hold a group: %w", err)
	case held.RowsAffected() == 0:
		return noGroup(name)
	}
	return nil
}
