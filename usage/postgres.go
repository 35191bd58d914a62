package usage

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// DaysKept is how many days are kept.
const DaysKept = 400

// pageSize is how many days Each reads at once.
const pageSize = 1000

// Postgres reads and writes the days. All methods may be called concurrently. If the database cannot be reached, the
// error's code is domain.CodeUnavailable.
type Postgres struct{ db *pg.DB }

// NewPostgres returns the tables of a database.
func NewPostgres(db *pg.DB) *Postgres { return &Postgres{db} }

// Day is what a tenant has used on a UTC day, of the database's clock when it was saved.
type Day struct {
	Tenant domain.TenantID
	Day    time.Time // midnight UTC
	Counts
}

func scanDay(row pgx.CollectableRow) (d Day, err error) {
	err = row.Scan((*[16]byte)(&d.Tenant), &d.Day, &d.Events, &d.Bytes, &d.Documents, &d.Deliveries, &d.Steps)
	return d, err
}

const dayColumns = "u.tenant_id, u.day, u.events, u.bytes, u.documents, u.deliveries, u.steps"

// UsageDays returns a tenant's days from one day to another, both included, in order. A day without any use is missing.
func (s *Postgres) UsageDays(ctx context.Context, tenant domain.TenantID, from, to time.Time) ([]Day, error) {
	return pg.Select(ctx, s.db.System, "read a tenant's usage", scanDay,
		"select "+dayColumns+" from usage_days u where u.tenant_id = $1 and u.day >= $2::date and u.day <= $3::date order by u.day", tenant, from, to)
}

// EachUsageDay calls yield for the days of all tenants, by tenant and day, until it returns an error, which
// EachUsageDay returns.
func (s *Postgres) EachUsageDay(ctx context.Context, from, to time.Time, yield func(Day) error) error {
	last := Day{Day: from.AddDate(0, 0, -1)}
	for {
		days, err := pg.Select(ctx, s.db.System, "read the usage of all tenants", scanDay, `
			select `+dayColumns+` from usage_days u
			where u.day >= $1::date and u.day <= $2::date and (u.tenant_id, u.day) > ($3::uuid, $4::date)
			order by u.tenant_id, u.day limit $5`, from, to, last.Tenant, last.Day, pageSize)
		if err != nil {
			return err
		}
		for _, day := range days {
			if err := yield(day); err != nil {
				return err
			}
		}
		if len(days) < pageSize {
			return nil
		}
		last = days[len(days)-1]
	}
}

// add adds a batch to the current day, unless it was added before: batches of a writer have increasing numbers.
func (s *Postgres) add(ctx context.Context, writer domain.UUID, number int64, rows []row) error {
	err := pgx.BeginFunc(ctx, s.db.System, func(tx pgx.Tx) error {
		isNew, err := pg.Exec(ctx, tx, "number a batch of usage", `
			insert into usage_writers as w (writer_id, number) values ($1, $2)
			on conflict (writer_id) do update set number = excluded.number, saved_at = excluded.saved_at where w.number < excluded.number`, writer, number)
		if err != nil || isNew == 0 {
			return err
		}
		var batch pgx.Batch
		for _, r := range rows {
			batch.Queue(`
				insert into usage_days as u (tenant_id, day, events, bytes, documents, deliveries, steps)
				values ($1, (now() at time zone 'utc')::date, $2, $3, $4, $5, $6)
				on conflict (tenant_id, day) do update set events = u.events + excluded.events, bytes = u.bytes + excluded.bytes,
					documents = u.documents + excluded.documents, deliveries = u.deliveries + excluded.deliveries, steps = u.steps + excluded.steps`,
				r.tenant, r.Events, r.Bytes, r.Documents, r.Deliveries, r.Steps)
		}
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return fmt.Errorf("add usage: %w", err)
		}
		return nil
	})
	if err != nil {
		return pg.Unavailable(err)
	}
	return nil
}

// prune deletes days that are older than DaysKept, and the writers that have saved nothing for a day longer than a
// database may be away.
func (s *Postgres) prune(ctx context.Context) error {
	for _, statement := range []string{
		fmt.Sprintf("delete from usage_days u where u.day < (now() at time zone 'utc')::date - %d", DaysKept),
		"delete from usage_writers w where w.saved_at < now() - interval '7 days'",
	} {
		if _, err := s.db.System.Exec(ctx, statement); err != nil {
			return pg.Unavailable(fmt.Errorf("delete old usage: %w", err))
		}
	}
	return nil
}
