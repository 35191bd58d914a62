package erasure

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
	tenants "github.com/manifold-es/manifold/tenant"
)

// eraseSlice is how many rows one statement removes. It is small enough that a statement takes only a moment.
const eraseSlice = 5000

// The tables with a tenant's rows, in the order in which they are emptied. The log's own row goes first: deleting it
// waits for a running append, and without it nothing can be appended for a deleting tenant.
var (
	// Retention's policies and floors go before the events, so that retention does nothing afterwards.
	logTables = [...]string{"logs", "sealed_logs", "seals", "seal_subtrees", "seal_receipts",
		"retention_policies", "retention_floors", "retention_spared", "erasures", "erased_events", "event_tags", "tagged_events", "events", "snapshots",
		"stream_floors", "command_outcomes"}
	otherTables = [...]string{"aggregates", "schema_sets", "schema_types", "schema_versions", "schema_rules", "schema_retags", "upcasters", "upcaster_sets", "report_settings", "alerts", "tenant_limits", "limit_ledgers", "quota_checks", "stored_events", "usage_days", "totals", "total_sums", "faults", "build_losses", "parked_events", "parked_documents", "skipped_events", "rebuilds",
		"tenant_builds", "projections", "projection_versions", "retired_builds", "build_numbers", "tickets", "service_consumers",
		"subscriptions", "subscription_ledgers", "subscription_retries", "dead_letters", "subscription_members"} // the tables of groupTables
)

// EraseLog removes a tenant's keys, webhooks, events and snapshots, in slices. After it, no projection can fold an
// event and nothing is sent anywhere. It returns domain.CodeConflict unless the tenant is deleting. It may be repeated
// and interrupted at any point.
func (s *Postgres) EraseLog(ctx context.Context, tenant domain.TenantID) error {
	if err := s.checkDeleting(ctx, tenant); err != nil {
		return err
	}
	if _, err := s.db.System.Exec(ctx, "delete from keys k where k.tenant_id = $1", tenant); err != nil {
		return pg.Unavailable(fmt.Errorf("erase keys: %w", err))
	}
	for _, log := range logsOf(tenant) {
		if err := s.eraseTables(ctx, log, webhook.Tables[:]); err != nil {
			return err
		}
		if err := s.webhooks.TellWebhooks(ctx, log); err != nil {
			return err
		}
		if err := s.eraseTables(ctx, log, logTables[:]); err != nil {
			return err
		}
	}
	return nil
}

// logsOf returns what owns a tenant's rows: the tenant and its audit log.
func logsOf(tenant domain.TenantID) []domain.TenantID {
	return []domain.TenantID{tenant, tenant.AuditLog()}
}

// EraseRows removes every row of a tenant, in slices, but its record. It returns domain.CodeConflict unless the tenant
// is deleting or deleted; a deleted tenant is erased once more. It may be repeated and interrupted at any point. The
// store does not hold documents: they must be removed before, while the rows that say where they are still exist.
func (s *Postgres) EraseRows(ctx context.Context, tenant domain.TenantID) error {
	if err := s.EraseLog(ctx, tenant); err != nil {
		return err
	}
	for _, log := range logsOf(tenant) {
		if err := s.eraseTables(ctx, log, otherTables[:]); err != nil {
			return err
		}
	}
	return s.registry.ForgetExamples(ctx, tenant)
}

// EraseAuditLog removes every row of the audit log of a tenant that is deleting or deleted. The log's own row goes
// last, so that what was interrupted can be found.
func (s *Postgres) EraseAuditLog(ctx context.Context, tenant domain.TenantID) error {
	if err := s.checkDeleting(ctx, tenant); err != nil {
		return err
	}
	log := tenant.AuditLog()
	for _, tables := range [][]string{webhook.Tables[:], otherTables[:], logTables[1:], logTables[:]} {
		if err := s.eraseTables(ctx, log, tables); err != nil {
			return err
		}
	}
	return s.webhooks.TellWebhooks(ctx, log)
}

// EraseLeft removes the seals of a tenant that is deleting or deleted, and of its audit log, and its erasures of data
// subjects. The rows by which they are found go last.
func (s *Postgres) EraseLeft(ctx context.Context, tenant domain.TenantID) error {
	if err := s.checkDeleting(ctx, tenant); err != nil {
		return err
	}
	for _, log := range logsOf(tenant) {
		if err := s.eraseTables(ctx, log, []string{"seals", "seal_subtrees", "seal_receipts", "sealed_logs", "erased_events", "erasures"}); err != nil {
			return err
		}
	}
	return nil
}

// EraseTenant is EraseRows, and then marks the tenant deleted. Its record stays, and its name becomes free.
func (s *Postgres) EraseTenant(ctx context.Context, tenant domain.TenantID) error {
	if err := s.EraseRows(ctx, tenant); err != nil {
		return err
	}
	_, err := s.db.System.Exec(ctx,
		"update tenants t set state = 'deleted', deleted_at = now() where t.tenant_id = $1 and t.state = 'deleting'", tenant)
	if err != nil {
		return pg.Unavailable(fmt.Errorf("mark the tenant deleted: %w", err))
	}
	s.db.KeysChanged.Notify(tenant)
	s.db.ProjectionsChanged.Notify(struct{}{})
	return nil
}

func (s *Postgres) checkDeleting(ctx context.Context, tenant domain.TenantID) error {
	var state domain.TenantState
	err := s.db.System.QueryRow(ctx, "select t.state from tenants t where t.tenant_id = $1", tenant).Scan(&state)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return tenants.NotFound(tenant)
	case err != nil:
		return pg.Unavailable(fmt.Errorf("read the tenant's state: %w", err))
	case state != domain.TenantDeleting && state != domain.TenantDeleted:
		return domain.Errorf(domain.CodeConflict, "", "tenant %s is %s; only one that is deleting is erased", tenant, state)
	}
	return nil
}

// eraseTables removes a tenant's rows from tables, in their order.
func (s *Postgres) eraseTables(ctx context.Context, tenant domain.TenantID, tables []string) error {
	for _, table := range tables {
		if err := s.eraseTable(ctx, tenant, table); err != nil {
			return err
		}
	}
	return nil
}

// eraseTable removes a tenant's rows from a table, one of those listed above, until none is left.
func (s *Postgres) eraseTable(ctx context.Context, tenant domain.TenantID, table string) error {
	var key string
	err := s.db.Retention.QueryRow(ctx, `
		select string_agg(a.attname, ', ' order by k.n)
		from pg_index i cross join unnest(i.indkey) with ordinality k (column_number, n)
		join pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.column_number
		where i.indrelid = to_regclass($1) and i.indisprimary and k.n <= i.indnkeyatts`, table).Scan(&key)
	if err != nil {
		return pg.Unavailable(fmt.Errorf("read the primary key of %s: %w", table, err))
	}
	// A slice is a range of the key, up to its last row.
	remove := fmt.Sprintf(`
		delete from %[1]s t where t.tenant_id = $1 and (%[2]s) <= (
		  select %[2]s from (select %[2]s from %[1]s o where o.tenant_id = $1 order by %[2]s limit $2) l
		  order by (%[2]s) desc limit 1)`, table, key)
	look := fmt.Sprintf("select exists (select from %s t where t.tenant_id = $1)", table)
	for {
		var more bool
		err := pg.Under(ctx, s.db.Retention, tenant, func(tx pgx.Tx) error {
			gone, err := tx.Exec(ctx, remove, tenant, eraseSlice)
			if more = gone.RowsAffected() > 0; more || err != nil {
				return err
			}
			// It also removes nothing if others have removed the whole slice while it waited for them.
			return tx.QueryRow(ctx, look, tenant).Scan(&more)
		})
		if err != nil {
			return fmt.Errorf("erase %s: %w", table, err)
		}
		if !more {
			return nil
		}
	}
}
