package report

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// Postgres reads and writes the settings and the alerts of tenants. All methods may be called concurrently.
type Postgres struct{ db *pg.DB }

// NewPostgres returns the tables of a database.
func NewPostgres(db *pg.DB) *Postgres { return &Postgres{db} }

// Settings says whether a tenant's log gets reports.
type Settings struct {
	Enabled bool
	Since   time.Time     // when they were enabled; zero if they are not
	MaxLag  time.Duration // the lag from which on it is reported, in whole seconds; 0: none is
}

const settingsColumns = "r.enabled, case when r.enabled then r.since end, r.max_lag"

func scanSettings(row pgx.CollectableRow) (Settings, error) {
	var s Settings
	var seconds int64
	err := row.Scan(&s.Enabled, (*pg.Moment)(&s.Since), &seconds)
	s.MaxLag = time.Duration(seconds) * time.Second
	return s, err
}

// ReportSettings returns a tenant's settings. Reports are not enabled if it has none.
func (s *Postgres) ReportSettings(ctx context.Context, tenant domain.TenantID) (Settings, error) {
	settings, _, err := pg.SelectOneUnder(ctx, s.db.App, tenant, "read the settings of reports", scanSettings,
		"select "+settingsColumns+" from report_settings as r where r.tenant_id = $1", tenant)
	return settings, err
}

// PutReportSettings enables or disables a tenant's reports. If they are enabled already, they stay so since the same
// time. Disabling them forgets the alerts: what still holds when reports are enabled again is reported again.
func (s *Postgres) PutReportSettings(ctx context.Context, tenant domain.TenantID, enabled bool, maxLag time.Duration) (settings Settings, err error) {
	err = pg.Under(ctx, s.db.App, tenant, func(tx pgx.Tx) error {
		settings, _, err = pg.SelectOne(ctx, tx, "change the settings of reports", scanSettings, `
			insert into report_settings as r (tenant_id, enabled, since, max_lag) values ($1, $2, now(), $3)
			on conflict (tenant_id) do update
			  set enabled = excluded.enabled, max_lag = excluded.max_lag, updated_at = excluded.updated_at, since = case when r.enabled then r.since else excluded.since end
			returning `+settingsColumns, tenant, enabled, int64(maxLag/time.Second))
		if err != nil || enabled {
			return err
		}
		_, err = pg.Exec(ctx, tx, "forget the alerts", "delete from alerts as a where a.tenant_id = $1", tenant)
		return err
	})
	return settings, err
}

// ReportingTenants returns the settings of the tenants with reports.
func (s *Postgres) ReportingTenants(ctx context.Context) (map[domain.TenantID]Settings, error) {
	tenants := make(map[domain.TenantID]Settings)
	var id domain.TenantID
	var since time.Time
	var seconds int64
	rows, _ := s.db.System.Query(ctx, "select r.tenant_id, r.since, r.max_lag from report_settings as r where r.enabled")
	_, err := pgx.ForEachRow(rows, []any{&id, &since, &seconds}, func() error {
		tenants[id] = Settings{Enabled: true, Since: since, MaxLag: time.Duration(seconds) * time.Second}
		return nil
	})
	if err != nil {
		return nil, pg.Unavailable(fmt.Errorf("list the tenants with reports: %w", err))
	}
	return tenants, nil
}

// alert is a condition that was reported, or is about to be, and has not ended.
type alert struct {
	kind     Kind
	name     string
	episode  string // tells apart conditions that follow one another
	data     json.RawMessage
	openedID domain.EventID
	reported bool           // its beginning was
	closedID domain.EventID // the report of its end; zero: it has not ended
}

func (s *Postgres) alerts(ctx context.Context, tenant domain.TenantID) ([]alert, error) {
	return pg.SelectUnder(ctx, s.db.App, tenant, "list alerts", func(row pgx.CollectableRow) (alert, error) {
		var a alert
		var closed *domain.EventID
		err := row.Scan(&a.kind, &a.name, &a.episode, (*[]byte)(&a.data), &a.openedID, &a.reported, &closed)
		if closed != nil {
			a.closedID = *closed
		}
		return a, err
	}, `
		select a.kind, a.name, a.episode, a.data, a.opened_id, a.reported, a.closed_id from alerts as a
		where a.tenant_id = $1 order by a.kind, a.name`, tenant)
}

// openAlert stores a new alert, unless there is one of its kind and name.
func (s *Postgres) openAlert(ctx context.Context, tenant domain.TenantID, a alert) error {
	_, err := pg.ExecUnder(ctx, s.db.App, tenant, "open an alert", `
		insert into alerts (tenant_id, kind, name, episode, data, opened_id) values ($1, $2, $3, $4, $5, $6)
		on conflict do nothing`, tenant, string(a.kind), a.name, a.episode, string(a.data), a.openedID)
	return err
}

// closeAlert records that an alert's condition has ended.
func (s *Postgres) closeAlert(ctx context.Context, tenant domain.TenantID, a alert) error {
	_, err := pg.ExecUnder(ctx, s.db.App, tenant, "close an alert", `
		update alerts as a set closed_id = $4
		where a.tenant_id = $1 and a.kind = $2 and a.name = $3 and a.episode = $5 and a.closed_id is null`,
		tenant, string(a.kind), a.name, domain.NewEventID(), a.episode)
	return err
}

// markAlert records that an alert was reported.
func (s *Postgres) markAlert(ctx context.Context, tenant domain.TenantID, a alert) error {
	_, err := pg.ExecUnder(ctx, s.db.App, tenant, "mark an alert as reported", `
		update alerts as a set reported = true where a.tenant_id = $1 and a.kind = $2 and a.name = $3 and a.opened_id = $4`,
		tenant, string(a.kind), a.name, a.openedID)
	return err
}

// deleteAlert removes an alert.
func (s *Postgres) deleteAlert(ctx context.Context, tenant domain.TenantID, a alert) error {
	_, err := pg.ExecUnder(ctx, s.db.App, tenant, "delete an alert", `
		delete from alerts as a where a.tenant_id = $1 and a.kind = $2 and a.name = $3 and a.opened_id = $4`,
		tenant, string(a.kind), a.name, a.openedID)
	return err
}

// ForgetMessages removes what a tenant's alerts quote of events and documents.
func (s *Postgres) ForgetMessages(ctx context.Context, tenant domain.TenantID) (int64, error) {
	return pg.ExecUnder(ctx, s.db.App, tenant, "remove the messages of alerts",
		"update alerts a set data = a.data - 'message' where a.tenant_id = $1 and a.data ? 'message'", tenant)
}
