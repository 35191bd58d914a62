package subjects_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/mongo"
	"github.com/manifold-es/manifold/drivers/mongo/mongotest"
	"github.com/manifold-es/manifold/drivers/sqlserver"
	"github.com/manifold-es/manifold/drivers/sqlserver/sqlservertest"
	"github.com/manifold-es/manifold/erasure/subjects"
	"github.com/manifold-es/manifold/rebuild"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// Each opens a database for documents, and returns what shows all that it stores.
var databases = map[string]func(t *testing.T) (driver drivers.Driver, rows func() string){
	"ferretdb": func(t *testing.T) (drivers.Driver, func() string) { return openMongo(t, mongotest.FerretDB(t)) },
	"mongo":    func(t *testing.T) (drivers.Driver, func() string) { return openMongo(t, mongotest.Real(t)) },
	"sqlserver": func(t *testing.T) (drivers.Driver, func() string) {
		address := sqlservertest.Database(t)
		driver, err := sqlserver.Open(t.Context(), sqlserver.Config{URL: address.String(), MaxConns: 4, Log: quiet})
		tablestest.Must(t, err)
		return driver, func() string { return sqlservertest.Rows(t, address) }
	},
}

func openMongo(t *testing.T, address string) (drivers.Driver, func() string) {
	t.Helper()
	driver, err := mongo.Open(t.Context(), mongo.Config{URL: address, MaxConns: 4, Log: quiet})
	tablestest.Must(t, err)
	return driver, func() string { return mongotest.Rows(t, address) }
}

// Documents in another database lose the person's data, too: those of live builds, of builds that are kept for a
// rollback, also of one that was moved away, and of a rebuild that is cancelled. Documents of other people stay.
func TestNothingIsLeftInOtherDatabases(t *testing.T) {
	t.Parallel()
	for name, open := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			driver, rows := open(t)
			t.Cleanup(driver.Close)
			p := start(t, nil, map[string]drivers.Driver{"other": driver})
			ctx, s := t.Context(), p.store
			tenant, bystander := tablestest.NewTenant(t, s), tablestest.NewTenant(t, s)
			shared := domain.ProjectionID{Owner: domain.Everyone, Name: "all"}
			own := domain.ProjectionID{Owner: tenant, Name: "own"}
			moved := domain.ProjectionID{Owner: tenant, Name: "moved"}
			for _, id := range []domain.ProjectionID{shared, own, moved} {
				_, err := p.catalog.Create(ctx, id.Owner, domain.Definition{
					Name: id.Name, Database: "other", Indexes: []string{"email"},
					On: map[string]string{"Registered": `{"email": event.data.email}`},
				}, "test")
				tablestest.Must(t, err)
			}
			const secret, others = "secret-of-the-person", "somebody-else"
			register := func(tenant domain.TenantID, stream, email, subject string) {
				tablestest.Append(t, s, tenant, domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: domain.Any, Events: []domain.NewEvent{{
					ID: domain.NewEventID(), Type: "Registered", Data: json.RawMessage(fmt.Sprintf(`{"email": %q}`, email)), Tags: []string{"subject:" + subject},
				}}}}})
			}
			register(tenant, "customer-1", secret, person)
			register(tenant, "customer-2", others, "bob")
			register(bystander, "customer-1", others, person)
			with := func(text string) (found []string) {
				for row := range strings.Lines(rows()) {
					if strings.Contains(row, text) {
						found = append(found, row)
					}
				}
				return found
			}
			has := func(tenant domain.TenantID, name, id, text string) bool {
				return strings.Contains(p.document(t, tenant, name, id), text)
			}
			until(t, "the documents", func() bool {
				return has(tenant, "all", "customer-2", others) && has(tenant, "own", "customer-2", others) && has(tenant, "moved", "customer-2", others) &&
					has(bystander, "all", "customer-1", others)
			})
			again := func(id domain.ProjectionID, request rebuild.Request, state domain.RebuildState) domain.Rebuild {
				t.Helper()
				request.By = "test"
				row, err := p.rebuilds.Start(ctx, id, request)
				tablestest.Must(t, err)
				until(t, "the rebuild of "+id.Name, func() bool {
					row, err = p.rebuilds.Get(ctx, id, row.ID)
					tablestest.Must(t, err)
					return row.State == state
				})
				return row
			}
			again(shared, rebuild.Request{}, domain.RebuildSwapped)
			again(own, rebuild.Request{}, domain.RebuildSwapped)
			again(moved, rebuild.Request{Database: "default"}, domain.RebuildSwapped)
			waiting := again(own, rebuild.Request{RebuildOptions: domain.RebuildOptions{Manual: true}}, domain.RebuildAwaitingApproval)
			// Two builds of all, three of own, of which one awaits approval, and the one from which moved was moved
			// away.
			if n := len(with(secret)); n < 6 { // with keys of documents, there are more rows
				t.Fatalf("before the erasure %d rows have the person's data: %s", n, rows())
			}

			e, _, err := p.subjects.Request(ctx, tenant, subjects.Request{Subject: person, Reason: "asked for it", By: subjects.Actor{ID: "a", By: "key a"}})
			tablestest.Must(t, err)
			running, stop := context.WithCancel(ctx)
			stopped := make(chan error, 1)
			go func() { stopped <- p.subjects.Run(running) }()
			until(t, "the erasure waits for the rebuild", func() bool {
				e, err = p.subjects.Erasure(ctx, tenant, e.ID)
				tablestest.Must(t, err)
				return strings.Contains(e.Problem, waiting.ID.String())
			})
			_, err = p.rebuilds.Cancel(ctx, own, waiting.ID)
			tablestest.Must(t, err)
			e = p.await(t, tenant, e.ID)
			stop()
			tablestest.Must(t, <-stopped)
			if left := with(secret); len(left) > 0 {
				t.Errorf("these rows have the person's data: %s", left)
			}
			if !has(tenant, "own", "customer-2", others) || !has(tenant, "all", "customer-2", others) || !has(bystander, "all", "customer-1", others) {
				t.Errorf("others have lost documents: %s", rows())
			}
		})
	}
}
