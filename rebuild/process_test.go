package rebuild_test

import (
	"context"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/rebuild"
)

// mortal sets up a process on the same databases, behind a separate network. The caller must call end when the process
// has stopped.
func (v *service) mortal(t *testing.T, config rebuild.Config) (process *service, network *pgtest.Network, end func()) {
	t.Helper()
	m := pgtest.NewNetwork(t, v.db)
	url := func(role migrations.Role) string { return m.URL(t, v.db, role) }
	p := *v
	p.store = openStore(t, url)
	driver := openDriver(t, url(migrations.RoleDocuments))
	p.drivers = map[string]drivers.Driver{"default": driver}
	return p.process(config), m, func() {
		m.Cut()
		p.store.Close()
		driver.Close()
		m.End()
	}
}

// dies runs a process that is killed after a number of messages to its databases, until it is dead or the rebuild has
// ended. It calls meanwhile once the process is running.
func (v *service) dies(t *testing.T, messages int, of domain.Rebuild, config rebuild.Config, meanwhile func()) {
	t.Helper()
	worker, network, end := v.mortal(t, config)
	defer end()
	network.CutAfter(messages)
	stop := worker.work(t)
	meanwhile()
	select {
	case <-network.Dead():
	case <-v.over(t, of):
	}
	stop()
}

// cutsOnSave is a driver whose process is killed after its first save.
type cutsOnSave struct {
	drivers.Driver
	network *pgtest.Network
}

func (c cutsOnSave) Save(ctx context.Context, build domain.Build, tenant domain.TenantID, batch drivers.Batch) error {
	err := c.Driver.Save(ctx, build, tenant, batch)
	if err == nil {
		c.network.Cut()
	}
	return err
}
