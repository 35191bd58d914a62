package mongo_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/manifold-es/manifold/drivers/mongo/mongotest"
	"github.com/manifold-es/manifold/outbox"
	"github.com/manifold-es/manifold/outbox/mongo"
	"github.com/manifold-es/manifold/outbox/outboxtest"
)

// fewChecks is how often a property is drawn on FerretDB, by default: each time takes it a third of a second. The
// drainer's own code is drawn more often in outbox/postgres.
const fewChecks = "20"

func TestMain(m *testing.M) {
	flag.Parse()
	few := os.Getenv(mongotest.Variable) == ""
	flag.Visit(func(f *flag.Flag) { few = few && f.Name != "rapid.checks" })
	if few {
		if err := flag.Set("rapid.checks", fewChecks); err != nil {
			panic(err) // the flag has been renamed
		}
	}
	mongotest.Main(m)
}

// open creates an outbox in the database that an address names.
func open(t testing.TB, address string) (*driver.Client, *driver.Database, *mongo.Box) {
	t.Helper()
	return openWith(t, address, options.Client())
}

func openWith(t testing.TB, address string, settings *options.ClientOptions) (*driver.Client, *driver.Database, *mongo.Box) {
	t.Helper()
	client, err := driver.Connect(settings.ApplyURI(address))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	database := client.Database(strings.Trim(u.Path, "/"))
	box := mongo.New(database, "")
	for range 2 { // the second time it exists
		if err := box.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return client, database, box
}

// FerretDB has no transactions: events are added one by one there.
func TestConformance(t *testing.T) {
	t.Parallel()
	outboxtest.Run(t, func(t *testing.T) outboxtest.Box {
		_, _, box := open(t, mongotest.FerretDB(t))
		return outboxtest.Box{Store: box, Add: box.Add}
	})
}

func TestConformanceOfMongoDB(t *testing.T) {
	t.Parallel()
	outboxtest.Run(t, func(t *testing.T) outboxtest.Box {
		client, _, box := open(t, mongotest.Real(t))
		return outboxtest.Box{Store: box, Add: func(ctx context.Context, events ...outbox.Event) error {
			return inTransaction(ctx, client, func(ctx context.Context) error { return box.Add(ctx, events...) })
		}}
	})
}

func inTransaction(ctx context.Context, client *driver.Client, do func(ctx context.Context) error) error {
	session, err := client.StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(ctx)
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) { return nil, do(ctx) })
	return err
}

// An event exists if and only if the change that it announces does. Only MongoDB itself has transactions.
func TestAddIsPartOfTheTransaction(t *testing.T) {
	t.Parallel()
	client, database, box := open(t, mongotest.Real(t))
	orders := database.Collection("orders")
	undone := errors.New("undone")
	for _, fails := range []error{undone, nil} {
		err := inTransaction(t.Context(), client, func(ctx context.Context) error {
			if _, err := orders.InsertOne(ctx, bson.D{{Key: "state", Value: "paid"}}); err != nil {
				return err
			}
			return errors.Join(box.Add(ctx, outbox.Event{Topic: "order", Key: "1", Payload: json.RawMessage("1")}), fails)
		})
		if !errors.Is(err, fails) {
			t.Fatal(err)
		}
	}
	claim, err := box.Claim(t.Context(), 10, time.Hour)
	if err != nil || len(claim.Rows) != 1 {
		t.Errorf("there is %+v, %v", claim, err)
	}
	if count, err := orders.CountDocuments(t.Context(), bson.D{}); err != nil || count != 1 {
		t.Errorf("there are %d orders, %v", count, err)
	}
}

// A claim reads only rows that can no longer be rolled back: a row is lost if its primary dies before others have it.
func TestClaimsReadWhatStays(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	reads := 0
	settings := options.Client().SetMonitor(&event.CommandMonitor{Started: func(_ context.Context, started *event.CommandStartedEvent) {
		if started.CommandName != "find" || started.Command.Lookup("find").StringValue() != mongo.DefaultName {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		reads++
		if level, ok := started.Command.Lookup("readConcern", "level").StringValueOK(); !ok || level != "majority" {
			t.Errorf("it reads with %v", started.Command)
		}
	}})
	_, _, box := openWith(t, mongotest.FerretDB(t), settings)
	if err := box.Add(t.Context(), outbox.Event{Topic: "order", Key: "1", Payload: json.RawMessage("1")}); err != nil {
		t.Fatal(err)
	}
	claim, err := box.Claim(t.Context(), 10, time.Hour)
	mu.Lock()
	defer mu.Unlock()
	if err != nil || len(claim.Rows) != 1 || reads != 2 {
		t.Errorf("the claim is %+v by %d reads, %v", claim, reads, err)
	}
}
