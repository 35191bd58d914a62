package mongo_test

import (
	"flag"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	mongodb "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/drivertest"
	"github.com/manifold-es/manifold/drivers/mongo"
	"github.com/manifold-es/manifold/drivers/mongo/mongotest"
)

// fewChecks is how often a property is drawn by default: each time takes FerretDB a second.
const fewChecks = "8"

// atOnce is how many tests run at the same time. Most wait for the server or for the client library, which looks for a
// lost server twice a second.
const atOnce = "6"

func TestMain(m *testing.M) {
	flag.Parse()
	for name, value := range map[string]string{"rapid.checks": fewChecks, "test.parallel": atOnce} {
		asked := false
		flag.Visit(func(f *flag.Flag) { asked = asked || f.Name == name })
		if asked {
			continue
		}
		if err := flag.Set(name, value); err != nil {
			panic(err) // the flag has been renamed
		}
	}
	mongo.SetTimes(5 * time.Minute) // on a busy machine, FerretDB takes long
	mongotest.Main(m)
}

func open(t testing.TB, url string) *mongo.Driver {
	t.Helper()
	return openAs(t, mongo.Config{URL: url})
}

func openAs(t testing.TB, config mongo.Config) *mongo.Driver {
	t.Helper()
	config.MaxConns = 16 // a read beside an emulated transaction waits for it, and keeps its connection
	driver, err := mongo.Open(t.Context(), config)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return driver
}

// database connects to the database directly, without the driver.
func database(t testing.TB, address string) *mongodb.Database {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	client, err := mongodb.Connect(options.Client().ApplyURI(address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	return client.Database(parsed.Path[1:])
}

// harness returns the conformance suite's harness for databases that fresh creates.
func harness(fresh func(t testing.TB) string, config mongo.Config) drivertest.Harness {
	openHere := func(t *testing.T, url string) drivers.Driver {
		config := config
		config.URL = url
		driver := openAs(t, config)
		driver.UseAllKeys()
		return driver
	}
	return drivertest.Harness{
		Partial:  !config.Transactions,
		MaxDepth: mongo.MaxDepth,
		// The suite's largest document is {"text": "..."}, which has 4 bytes more in BSON than in JSON.
		MaxDocumentBytes: mongo.MaxDataBytes - 4,
		Place: func(t *testing.T) drivertest.Place {
			address := fresh(t)
			parsed, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			return drivertest.Place{
				Open:    func(t *testing.T) drivers.Driver { return openHere(t, address) },
				Address: parsed.Host,
				OpenAt: func(t *testing.T, host string) drivers.Driver {
					through := *parsed
					through.Host = host
					query := through.Query()
					query.Del("replicaSet") // otherwise the client would connect to the members' own addresses
					query.Set("directConnection", "true")
					query.Set("serverSelectionTimeoutMS", "1500") // through a proxy, most waits are in vain
					through.RawQuery = query.Encode()
					return openHere(t, through.String())
				},
				Forget: func(t *testing.T) {
					if err := database(t, address).Drop(t.Context()); err != nil {
						t.Fatal(err)
					}
				},
				Public: func(t *testing.T, projection string) ([]drivertest.PublicDocument, bool) {
					return public(t, database(t, address), projection)
				},
			}
		},
	}
}

// public reads a view as people do.
func public(t *testing.T, db *mongodb.Database, projection string) (documents []drivertest.PublicDocument, ok bool) {
	t.Helper()
	name := projection
	switch {
	case name == "documents" || strings.HasPrefix(name, "documents."):
		name += ".public" // the common collection has the name
	case strings.HasPrefix(name, "system."):
		name = "~" + name // the server reserves these names
	}
	views, err := db.ListCollectionNames(t.Context(), bson.D{{Key: "name", Value: name}, {Key: "type", Value: "view"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(views) == 0 {
		return nil, false
	}
	cursor, err := db.Collection(name).Find(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	var rows []struct {
		Tenant  string
		ID      string
		Version int64
	}
	if err := cursor.All(t.Context(), &rows); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		tenant, err := domain.ParseTenantID(row.Tenant)
		if err != nil {
			t.Fatal(err)
		}
		documents = append(documents, drivertest.PublicDocument{Tenant: tenant, ID: row.ID, Version: row.Version})
	}
	return documents, true
}

// stand is the harness on FerretDB, which has no views.
func stand(fresh func(t testing.TB) string, config mongo.Config) drivertest.Harness {
	h := harness(fresh, config)
	h.Slow = true
	place := h.Place
	h.Place = func(t *testing.T) drivertest.Place {
		p := place(t)
		p.Public = nil
		return p
	}
	return h
}

func TestConformanceOnFerretDB(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, stand(mongotest.FerretDB, mongo.Config{}))
}

// Tenants' own builds are in the common collection, which has the first layout.
func TestConformanceOfLayout2(t *testing.T) { // not in parallel with TestConformanceOnFerretDB: both together are too much for two processors
	h := stand(mongotest.FerretDB, mongo.Config{Layout: 2})
	h.SharedOnly = true
	// TestConformanceWithTransactions has the other subjects, which depend little on the layout.
	h.Subjects = []string{"Tables", "Public", "Query", "Predicate", "Order", "Partition", "Isolation", "Values"}
	drivertest.Run(t, h)
}

func TestFaultsOnFerretDB(t *testing.T) {
	t.Parallel()
	drivertest.RunFaults(t, stand(mongotest.FerretDB, mongo.Config{}))
}

func TestConformanceWithTransactions(t *testing.T) {
	t.Parallel()
	h := stand(mongotest.ReplicaSet, mongo.Config{Transactions: true, Layout: 2})
	h.Subjects = []string{"Save", "Repair", "Checkpoint", "Load", "Concurrency"}
	drivertest.Run(t, h)
}

func TestFaultsWithTransactions(t *testing.T) { // not in parallel with TestFaultsOnFerretDB: both together are too much for two processors
	drivertest.RunFaults(t, stand(mongotest.ReplicaSet, mongo.Config{Transactions: true}))
}

func TestConformanceOnMongoDB(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, harness(mongotest.Real, mongo.Config{}))
}

func TestFaultsOnMongoDB(t *testing.T) {
	t.Parallel()
	drivertest.RunFaults(t, harness(mongotest.Real, mongo.Config{}))
}

func TestConformanceOfLayout2OnMongoDB(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, harness(mongotest.Real, mongo.Config{Layout: 2}))
}
