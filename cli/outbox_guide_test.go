package cli_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.mongodb.org/mongo-driver/v2/bson"
	driver "go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/outbox"
	"github.com/manifold-es/manifold/outbox/mongo"
	"github.com/manifold-es/manifold/outbox/postgres"
)

// What follows is the guide's code, line by line, with what its reader would add between the lines.

func guideCreates(ctx context.Context, pool *pgxpool.Pool) error {
	err := postgres.DefaultTable.Create(ctx, pool) // or another name: postgres.Table("billing.outbox")
	return err
}

func guideAdds(ctx context.Context, pool *pgxpool.Pool, id string, payload []byte) error {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "update orders set state = 'paid' where id = $1", id); err != nil {
			return err
		}
		return postgres.Add(ctx, tx, outbox.Event{Topic: "order", Key: id, Type: "OrderPaid", Payload: payload})
	})
	return err
}

func guideDrains(ctx context.Context, pool *pgxpool.Pool, url, key string) error {
	store, err := postgres.DefaultTable.Open(pool) // of MongoDB the box itself
	if err != nil {
		return err
	}
	manifold, err := outbox.NewHTTP(url, key, nil) // such as https://manifold.example.com
	if err != nil {
		return err
	}
	drainer, err := outbox.New(outbox.Config{Store: store, Publish: manifold.Publish, Log: slog.Default()})
	if err != nil {
		return err
	}
	err = drainer.Run(ctx) // until ctx ends
	return err
}

// guideAddsInMongoDB never runs: the tests of outbox/mongo test what it calls. Here it only has to compile.
var _ = func(ctx context.Context, session *driver.Session, database *driver.Database, id string, payload []byte) error {
	orders, paid := database.Collection("orders"), bson.M{"$set": bson.M{"state": "paid"}}
	box := mongo.New(database, "") // the collection manifold_outbox, and two beside it
	err := box.Prepare(ctx)        // once: collections and indexes
	if err != nil {
		return err
	}
	_, err = session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
		if _, err := orders.UpdateOne(ctx, bson.M{"_id": id}, paid); err != nil {
			return nil, err
		}
		return nil, box.Add(ctx, outbox.Event{Topic: "order", Key: id, Type: "OrderPaid", Payload: payload})
	})
	return err
}

// The guide's code is the code above, and it does with PostgreSQL and the service what the guide says, its SQL included.
func TestGuideToTheOutbox(t *testing.T) {
	t.Parallel()
	fine := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	statements := guideCode(t)
	url, _ := serve(t)
	environ := newTenant(t, url, "producer")
	key := strings.TrimPrefix(environ[1], "MANIFOLD_KEY=")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	pool := pgtest.Database(t).Pool(t, pgtest.RoleSuperuser, 8)
	_, err := pool.Exec(ctx, "create table orders (id text primary key, state text); insert into orders values ('1001', 'placed'), ('1002', 'placed')")
	fine(err)
	fine(guideCreates(ctx, pool))

	// One event that can be published, and one whose id already exists with other content.
	fine(guideAdds(ctx, pool, "1001", []byte(`{"by": "card"}`)))
	fine(guideAdds(ctx, pool, "1002", []byte(`{"by": "card"}`)))
	var taken string
	fine(pool.QueryRow(ctx, "select event_id::text from manifold_outbox where stream = 'order-1002'").Scan(&taken))
	must(t, environ, "publish", "order", `"other"`, "--key", "1003", "--id", taken)

	// The database notifies the test of the refusal.
	_, err = pool.Exec(ctx, `create function tell() returns trigger language plpgsql as $$ begin perform pg_notify('refused', new.event_id::text); return new; end $$;
		create trigger tell after update on manifold_outbox for each row when (new.attempts > 0) execute function tell()`)
	fine(err)
	listening, err := pool.Acquire(ctx)
	fine(err)
	defer listening.Release()
	_, err = listening.Exec(ctx, "listen refused")
	fine(err)

	draining, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- guideDrains(draining, pool, url, key) }()
	defer func() { <-ended }()
	defer stop()
	if line := must(t, environ, "tail", "order-1001", "--from", "start", "--count", "1"); !strings.Contains(line, "OrderPaid") || !strings.Contains(line, `"card"`) {
		t.Errorf("what came is %s", line)
	}
	told, err := listening.Conn().WaitForNotification(ctx)
	fine(err)
	if told.Payload != taken {
		t.Errorf("%s was refused, want %s", told.Payload, taken)
	}
	var sequence, attempts int64
	var id, stream, reason, message string
	fine(pool.QueryRow(ctx, strings.Replace(statements[0], "event_id", "event_id::text", 1)).Scan(&sequence, &id, &stream, &attempts, &reason, &message))
	if id != taken || stream != "order-1002" || attempts < 1 || !strings.Contains(reason, "event-id-conflict") || !strings.Contains(message, "OrderPaid") {
		t.Errorf("the row is %d %s %s %d %s %s", sequence, id, stream, attempts, reason, message)
	}
	removed, err := pool.Exec(ctx, strings.Replace(statements[1], "...", taken, 1))
	fine(err)
	if removed.RowsAffected() != 1 {
		t.Errorf("%d rows were removed", removed.RowsAffected())
	}
}

// guideCode compares the guide's Go code with this file, line by line, and returns its SQL.
func guideCode(t *testing.T) (statements []string) {
	t.Helper()
	guide, err := os.ReadFile(filepath.Join("..", "docs", "guides", "outbox.md"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("outbox_guide_test.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := func(text string) (all []string) {
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" {
				all = append(all, line)
			}
		}
		return all
	}
	blocks := 0
	for _, block := range regexp.MustCompile("(?ms)^```(go|sql)\n(.*?)^```$").FindAllStringSubmatch(string(guide), -1) {
		if block[1] == "sql" {
			for _, line := range lines(block[2]) {
				statement, _, _ := strings.Cut(line, ";")
				statements = append(statements, statement)
			}
			continue
		}
		blocks++
		rest := lines(string(source))
		for _, line := range lines(block[2]) {
			line = strings.TrimSuffix(line, " // or outbox/mongo")
			at := slices.Index(rest, line)
			if at < 0 {
				t.Fatalf("the guide's line is not here, or in another order: %s", line)
			}
			rest = rest[at+1:]
		}
	}
	if blocks != 5 || len(statements) != 2 {
		t.Fatalf("the guide has %d blocks of Go and %d statements", blocks, len(statements))
	}
	return statements
}
