package bench

import (
	"context"
	"log/slog"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/tables"
)

// engine is what a process of the service uses to append and fold, without HTTP.
type engine struct {
	*tables.Tables
	driver   *postgres.Driver
	store    projection.Store
	drivers  map[string]drivers.Driver
	progress *projection.Progress
	catalog  *projection.Catalog
}

func (db *database) openEngine(ctx context.Context) (*engine, error) {
	quiet, hook := slog.New(slog.DiscardHandler), &inlineHook{}
	opened, err := tables.Open(ctx, tables.Config{
		AppURL:       db.as(migrations.RoleApp),
		SystemURL:    db.as(migrations.RoleSystem),
		RetentionURL: db.as(migrations.RoleRetention),
		Inline:       hook,
		Log:          quiet,
	})
	if err != nil {
		return nil, err
	}
	driver, err := postgres.Open(ctx, postgres.Config{URL: db.as(migrations.RoleDocuments)})
	if err != nil {
		opened.Close()
		return nil, err
	}
	e := &engine{
		Tables: opened, driver: driver, progress: projection.NewProgress(),
		store:   projection.Store{Log: opened.Log, Registry: opened.Registry, Tenants: opened.TenantTables},
		drivers: map[string]drivers.Driver{folding.DefaultDatabase: driver},
	}
	hook.Inline = projection.NewInline(projection.InlineConfig{Store: e.store, Drivers: e.drivers, Log: quiet})
	e.catalog = projection.NewCatalog(projection.CatalogConfig{
		Store: e.store, Drivers: e.drivers, Progress: e.progress, LogDatabase: folding.DefaultDatabase, Log: quiet,
	})
	return e, nil
}

func (e *engine) close() {
	e.Tables.Close()
	e.driver.Close()
}

// inlineHook lets appends fold into inline projections. The tables are opened before there is anything to fold with.
type inlineHook struct{ *projection.Inline }

// Open implements eventlog.Inline.
func (h *inlineHook) Open(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) (eventlog.InlineFolds, []domain.Statement, []domain.TenantBuild, error) {
	folds, checkpoints, gone, err := h.Inline.Open(ctx, tenant, head, builds)
	if err != nil {
		return nil, nil, nil, err // without a nil pointer in the interface
	}
	return folds, checkpoints, gone, nil
}
