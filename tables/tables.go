// Package tables opens Manifold's own database, and makes the owner of each of its tables: the log, tenants, keys,
// definitions and rebuilds, groups, webhooks, retention. Start with Open. Each table is described, and its SQL written,
// in the package that owns it.
package tables

import (
	"context"
	"log/slog"
	"time"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/atrest"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/delivery/report"
	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/erasure"
	"github.com/manifold-es/manifold/erasure/subjects"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/limits"
	"github.com/manifold-es/manifold/members"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/projection/registry"
	"github.com/manifold-es/manifold/projection/totals"
	"github.com/manifold-es/manifold/retention"
	"github.com/manifold-es/manifold/schema"
	"github.com/manifold-es/manifold/seal"
	"github.com/manifold-es/manifold/signing"
	"github.com/manifold-es/manifold/telemetry/tracing"
	"github.com/manifold-es/manifold/tenant"
	"github.com/manifold-es/manifold/usage"
)

// Config says how to reach the database, and configures the log. The URLs are pgx connection strings, one for each
// login.
type Config struct {
	AppURL       string
	SystemURL    string
	RetentionURL string
	MaxConns     int // of the app login; 0: 16. System and retention get a quarter of it, at least two
	Log          *slog.Logger
	Member       domain.MemberID // this process, see pg.Config; zero: none
	Connected    func()          // called when any login has opened a connection; see pg.Config

	Replicas []string // URLs of replicas; see pg.Config

	Secrets *atrest.Keys // encrypts secrets; nil: they are stored as they are

	QueueBytes, TotalQueueBytes int64         // see eventlog.Config
	ReplicaLag                  time.Duration // see eventlog.Config
	AppendTimeout               time.Duration // see eventlog.Config
	Inline                      eventlog.Inline
	Observer                    eventlog.Observer
	Tracer                      *tracing.Tracer // see eventlog.Config
}

// The owners' types, under names by which Tables can embed them.
type (
	AggregateTables = aggregate.Postgres
	KeyTables       = auth.Postgres
	ErasureTables   = erasure.Postgres
	SubjectTables   = subjects.Postgres
	MemberTables    = members.Postgres
	RetentionTables = retention.Postgres
	SchemaTables    = schema.Postgres
	GroupTables     = group.Postgres
	LimitTables     = limits.Postgres
	UsageTables     = usage.Postgres
	ReportTables    = report.Postgres
	TenantTables    = tenant.Tenants
	TotalTables     = totals.Postgres
	WebhookTables   = webhook.Postgres
	SigningKeys     = signing.Keys
	SealTables      = seal.Postgres
)

// Tables has the methods of all owners. All of them may be called concurrently.
type Tables struct {
	*pg.DB
	*eventlog.Log
	*registry.Registry
	*TenantTables
	*AggregateTables
	*KeyTables
	*ErasureTables
	*SubjectTables
	*MemberTables
	*RetentionTables
	*SchemaTables
	*GroupTables
	*LimitTables
	*UsageTables
	*ReportTables
	*TotalTables
	*WebhookTables
	*SigningKeys
	*SealTables
}

// Open connects with each login. The caller must close the Tables. If Open fails, pg.Absence says whether waiting may
// help.
func Open(ctx context.Context, c Config) (*Tables, error) {
	db, err := pg.Open(ctx, pg.Config{
		AppURL: c.AppURL, SystemURL: c.SystemURL, RetentionURL: c.RetentionURL, MaxConns: c.MaxConns, Log: c.Log, Member: c.Member, Connected: c.Connected, Replicas: c.Replicas,
	})
	if err != nil {
		return nil, err
	}
	t := &Tables{DB: db, TenantTables: tenant.New(db), AggregateTables: aggregate.NewPostgres(db), SchemaTables: schema.NewPostgres(db), KeyTables: auth.NewPostgres(db), MemberTables: members.NewPostgres(db)}
	t.Log = eventlog.New(db, eventlog.Config{
		QueueBytes: c.QueueBytes, TotalQueueBytes: c.TotalQueueBytes, AppendTimeout: c.AppendTimeout, Inline: c.Inline, Observer: c.Observer, Tracer: c.Tracer, ReplicaLag: c.ReplicaLag,
	})
	t.Registry = registry.New(db, t.Log)
	t.GroupTables = group.NewPostgres(db)
	t.LimitTables = limits.NewPostgres(db)
	t.UsageTables = usage.NewPostgres(db)
	t.ReportTables = report.NewPostgres(db)
	t.TotalTables = totals.NewPostgres(db)
	t.WebhookTables = webhook.NewPostgres(db, t.GroupTables, c.Secrets)
	t.SigningKeys = signing.New(db, c.Secrets)
	t.SealTables = seal.NewPostgres(db, t.SigningKeys)
	t.RetentionTables = retention.NewPostgres(db, t.Registry, t.GroupTables, t.SealTables)
	t.SubjectTables = subjects.NewPostgres(db)
	t.ErasureTables = erasure.NewPostgres(db, t.Registry, t.WebhookTables)
	return t, nil
}

// Close refuses new appends, waits for those in progress, and closes all connections.
func (t *Tables) Close() {
	t.Log.Close()
	t.GroupTables.Close()
	t.DB.Close()
}

// SubjectOwners returns what removes, from each table that may quote events, what it has of a person's data. The
// decision record 0115 goes through all tables.
func (t *Tables) SubjectOwners() []subjects.Owner {
	byPosition := func(of func(context.Context, domain.TenantID, []int64) (int64, error)) func(context.Context, domain.TenantID, []int64, []string) (int64, error) {
		return func(ctx context.Context, tenant domain.TenantID, positions []int64, _ []string) (int64, error) {
			return of(ctx, tenant, positions)
		}
	}
	return []subjects.Owner{
		{Name: "snapshots", Events: t.ForgetSnapshots},
		{Name: "outcomes of commands", Tenant: t.ForgetOutcomes},
		{Name: "texts of faults, parked documents and rebuilds", Tenant: t.ForgetTexts},
		{Name: "reasons of dead letters and retries", Events: byPosition(t.ForgetReasons)},
		{Name: "attempts of webhooks", Events: byPosition(t.ForgetAttempts)},
		{Name: "messages of alerts", Tenant: t.ForgetMessages},
		{Name: "totals", Tenant: t.TotalTables.Forget},
		{Name: "failures of retaggings", Tenant: t.ForgetFailures},
	}
}
