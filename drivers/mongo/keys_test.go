package mongo_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	mongodb "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/mongo"
	"github.com/manifold-es/manifold/drivers/mongo/mongotest"
)

// keyed returns a build of a tenant's own projection that declares indexes, and the same as an earlier release sees it.
func keyed(tenant domain.TenantID) (build, plain domain.Build) {
	build = domain.Build{ProjectionID: domain.ProjectionID{Owner: tenant, Name: "own"}, Number: 1, Indexes: []string{"a", "b.c"}}
	plain = build
	plain.Indexes = nil
	return build, plain
}

// Rows have the keys of their documents as they are stored, and those of removed documents have none.
func TestRowsHaveKeys(t *testing.T) {
	t.Parallel()
	url := mongotest.FerretDB(t)
	driver := open(t, url)
	defer driver.Close()
	driver.UseAllKeys()
	tenant := domain.NewTenantID()
	build, plain := keyed(tenant)
	long := strings.Repeat("ä", domain.MaxOrderedCharacters)
	documents := map[string][2]string{ // id -> data, keys
		"int":    {`{"a": 1, "b": {"c": -1}}`, "23ff0000000000000 1c00fffffffffffff"},
		"text":   {`{"a": "x", "b": {"c": ""}}`, "3x 3"},
		"none":   {`{"a": null}`, "0 0"},
		"bool":   {`{"a": true, "b": {"c": false}}`, "5 4"},
		"lists":  {`{"a": [1], "b": [{"c": 1}]}`, "6 0"},
		"object": {`{"a": {}, "b": {"c": {}}}`, "6 6"},
		"long":   {`{"a": "` + long + `ä", "b": {"c": "` + long + `"}}`, "6 3" + long},
	}
	batch := drivers.Batch{To: 1}
	for id, document := range documents {
		batch.Upserts = append(batch.Upserts, domain.Document{ID: id, Version: 1, Data: []byte(document[0])})
	}
	save := func(build domain.Build, batch drivers.Batch) {
		t.Helper()
		if err := driver.Save(t.Context(), build, tenant, batch); err != nil {
			t.Fatal(err)
		}
	}
	save(build, batch)
	expect := func(want map[string]string) {
		t.Helper()
		cursor, err := database(t, url).Collection("documents").Find(t.Context(), bson.D{{Key: "tenant", Value: tenant.String()}, {Key: "id", Value: bson.D{{Key: "$ne", Value: ""}}}})
		if err != nil {
			t.Fatal(err)
		}
		var rows []bson.M
		if err := cursor.All(t.Context(), &rows); err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			id := row["id"].(string)
			if keys := fmt.Sprint(row["key1"], " ", row["key2"]); keys != want[id] {
				t.Errorf("%s has the keys %s, want %s", id, keys, want[id])
			}
			delete(want, id)
		}
		if len(want) > 0 {
			t.Errorf("these rows are missing: %v", want)
		}
	}
	want := make(map[string]string)
	for id, document := range documents {
		want[id] = document[1]
	}
	expect(want)

	save(build, drivers.Batch{From: 1, To: 2, Upserts: []domain.Document{{ID: "int", Version: 2, Data: []byte(`{"a": "now a text"}`)}}, Deletes: []drivers.Deletion{{ID: "text", Version: 2}}})
	save(plain, drivers.Batch{From: 2, To: 3, Upserts: []domain.Document{{ID: "none", Version: 3, Data: []byte(`{"a": 1}`)}}, Deletes: []drivers.Deletion{{ID: "bool", Version: 3}}})
	expect(map[string]string{"int": "3now a text 0", "text": " <nil>", "none": "<nil> <nil>", "bool": "5 4", "lists": "6 0", "object": "6 6", "long": "6 3" + long})
	query := domain.DocumentQuery{Limit: 10, Order: []domain.Order{{Path: domain.Path{"a"}}}}
	page, err := driver.Query(t.Context(), build, tenant, query)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, document := range page {
		ids = append(ids, document.ID)
	}
	if want := []string{"none", "int", "lists", "long", "object"}; !slices.Equal(ids, want) {
		t.Errorf("Query gives %q, want %q", ids, want)
	}
}

// A page in the order of a declared path is read by the index of its place, unless an earlier release has saved a
// document of the build.
func TestPagesAreReadByKeys(t *testing.T) {
	t.Parallel()
	url := mongotest.FerretDB(t)
	driver := open(t, url)
	defer driver.Close()
	driver.UseAllKeys()
	tenant := domain.NewTenantID()
	build, plain := keyed(tenant)
	save := func(build domain.Build, batch drivers.Batch) {
		t.Helper()
		if err := driver.Save(t.Context(), build, tenant, batch); err != nil {
			t.Fatal(err)
		}
	}
	sort := regexp.MustCompile(`"sort": \{([^}]*)\}`)
	expect := func(what, want string, query domain.DocumentQuery) {
		t.Helper()
		query.Limit = 5
		explanation, err := driver.Explain(t.Context(), build, tenant, query)
		found := sort.FindStringSubmatch(explanation.Statement)
		if err != nil || len(found) < 2 || strings.Join(strings.Fields(found[1]), " ") != want {
			t.Errorf("%s: Explain gives %s, %v; want the order %s", what, explanation.Statement, err, want)
		}
		if byKey := strings.HasPrefix(want, `"key`); byKey != strings.Contains(explanation.Statement, `"build"`) {
			t.Errorf("%s: Explain gives %s; the build restricts the pages by keys alone", what, explanation.Statement)
		}
	}
	a, c := domain.Path{"a"}, domain.Path{"b", "c"}
	save(build, drivers.Batch{To: 1, Upserts: []domain.Document{{ID: "x", Version: 1, Data: []byte(`{"a": 1}`)}, {ID: "y", Version: 1, Data: []byte(`{"a": 2}`)}}, Deletes: []drivers.Deletion{{ID: "z", Version: 1}}})
	expect("ascending", `"key2": 1, "_id": 1`, domain.DocumentQuery{Order: []domain.Order{{Path: c}}})
	expect("descending", `"key1": -1, "_id": -1`, domain.DocumentQuery{Order: []domain.Order{{Path: a, Descending: true}}})
	expect("after a place", `"key1": 1, "_id": 1`, domain.DocumentQuery{Order: []domain.Order{{Path: a}}, After: &domain.SortKey{ID: "x", Values: []domain.Scalar{{Kind: domain.ScalarInt, Int: 1}}}})
	expect("two paths", `"document.a": 1, "document.b.c": 1, "_id": 1`, domain.DocumentQuery{Order: []domain.Order{{Path: a}, {Path: c}}})
	expect("another path", `"document.d": 1, "_id": 1`, domain.DocumentQuery{Order: []domain.Order{{Path: domain.Path{"d"}}}})
	expect("no order", `"_id": 1`, domain.DocumentQuery{})
	save(plain, drivers.Batch{From: 1, To: 2, Deletes: []drivers.Deletion{{ID: "y", Version: 2}}})
	expect("an earlier release has removed a document", `"key1": 1, "_id": 1`, domain.DocumentQuery{Order: []domain.Order{{Path: a}}})
	save(plain, drivers.Batch{From: 2, To: 3, Upserts: []domain.Document{{ID: "y", Version: 3, Data: []byte(`{"a": 2}`)}}})
	expect("an earlier release has saved a document", `"document.a": 1, "_id": 1`, domain.DocumentQuery{Order: []domain.Order{{Path: a}}})
	save(build, drivers.Batch{From: 3, To: 4, Upserts: []domain.Document{{ID: "y", Version: 4, Data: []byte(`{"a": 2}`)}}})
	expect("it was saved again", `"key1": 1, "_id": 1`, domain.DocumentQuery{Order: []domain.Order{{Path: a}}})
}

// A page in the order of a declared path examines about as many documents as it has, and sorts none.
func TestPagesByKeysReadLittleOnMongoDB(t *testing.T) {
	t.Parallel()
	url := mongotest.Real(t)
	driver := open(t, url)
	defer driver.Close()
	tenant := domain.NewTenantID()
	build, _ := keyed(tenant)
	batch := drivers.Batch{To: 1}
	for i := range 10_000 {
		batch.Upserts = append(batch.Upserts, domain.Document{ID: fmt.Sprintf("d%05d", i), Version: 1, Data: fmt.Appendf(nil, `{"a": %d, "b": {"c": "x%d"}}`, i*7919%10_000, i)})
	}
	if err := driver.Save(t.Context(), build, tenant, batch); err != nil {
		t.Fatal(err)
	}
	driver.AwaitIndexes()
	indexFields(t, url, "key16")
	for _, path := range []domain.Path{{"a"}, {"b", "c"}} {
		for _, descending := range []bool{false, true} {
			for _, after := range []*domain.SortKey{nil, {ID: "d", Values: []domain.Scalar{{Kind: domain.ScalarInt, Int: 5_000}}}} {
				query := domain.DocumentQuery{Limit: 50, Order: []domain.Order{{Path: path, Descending: descending}}, After: after}
				explanation, err := driver.Explain(t.Context(), build, tenant, query)
				if err != nil {
					t.Fatal(err)
				}
				var command bson.D
				if err := bson.UnmarshalExtJSON([]byte(explanation.Statement), false, &command); err != nil {
					t.Fatal(err)
				}
				var answer struct {
					ExecutionStats struct {
						Examined int `bson:"totalDocsExamined"`
						Keys     int `bson:"totalKeysExamined"`
					} `bson:"executionStats"`
				}
				err = database(t, url).RunCommand(t.Context(), bson.D{{Key: "explain", Value: command}, {Key: "verbosity", Value: "executionStats"}}).Decode(&answer)
				if stats := answer.ExecutionStats; err != nil || stats.Examined > 200 || stats.Keys > 200 {
					t.Errorf("by %v, descending %t, after %v: %+v, %v; plan %s", path, descending, after, stats, err, explanation.Plan)
				}
				var plan any
				if err := json.Unmarshal(explanation.Plan, &plan); err != nil || strings.Contains(fmt.Sprint(plan), "stage:SORT ") {
					t.Errorf("by %v, descending %t, after %v: the plan sorts: %s, %v", path, descending, after, explanation.Plan, err)
				}
			}
		}
	}
}

// The common collection has indexes of keys, and keys are used only if theirs exists. FerretDB has only that of key1,
// since the others are partial.
func TestOnlyKeysWithAnIndexAreUsed(t *testing.T) {
	t.Parallel()
	url := mongotest.FerretDB(t)
	tenant := domain.NewTenantID()
	build, _ := keyed(tenant)
	expect := func(what string, driver *mongo.Driver, path domain.Path, want string) {
		t.Helper()
		explanation, err := driver.Explain(t.Context(), build, tenant, domain.DocumentQuery{Limit: 5, Order: []domain.Order{{Path: path}}})
		if err != nil || !strings.Contains(explanation.Statement, want) {
			t.Errorf("%s: Explain gives %s, %v; want the order by %s", what, explanation.Statement, err, want)
		}
	}
	driver := open(t, url)
	defer driver.Close()
	driver.AwaitIndexes()
	want := bson.D{{Key: "tenant", Value: int32(1)}, {Key: "build", Value: int32(1)}, {Key: "key1", Value: int32(1)}, {Key: "_id", Value: int32(1)}}
	var got bson.D
	if err := bson.Unmarshal(indexFields(t, url, "key1"), &got); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the index is on %v, %v; want %v", got, err, want)
	}
	expect("with an index", driver, domain.Path{"a"}, `"key1": 1`)
	expect("without an index", driver, domain.Path{"b", "c"}, `"document.b.c": 1`)

	if err := database(t, url).Collection("documents").Indexes().DropOne(t.Context(), "key1"); err != nil {
		t.Fatal(err)
	}
	other := mongodb.IndexModel{Keys: bson.D{{Key: "other", Value: 1}}, Options: options.Index().SetName("key1")}
	if _, err := database(t, url).Collection("documents").Indexes().CreateOne(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	failed := open(t, url)
	defer failed.Close()
	failed.AwaitIndexes()
	expect("after the creation failed", failed, domain.Path{"a"}, `"document.a": 1`)
}

// indexFields returns the fields of an index of the common collection.
func indexFields(t *testing.T, url, name string) bson.Raw {
	t.Helper()
	specifications, err := database(t, url).Collection("documents").Indexes().ListSpecifications(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, specification := range specifications {
		if specification.Name == name {
			return specification.KeysDocument
		}
	}
	t.Fatalf("there is no index %s", name)
	return nil
}
