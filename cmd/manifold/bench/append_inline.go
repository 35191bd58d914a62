package bench

import (
	"context"
	"fmt"
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

// inline are the folds that a store applies during appends, as in a process of the service.
type inline struct{ of *projection.Inline }

func (i *inline) Open(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) (eventlog.InlineFolds, []domain.Statement, []domain.TenantBuild, error) {
	folds, checkpoints, gone, err := i.of.Open(ctx, tenant, head, builds)
	if err != nil {
		return nil, nil, nil, err
	}
	return folds, checkpoints, gone, nil
}

func (i *inline) CatchUp(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) ([]domain.TenantBuild, error) {
	return i.of.CatchUp(ctx, tenant, head, builds)
}

// openInline opens a store whose appends fold into f.inline shared projections, which it creates. close closes both.
func openInline(ctx context.Context, f *flags, super string) (_ *tables.Tables, closeAll func(), _ error) {
	folds := &inline{}
	config := storeConfig(super)
	config.Inline = folds
	opened, err := tables.Open(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	driver, err := postgres.Open(ctx, postgres.Config{URL: asRole(super, migrations.RoleDocuments)})
	if err != nil {
		opened.Close()
		return nil, nil, err
	}
	closeAll = func() {
		opened.Close()
		driver.Close()
	}
	quiet, databases := slog.New(slog.DiscardHandler), map[string]drivers.Driver{folding.DefaultDatabase: driver}
	folds.of = projection.NewInline(projection.InlineConfig{Store: projection.Store{Log: opened.Log, Registry: opened.Registry, Tenants: opened.TenantTables}, Drivers: databases, Log: quiet})
	catalog := projection.NewCatalog(projection.CatalogConfig{
		Store: projection.Store{Log: opened.Log, Registry: opened.Registry, Tenants: opened.TenantTables}, Drivers: databases, Progress: projection.NewProgress(), LogIn: folding.DefaultDatabase, Log: quiet,
	})
	for n := range f.inline {
		definition := domain.Definition{
			Name: fmt.Sprintf("orders-%d", n+1), Mode: domain.ModeInline,
			On: map[string]string{"*": `{"customer": event.data.customer, "events": doc.?events.orValue(0) + 1,
				"total": doc.?total.orValue(0) + event.data.price * event.data.quantity, "city": event.data.address.city}`},
		}
		if _, err := catalog.Create(ctx, domain.Everyone, definition, "benchmark"); err != nil {
			closeAll()
			return nil, nil, err
		}
	}
	return opened, closeAll, nil
}
