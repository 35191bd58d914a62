package members

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// membersKept is how long a member's row is kept after its last sign of life. It is much longer than a member can count
// as alive.
const membersKept = time.Hour

// Join removes every other member with this one's name: this process has started in its place.
func (s *Postgres) Join(ctx context.Context, member Member) error {
	if _, err := s.db.Heartbeats.Exec(ctx, "delete from members m where m.name = $1 and m.member_id <> $2", member.Name, member.ID); err != nil {
		return pg.Unavailable(fmt.Errorf("announce a member: %w", err))
	}
	return nil
}

// Announce records a member's sign of life. It returns the members with a sign of life within the given time, by the
// database's clock, in the order in which they started, including this one. StartedAt and AliveAt are the database's
// times. Members that have been silent for an hour are removed. If tenants is not nil, Announce sets it to all tenants
// with a log, in order. In a distributed database, it sets it to all tenants instead: their logs cannot be listed while
// a node is down. Audit logs are not tenants.
func (s *Postgres) Announce(ctx context.Context, member Member, within time.Duration, tenants *[]domain.TenantID) ([]Member, error) {
	var egresses *string
	if member.Egresses != nil {
		text, err := json.Marshal(member.Egresses)
		if err != nil {
			return nil, fmt.Errorf("encode the egresses of a member: %w", err)
		}
		// PostgreSQL has no NUL in texts, and a broker's error must not keep a process from its sign of life.
		egresses = new(strings.ReplaceAll(string(text), `\u0000`, `\ufffd`))
	}
	var batch pgx.Batch
	batch.Queue("begin")
	batch.Queue(`
		insert into members as m (member_id, name, version, egresses) values ($1, $2, $3, $4)
		on conflict (member_id) do update
		set name = excluded.name, version = excluded.version, alive_at = excluded.alive_at, egresses = coalesce(excluded.egresses, m.egresses)`,
		member.ID, member.Name, member.Version, egresses)
	batch.Queue("delete from members m where m.alive_at < now() - make_interval(secs => $1)", membersKept.Seconds())
	var alive []Member
	queueMembers(&batch, within, &alive)
	if tenants != nil {
		list := "select l.tenant_id from logs l order by l.tenant_id"
		if s.db.Distributed {
			list = "select t.tenant_id from tenants t where t.state <> 'deleted' order by t.tenant_id"
		}
		batch.Queue(list).Query(func(rows pgx.Rows) (err error) {
			*tenants, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (id domain.TenantID, err error) {
				err = row.Scan((*[16]byte)(&id))
				return id, err
			})
			*tenants = slices.DeleteFunc(*tenants, domain.TenantID.IsAuditLog)
			return err
		})
	}
	batch.Queue("commit")
	if err := s.db.Heartbeats.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, pg.Unavailable(fmt.Errorf("announce a member: %w", err))
	}
	return alive, nil
}

// queueMembers adds the statements that read the members to a batch.
func queueMembers(batch *pgx.Batch, within time.Duration, alive *[]Member) {
	batch.Queue(`
		select m.member_id, m.name, m.version, m.started_at, m.alive_at from members m
		where m.alive_at >= now() - make_interval(secs => $1) order by m.started_at, m.member_id`, within.Seconds()).
		Query(func(rows pgx.Rows) (err error) {
			*alive, err = pgx.CollectRows(rows, scanMember)
			return err
		})
	// A listener's connection ends with its process, however the process ends. The view shows the names of connections
	// of the same login. A sharded database cannot join it with a table.
	batch.Queue("select a.application_name from pg_stat_activity a where starts_with(a.application_name, $1)", pg.ListenerName).
		Query(func(rows pgx.Rows) error {
			names, err := pgx.CollectRows(rows, pgx.RowTo[string])
			for i := range *alive {
				m := &(*alive)[i]
				m.Connected = slices.Contains(names, pg.ListenerName+m.ID.String())
			}
			return err
		})
}

func scanMember(row pgx.CollectableRow) (Member, error) {
	var m Member
	err := row.Scan((*[16]byte)(&m.ID), &m.Name, &m.Version, (*pg.Moment)(&m.StartedAt), (*pg.Moment)(&m.AliveAt))
	return m, err
}

// Members returns the members with a sign of life within the given time, by the database's clock, in the order in which
// they started.
func (s *Postgres) Members(ctx context.Context, within time.Duration) (alive []Member, err error) {
	var batch pgx.Batch
	queueMembers(&batch, within, &alive)
	if err := s.db.Heartbeats.SendBatch(ctx, &batch).Close(); err != nil {
		return nil, pg.Unavailable(fmt.Errorf("list the members: %w", err))
	}
	return alive, nil
}

// Egresses returns what the members with a sign of life within the given time have reported about their egresses, in
// the order in which the members started. Processes of earlier releases report nothing.
func (s *Postgres) Egresses(ctx context.Context, within time.Duration) ([]domain.ProcessEgresses, error) {
	rows, _ := s.db.Heartbeats.Query(ctx, `
		select m.member_id, m.name, m.egresses from members m
		where m.egresses is not null and m.alive_at >= now() - make_interval(secs => $1) order by m.started_at, m.member_id`, within.Seconds())
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (domain.ProcessEgresses, error) {
		var p domain.ProcessEgresses
		err := row.Scan((*[16]byte)(&p.Member), &p.Name, &p.Reports)
		return p, err
	})
	if err != nil {
		return nil, pg.Unavailable(fmt.Errorf("list the egresses: %w", err))
	}
	return all, nil
}

// Leave removes a member. Removing a member that does not exist is no error.
func (s *Postgres) Leave(ctx context.Context, id domain.MemberID) error {
	if _, err := s.db.Heartbeats.Exec(ctx, "delete from members m where m.member_id = $1", id); err != nil {
		return pg.Unavailable(fmt.Errorf("forget a member: %w", err))
	}
	return nil
}
