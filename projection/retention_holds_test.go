package projection_test

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// RetentionHolds returns what is stored: by tenant, by the source's categories, and by the folded types.
func TestRetentionHolds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant, other := b.tenant(t), b.tenant(t)
	p := b.process(options{})
	create := func(owner domain.TenantID, definition domain.Definition) domain.Projection {
		t.Helper()
		created, err := p.catalog.Create(t.Context(), owner, definition, "test")
		if err != nil {
			t.Fatal(err)
		}
		return created
	}
	holds := func(tenant domain.TenantID, category string) []domain.RetentionHold {
		t.Helper()
		all, err := p.catalog.RetentionHolds(t.Context(), tenant, category)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(all, func(a, b domain.RetentionHold) int { return cmp.Compare(a.Name, b.Name) })
		return all
	}
	want := func(when string, got []domain.RetentionHold, want ...domain.RetentionHold) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: held by %+v; want %+v", when, got, want)
		}
	}
	at := func(name string, position int64) domain.RetentionHold {
		return domain.RetentionHold{Kind: domain.HoldProjection, Name: name, Position: position}
	}
	definition := func(name string, mode domain.Mode, categories ...string) domain.Definition {
		return domain.Definition{Name: name, Mode: mode, Source: domain.Source{Categories: categories}, On: map[string]string{"Add": `{"n": event.data.n}`}}
	}
	for _, owner := range []domain.TenantID{tenant, other} {
		for range 3 {
			b.append(t, owner, "order-1", "Add", `{"n": 1}`)
		}
		b.append(t, owner, "order-1", "Ignored", `{}`)
		b.append(t, owner, "invoice-1", "Add", `{"n": 1}`)
	}
	create(domain.Everyone, definition("all", domain.ModeAsync))
	create(tenant, definition("live", domain.ModeLive, "order"))
	create(tenant, definition("own", domain.ModeAsync, "order"))
	want("at first", holds(tenant, "order"), at("all", 0), at("live", 0), at("own", 0))
	want("another category", holds(tenant, "invoice"), at("all", 0))
	want("another tenant", holds(other, "order"), at("all", 0))

	// Behind what it folds it needs no more, whether or not its checkpoint is saved there.
	stop := p.start(t, b)
	for _, name := range []string{"all", "own"} {
		if _, err := p.catalog.CatchUp(t.Context(), tenant, name, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	want("behind all", holds(tenant, "order"), at("live", 0))
	stop()
	b.append(t, tenant, "order-1", "Ignored", `{}`)
	want("behind an event that is none of theirs", holds(tenant, "order"), at("live", 0))
	b.append(t, tenant, "order-1", "Add", `{"n": 1}`)
	got := holds(tenant, "order")
	if len(got) != 3 || got[0].Position < 3 || got[0].Position > 6 || got[2].Position < 3 || got[2].Position > 6 {
		t.Errorf("before an event that is theirs: %+v", got)
	}

	// A reset starts again, and a retired build holds nothing.
	if _, err := p.catalog.Reset(t.Context(), tenant, "own", "test", false); err != nil {
		t.Fatal(err)
	}
	if got := holds(tenant, "order"); len(got) != 3 || got[2] != at("own", 0) {
		t.Errorf("reset: %+v", got)
	}
	if err := p.catalog.Delete(t.Context(), tenant, "own", "test"); err != nil {
		t.Fatal(err)
	}
	if got := holds(tenant, "order"); len(got) != 2 {
		t.Errorf("deleted: %+v", got)
	}

	// A projection with an unknown checkpoint holds everything.
	down := b.process(options{driver: downDriver{b.driver}})
	all, err := down.catalog.RetentionHolds(t.Context(), tenant, "order")
	slices.SortFunc(all, func(a, b domain.RetentionHold) int { return cmp.Compare(a.Name, b.Name) })
	if err != nil || len(all) != 2 || all[0].Position != 0 || all[0].Problem == "" || all[1].Problem != "" {
		t.Errorf("with a database that is down: %+v, %v", all, err)
	}
	cut, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.catalog.RetentionHolds(cut, tenant, "order"); !errors.Is(err, context.Canceled) {
		t.Errorf("cut off: %v", err)
	}
}

// downDriver is a database that cannot return checkpoints.
type downDriver struct{ drivers.Driver }

func (downDriver) Checkpoint(context.Context, domain.Build, domain.TenantID) (int64, error) {
	return 0, domain.Errorf(domain.CodeUnavailable, "", "the database is down")
}
