package totals

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// Postgres reads and writes the totals. All methods may be called concurrently.
type Postgres struct{ db *pg.DB }

// NewPostgres returns the tables of a database.
func NewPostgres(db *pg.DB) *Postgres { return &Postgres{db} }

// state says what a tenant's totals of a projection were computed from.
type state struct {
	build       int64
	position    int64
	spec        string
	keysDropped bool
	computedAt  time.Time
	took        time.Duration
	revision    int64 // 0: there are none yet
}

// states returns the state of all tenants' totals of a projection.
func (s *Postgres) states(ctx context.Context, name string) (map[domain.TenantID]state, error) {
	all := make(map[domain.TenantID]state)
	_, err := pg.Select(ctx, s.db.System, "list the totals of a projection", func(row pgx.CollectableRow) (none struct{}, err error) {
		var tenant domain.TenantID
		var one state
		var took int64
		err = row.Scan(&tenant, &one.build, &one.position, &one.spec, &one.keysDropped, (*pg.Moment)(&one.computedAt), &took, &one.revision)
		one.took = time.Duration(took) * time.Millisecond
		all[tenant] = one
		return none, err
	}, `
		select t.tenant_id, t.build, t.position, t.spec, t.keys_dropped, t.computed_at, t.took_ms, t.revision from totals as t
		where t.name = $1`, name)
	return all, err
}

// save replaces a tenant's totals of a projection, and adds its own time to the state's. It returns false and changes
// nothing if they no longer have the revision before the given state's, because another process has saved, or if the
// tenant is being erased.
func (s *Postgres) save(ctx context.Context, tenant domain.TenantID, name string, now state, sums *tally) (saved bool, err error) {
	start := time.Now()
	var keys, fields, totals []string
	var documents []int64
	add := func(key, field, total string, count int64) {
		keys, fields, totals, documents = append(keys, key), append(fields, field), append(totals, total), append(documents, count)
	}
	for _, key := range slices.Sorted(maps.Keys(sums.byKey)) {
		of := sums.byKey[key]
		add(key, "", "0", of.documents)
		for i, path := range sums.totals.Sum {
			add(key, path, of.totals[i].String(), of.numbers[i])
		}
	}
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		changed, err := pg.Exec(ctx, tx, "save totals", `
			insert into totals as t (tenant_id, name, build, position, spec, keys_dropped, computed_at, took_ms, revision)
			select l.tenant_id, $2, $3, $4, $5, $6, $7, $8, $9 from logs as l where l.tenant_id = $1
			on conflict (tenant_id, name) do update
			  set build = excluded.build, position = excluded.position, spec = excluded.spec, keys_dropped = excluded.keys_dropped,
			    computed_at = excluded.computed_at, took_ms = excluded.took_ms, revision = excluded.revision
			  where t.revision = excluded.revision - 1`,
			tenant, name, now.build, now.position, now.spec, now.keysDropped, now.computedAt, now.took.Milliseconds(), now.revision)
		if err != nil || changed == 0 {
			return err
		}
		saved = true
		if _, err = pg.Exec(ctx, tx, "delete sums without documents", `
			delete from total_sums as s where s.tenant_id = $1 and s.name = $2
			  and not exists (select from unnest($3::text[], $4::text[]) as u (key, field) where u.key = s.key and u.field = s.field)`,
			tenant, name, keys, fields); err != nil {
			return err
		}
		_, err = pg.Exec(ctx, tx, "save sums", `
			insert into total_sums as s (tenant_id, name, key, field, total, documents)
			select t.tenant_id, t.name, u.key, u.field, u.total::numeric, u.documents
			from totals as t, unnest($3::text[], $4::text[], $5::text[], $6::bigint[]) as u (key, field, total, documents)
			where t.tenant_id = $1 and t.name = $2
			on conflict (tenant_id, name, key, field) do update set total = excluded.total, documents = excluded.documents
			  where s.total <> excluded.total or s.documents <> excluded.documents`, tenant, name, keys, fields, totals, documents)
		if err != nil {
			return err
		}
		_, err = pg.Exec(ctx, tx, "save how long totals took", "update totals as t set took_ms = $3 where t.tenant_id = $1 and t.name = $2",
			tenant, name, (now.took + time.Since(start)).Milliseconds())
		return err
	})
	return saved && err == nil, err
}

// deleteOthers deletes the totals of projections that are not among the names, of at most limit tenants.
func (s *Postgres) deleteOthers(ctx context.Context, names []string, limit int) error {
	type row struct {
		tenant domain.TenantID
		name   string
	}
	rows, err := pg.Select(ctx, s.db.System, "list totals without a definition", func(from pgx.CollectableRow) (one row, err error) {
		return one, from.Scan(&one.tenant, &one.name)
	}, "select t.tenant_id, t.name from totals as t where t.name <> all ($1) limit $2", names, limit)
	if err != nil {
		return err
	}
	for _, one := range rows {
		err := pg.Under(ctx, s.db.App, one.tenant, func(tx pgx.Tx) error {
			_, err := pg.Exec(ctx, tx, "delete totals", "delete from totals as t where t.tenant_id = $1 and t.name = $2", one.tenant, one.name)
			if err != nil {
				return err
			}
			_, err = pg.Exec(ctx, tx, "delete sums", "delete from total_sums as s where s.tenant_id = $1 and s.name = $2", one.tenant, one.name)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// sumsQuery selects sums across tenants.
type sumsQuery struct {
	name, spec string
	prefix     string          // of the keys
	tenant     domain.TenantID // Everyone: all
	byTenant   bool            // sums of each tenant
	byKey      bool            // sums of each key
	after      *After          // nil: from the first
	limit      int             // rows, one for each field and one more; 0: all
}

// fieldSum is a sum of one field over the documents of one tenant, key, both or neither.
type fieldSum struct {
	tenant     domain.TenantID
	tenantName string
	key        string
	field      string // empty: the row only counts documents
	total      string
	documents  int64
}

// sums adds up the sums of the tenants that are not being deleted, ordered by tenant, then key, then field.
func (s *Postgres) sums(ctx context.Context, q sumsQuery) ([]fieldSum, error) {
	sql, arguments := q.sumsStatement()
	return pg.Select(ctx, s.db.System, "add up totals", func(row pgx.CollectableRow) (one fieldSum, err error) {
		var of *domain.TenantID
		err = row.Scan(&of, &one.tenantName, &one.key, &one.field, &one.total, &one.documents)
		if of != nil {
			one.tenant = *of
		}
		one.total = trimZeros(one.total)
		return one, err
	}, sql, arguments)
}

// sumsStatement returns the query's SQL with its arguments.
func (q sumsQuery) sumsStatement() (sql string, arguments pgx.NamedArgs) {
	tenant, key, name := "null::uuid", "''", "''"
	group := ""
	if q.byTenant {
		tenant, name, group = "s.tenant_id", "min(n.name)", "s.tenant_id, "
	}
	if q.byKey {
		key, group = "s.key", group+"s.key, "
	}
	of := "true"
	if q.tenant != domain.Everyone {
		// Not a parameter that may be null: a plan for any value would read the sums of all tenants.
		of = "t.tenant_id = @tenant and s.tenant_id = @tenant"
	}
	after := "true"
	var afterTenant domain.TenantID
	var afterKey string
	if q.after != nil {
		afterTenant, afterKey = q.after.Tenant, q.after.Key
		switch {
		case q.byTenant && q.byKey:
			after = "(s.tenant_id, s.key) > (@afterTenant, @afterKey)"
		case q.byTenant:
			after = "s.tenant_id > @afterTenant"
		default:
			after = "s.key > @afterKey"
		}
	}
	sql = fmt.Sprintf(`
		select %s, %s, %s, s.field, sum(s.total)::text, sum(s.documents)::bigint
		from totals as t
		join total_sums as s on s.tenant_id = t.tenant_id and s.name = t.name
		join tenants as n on n.tenant_id = t.tenant_id
		where t.name = @name and t.spec = @spec and n.state not in ('deleting', 'deleted') and starts_with(s.key, @prefix)
		  and %s and %s
		group by %ss.field order by %ss.field limit @limit`, tenant, name, key, of, after, group, group)
	return sql, pgx.NamedArgs{
		"name": q.name, "spec": q.spec, "prefix": q.prefix, "tenant": q.tenant, "afterTenant": afterTenant, "afterKey": afterKey,
		"limit": orNoLimit(q.limit),
	}
}

func orNoLimit(limit int) *int {
	if limit == 0 {
		return nil
	}
	return &limit
}

// Forget removes a tenant's totals: documents from which they were computed have changed. They are computed again.
func (s *Postgres) Forget(ctx context.Context, tenant domain.TenantID) (removed int64, err error) {
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		if _, err := pg.Exec(ctx, tx, "remove the totals of a tenant", "delete from totals as t where t.tenant_id = $1", tenant); err != nil {
			return err
		}
		removed, err = pg.Exec(ctx, tx, "remove the sums of a tenant", "delete from total_sums as t where t.tenant_id = $1", tenant)
		return err
	})
	return removed, err
}
