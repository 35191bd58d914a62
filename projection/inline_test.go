package projection_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/postgres"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/store"
	"github.com/manifold-es/manifold/upcasting"
)

// inlineFolds is what a store folds with as it appends.
type inlineFolds struct{ of *projection.Inline }

func (f *inlineFolds) Open(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) (store.InlineFolds, []domain.TenantBuild, []domain.TenantBuild, error) {
	folds, gone, behind, err := f.of.Open(ctx, tenant, head, builds)
	if err != nil {
		return nil, nil, nil, err
	}
	return folds, gone, behind, nil
}

func (f *inlineFolds) Mend(ctx context.Context, tenant domain.TenantID, head int64, builds []domain.TenantBuild) ([]domain.TenantBuild, error) {
	return f.of.Mend(ctx, tenant, head, builds)
}

// appender is a process that appends, and folds as it does.
type appender struct {
	store  *store.Store
	driver drivers.Driver
	inline *projection.Inline
}

// newAppender opens one on a database. url is where its app login connects.
func newAppender(t *testing.T, db pgtest.DB, url string) *appender {
	t.Helper()
	folds := &inlineFolds{}
	s, err := store.Open(t.Context(), store.Config{
		AppURL: url, SystemURL: db.URL(migrations.RoleSystem), RetentionURL: db.URL(migrations.RoleRetention), MaxConns: 8, Log: quiet, Inline: folds,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	d, err := postgres.Open(t.Context(), postgres.Config{URL: db.URL(migrations.RoleDocuments), MaxConns: 4, QueryConns: 1, Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	upcasters, err := upcasting.New(store.BySystem{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	folds.of = projection.NewInline(projection.InlineConfig{Store: s, Drivers: map[string]drivers.Driver{"default": d}, Upcasters: upcasters, Log: quiet})
	return &appender{store: s, driver: d, inline: folds.of}
}

var counting = domain.Definition{
	Name: "counting", Database: "default", Mode: domain.ModeInline, Key: "event.data.k",
	On: map[string]string{"Add": `{"n": doc.?n.orValue(0) + event.data.n, "last": event.position}`, "Drop": "null"},
}

func (a *appender) project(t *testing.T, owner domain.TenantID, definition domain.Definition) domain.Projection {
	t.Helper()
	number, err := a.store.NextBuild(t.Context(), owner)
	if err != nil {
		t.Fatal(err)
	}
	p := domain.Projection{ProjectionID: domain.ProjectionID{Owner: owner, Name: definition.Name}, Definition: projection.WithDefaults(definition), Build: number}
	if err := a.driver.CreateTemporaryTable(t.Context(), p.LiveBuild()); err != nil {
		t.Fatal(err)
	}
	if err := a.store.CreateProjection(t.Context(), p, "test"); err != nil {
		t.Fatal(err)
	}
	return p
}

func (a *appender) add(tenant domain.TenantID, texts ...string) (domain.Appended, error) {
	var some domain.StreamAppend
	some.Stream, some.Expected = "x-1", domain.Any
	for _, text := range texts {
		kind := "Add"
		if text[0] == '-' {
			kind, text = "Drop", text[1:]
		}
		some.Events = append(some.Events, domain.NewEvent{Type: kind, Data: json.RawMessage(text)})
	}
	return a.store.Append(context.Background(), tenant, domain.Append{Streams: []domain.StreamAppend{some}})
}

func TestInlineFirstAppend(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	a := newAppender(t, db, db.URL(migrations.RoleApp))
	tenant := domain.NewTenantID()
	if err := a.store.CreateTenant(t.Context(), domain.Tenant{ID: tenant, Name: "one"}); err != nil {
		t.Fatal(err)
	}
	shared := a.project(t, domain.Everyone, counting)
	own := counting
	own.Name = "own"
	ownP := a.project(t, tenant, own)
	if _, err := a.add(tenant, `{"k": "a", "n": 1}`, `{"k": "b", "n": 2e1}`, `{"k": "a", "n": 3}`); err != nil {
		t.Fatal(err)
	}
	if _, err := a.add(tenant, `-{"k": "b"}`, `{"k": "a", "n": "text"}`); err == nil {
		t.Fatal("an event that cannot be folded was appended")
	} else {
		t.Log(err)
	}
	if _, err := a.add(tenant, `-{"k": "b"}`, `{"k": "c", "n": 1}`); err != nil {
		t.Fatal(err)
	}
	for _, p := range []domain.Projection{shared, ownP} {
		position, err := a.driver.Checkpoint(t.Context(), p.LiveBuild(), tenant)
		if err != nil || position != 5 {
			t.Fatalf("%s: checkpoint %d, %v", p.Name, position, err)
		}
		documents, err := a.driver.Query(t.Context(), p.LiveBuild(), tenant, domain.DocumentQuery{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, d := range documents {
			got += fmt.Sprintf("%s@%d %s\n", d.ID, d.Version, d.Data)
		}
		want := "a@3 {\"n\": 4, \"last\": 3}\nc@5 {\"n\": 1, \"last\": 5}\n"
		if got != want {
			t.Errorf("%s has\n%s, want\n%s", p.Name, got, want)
		}
	}
	_ = time.Now
}
