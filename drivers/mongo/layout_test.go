package mongo_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/mongo"
	"github.com/manifold-es/manifold/drivers/mongo/mongotest"
)

// Processes with either setting work side by side: a collection keeps its original layout, and both read, save and
// remove in it. Queries return the same in both layouts.
func TestLayoutsWorkSideBySide(t *testing.T) {
	t.Parallel()
	url := mongotest.FerretDB(t)
	first, second := open(t, url), openAs(t, mongo.Config{URL: url, Layout: 2})
	defer first.Close()
	defer second.Close()
	tenant, other := domain.NewTenantID(), domain.NewTenantID()
	values := []string{`1`, `2.5`, `"text"`, `null`, `true`, `{"x": 1}`, `[1, 2]`, `[]`, `"` + strings.Repeat("ä", domain.MaxOrderedCharacters+1) + `"`}
	var documents []domain.Document
	add := func(data string) {
		documents = append(documents, domain.Document{ID: fmt.Sprintf("d%02d", len(documents)), Version: int64(len(documents) + 1), Data: []byte(data)})
	}
	for _, value := range append(values, values...) {
		add(`{"status": ` + value + `}`)
		add(`{"status": "on", "customer": {"name": ` + value + `}}`)
		add(`{"customer": [{"name": ` + value + `}]}`)
	}
	builds := make(map[int]domain.Build)
	for layout, maker := range map[int]*mongo.Driver{1: first, 2: second} {
		build := domain.Build{ProjectionID: domain.ProjectionID{Name: "orders"}, Number: int64(layout), Indexes: []string{"status", "customer.name"}}
		builds[layout] = build
		for _, driver := range []*mongo.Driver{maker, first, second} { // repeating it changes nothing
			if err := errors.Join(driver.CreateTemporaryTable(t.Context(), build), driver.IndexTable(t.Context(), build)); err != nil {
				t.Fatal(err)
			}
		}
		at := int64(0)
		save := func(driver *mongo.Driver, tenant domain.TenantID, from int64, batch drivers.Batch) {
			t.Helper()
			batch.From, batch.To = from, max(from, batch.To)
			if err := driver.Save(t.Context(), build, tenant, batch); err != nil {
				t.Fatal(err)
			}
		}
		for i, some := range slices.Collect(slices.Chunk(documents, 20)) {
			to := some[len(some)-1].Version
			save([]*mongo.Driver{first, second}[i%2], tenant, at, drivers.Batch{To: to, Upserts: some})
			at = to
		}
		save(first, tenant, at, drivers.Batch{To: at + 2, Upserts: []domain.Document{{ID: "d00", Version: at + 1, Data: []byte(`{"status": [7]}`)}, {ID: "d15", Version: at + 2, Data: []byte(`{"status": 7}`)}}})
		save(second, tenant, at+2, drivers.Batch{To: at + 3, Deletes: []drivers.Deletion{{ID: "d03", Version: at + 3}, {ID: "none", Version: at + 3}}})
		save(second, other, 0, drivers.Batch{To: 1, Upserts: documents[:1]})
		for _, driver := range []*mongo.Driver{first, second} {
			found := make(map[domain.TenantID]int64)
			for checkpoint, err := range driver.Checkpoints(t.Context(), build) {
				if err != nil {
					t.Fatal(err)
				}
				found[checkpoint.Tenant] = checkpoint.Position
			}
			if len(found) != 2 || found[tenant] != at+3 || found[other] != 1 {
				t.Errorf("layout %d: the checkpoints are %v", layout, found)
			}
			loaded, err := driver.Load(t.Context(), build, tenant, []string{"d00", "d03", "none", "never"})
			if err != nil || len(loaded) != 3 {
				t.Errorf("layout %d: Load gives %v, %v; want a document and two tombstones", layout, loaded, err)
			}
		}
	}

	for _, order := range [][]string{{"status"}, {"customer", "name"}} {
		for _, descending := range []bool{false, true} {
			var want string
			for layout, driver := range map[int]*mongo.Driver{1: second, 2: first} {
				query := domain.DocumentQuery{Order: []domain.Order{{Path: order, Descending: descending}}, Limit: 7}
				var ids []string
				for {
					page, err := driver.Query(t.Context(), builds[layout], tenant, query)
					if err != nil {
						t.Fatal(err)
					}
					for _, document := range page {
						ids = append(ids, document.ID)
					}
					if len(page) < query.Limit {
						break
					}
					after, err := domain.SortKeyOf(page[len(page)-1], query.Order)
					if err != nil {
						t.Fatal(err)
					}
					query.After = &after
				}
				got := strings.Join(ids, " ")
				if len(ids) != len(documents)-1 || want != "" && got != want {
					t.Errorf("by %v, descending %t, layout %d gives\n%s\nand the other one\n%s", order, descending, layout, got, want)
				}
				want = got
			}
		}
	}

	if err := first.DropTenant(t.Context(), builds[2], tenant); err != nil {
		t.Fatal(err)
	}
	if left, err := second.Count(t.Context(), builds[2], tenant, nil); err != nil || left != 0 {
		t.Errorf("a tenant that was dropped has %d documents, %v", left, err)
	}
	if left, err := second.Count(t.Context(), builds[2], other, nil); err != nil || left != 1 {
		t.Errorf("the other tenant has %d documents, %v; want 1", left, err)
	}
}

// Earlier releases look for the marker "table", and for rows with the tenant as text. In a collection of layout 2 they
// must find neither, so that they report that there is no table.
func TestEarlierReleasesFindNoTableOfLayout2(t *testing.T) {
	t.Parallel()
	url := mongotest.FerretDB(t)
	driver := openAs(t, mongo.Config{URL: url, Layout: 2})
	defer driver.Close()
	build, tenant := domain.Build{ProjectionID: domain.ProjectionID{Name: "orders"}, Number: 1, Indexes: []string{"status"}}, domain.NewTenantID()
	batch := drivers.Batch{To: 1, Upserts: []domain.Document{{ID: "a", Version: 1, Data: []byte(`{"status": "open"}`)}}, Deletes: []drivers.Deletion{{ID: "b", Version: 1}}}
	if err := errors.Join(driver.CreateTemporaryTable(t.Context(), build), driver.Save(t.Context(), build, tenant, batch)); err != nil {
		t.Fatal(err)
	}
	collection := database(t, url).Collection("orders.1")
	for name, filter := range map[string]bson.D{
		"the marker":                         {{Key: "_id", Value: "table"}},
		"rows of a tenant that is no binary": {{Key: "tenant", Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$type", Value: "binData"}}}}}},
	} {
		if n, err := collection.CountDocuments(t.Context(), filter); err != nil || n != 0 {
			t.Errorf("%s: %d, %v; want none", name, n, err)
		}
	}

	// A collection with the markers of both layouts, or with a newer layout, is refused.
	for _, c := range []struct {
		build  int64
		marker bson.D
		want   string
	}{
		{1, bson.D{{Key: "_id", Value: "table"}}, "two layouts"},
		{2, bson.D{{Key: "_id", Value: "layout"}, {Key: "layout", Value: 3}}, "layout 3"},
	} {
		if _, err := database(t, url).Collection(fmt.Sprint("orders.", c.build)).InsertOne(t.Context(), c.marker); err != nil {
			t.Fatal(err)
		}
		build.Number = c.build
		fresh := open(t, url)
		defer fresh.Close()
		if _, err := fresh.Query(t.Context(), build, tenant, domain.DocumentQuery{Limit: 1}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("Query gives %v, want an error that names %s", err, c.want)
		}
	}
}

// A collection of layout 2 refuses the rows and the marker of earlier releases.
func TestLayout2RefusesEarlierReleasesOnMongoDB(t *testing.T) {
	t.Parallel()
	url := mongotest.Real(t)
	driver := openAs(t, mongo.Config{URL: url, Layout: 2})
	defer driver.Close()
	build := domain.Build{ProjectionID: domain.ProjectionID{Name: "orders"}, Number: 1}
	for range 2 {
		if err := driver.CreateTemporaryTable(t.Context(), build); err != nil {
			t.Fatal(err)
		}
	}
	for _, row := range []bson.D{{{Key: "_id", Value: "table"}}, {{Key: "_id", Value: "x/1/a"}, {Key: "tenant", Value: domain.NewTenantID().String()}}} {
		if _, err := database(t, url).Collection("orders.1").InsertOne(t.Context(), row); err == nil {
			t.Errorf("the collection takes %v", row)
		}
	}
}
