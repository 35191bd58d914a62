package mongo_test

import (
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/mongo"
	"github.com/manifold-es/manifold/drivers/mongo/mongotest"
)

// The indexes of a partitioned build begin with tenant and partition, and none has two fields at which a document may
// have lists. Queries of one partition use the indexed field, even in a process whose build names no partition.
func TestPartitionedIndexes(t *testing.T) {
	t.Parallel()
	url := mongotest.FerretDB(t)
	driver := open(t, url)
	defer driver.Close()
	build := domain.Build{ProjectionID: domain.ProjectionID{Name: "orders"}, Number: 1, Indexes: []string{"status", "customer.name", "customer.id"}, PartitionBy: "customer.id"}
	if err := driver.CreateTemporaryTable(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	if err := driver.IndexTable(t.Context(), build); err != nil {
		t.Fatal(err)
	}
	cursor, err := database(t, url).Collection("orders.1").Indexes().List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var indexes []struct{ Key bson.D }
	if err := cursor.All(t.Context(), &indexes); err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, index := range indexes {
		var names []string
		for _, field := range index.Key {
			names = append(names, field.Key)
		}
		keys = append(keys, strings.Join(names, " "))
	}
	for _, want := range []string{"tenant partition _id", "tenant partition document.status _id", "tenant partition document.customer.name _id", "tenant partition document.customer.id _id"} {
		if !slices.Contains(keys, want) {
			t.Errorf("there is no index on %s, but on %q", want, keys)
		}
	}
	for _, key := range keys {
		if strings.Count(key, "document.") > 1 || strings.Contains(key, "document.") && !strings.HasPrefix(key, "tenant partition ") {
			t.Errorf("there is an index on %s", key)
		}
	}

	forgetful := build
	forgetful.PartitionBy, forgetful.Indexes = "", nil
	other := open(t, url)
	defer other.Close()
	tenant := domain.NewTenantID()
	where := domain.Compare{Path: domain.Path{"customer", "id"}, Comparison: domain.Equal, Value: domain.Scalar{Kind: domain.ScalarText, Text: "c-17"}}
	for i, save := range []struct {
		driver *mongo.Driver
		build  domain.Build
	}{{driver, build}, {other, forgetful}} {
		document := domain.Document{ID: string(rune('a' + i)), Version: int64(i + 1), Data: []byte(`{"customer": {"id": "c-17"}}`)}
		if err := save.driver.Save(t.Context(), save.build, tenant, drivers.Batch{From: int64(i), To: int64(i + 1), Upserts: []domain.Document{document}}); err != nil {
			t.Fatal(err)
		}
	}
	for _, driver := range []*mongo.Driver{driver, other} {
		for _, build := range []domain.Build{build, forgetful} {
			query := domain.DocumentQuery{Where: domain.And{where, domain.Has{Path: domain.Path{"customer"}}}, Limit: 5}
			found, err := driver.Query(t.Context(), build, tenant, query)
			if err != nil || len(found) != 2 {
				t.Errorf("Query gives %v, %v; want two documents", found, err)
			}
			explanation, err := driver.Explain(t.Context(), build, tenant, query)
			if err != nil || !strings.Contains(explanation.Statement, `"partition": "\"c-17\""`) {
				t.Errorf("Explain gives %s, %v; want the partition in it", explanation.Statement, err)
			}
		}
	}
}
