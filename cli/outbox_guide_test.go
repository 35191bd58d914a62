package cli_test

import (
	"context"
	"database/sql"
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
	_ "modernc.org/sqlite"

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

// The guide's code is the code above, and it does with PostgreSQL and the service what the guide says, its SQL
// included.
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
	fine(pool.QueryRow(ctx, strings.Replace(statements[1], "event_id", "event_id::text", 1)).Scan(&sequence, &id, &stream, &attempts, &reason, &message))
	if id != taken || stream != "order-1002" || attempts < 1 || !strings.Contains(reason, "event-id-conflict") || !strings.Contains(message, "OrderPaid") {
		t.Errorf("the row is %d %s %s %d %s %s", sequence, id, stream, attempts, reason, message)
	}
	removed, err := pool.Exec(ctx, strings.Replace(statements[2], "...", taken, 1))
	fine(err)
	if removed.RowsAffected() != 1 {
		t.Errorf("%d rows were removed", removed.RowsAffected())
	}
}

// A producer in any language inserts rows, and the command publishes them: the guide's statement, in PostgreSQL and
// SQLite.
func TestOutboxCommand(t *testing.T) {
	t.Parallel()
	insert := guideCode(t)[0]
	url, _ := serve(t)
	environ := newTenant(t, url, "producer")
	file := filepath.Join(t.TempDir(), "a shop?.db")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lite, err := sql.Open("sqlite", "file:"+strings.ReplaceAll(file, "?", "%3f"))
	if err != nil {
		t.Fatal(err)
	}
	defer lite.Close()
	postgreSQL := pgtest.Database(t)
	pool := postgreSQL.Pool(t, pgtest.RoleSuperuser, 2)
	for _, database := range []struct {
		url, key string
		exec     func(statement string) error
	}{
		{postgreSQL.URL(pgtest.RoleSuperuser), "1001", func(statement string) error {
			_, err := pool.Exec(t.Context(), statement)
			return err
		}},
		{"sqlite:" + file, "1002", func(statement string) error {
			_, err := lite.ExecContext(t.Context(), strings.ReplaceAll(statement, "gen_random_uuid()", "'"+outbox.NewID()+"'"))
			return err
		}},
	} {
		there := append([]string{"MANIFOLD_OUTBOX_URL=" + database.url}, environ...)
		must(t, there, "outbox", "create", "--table", "shop_events")
		add := func(message string) {
			t.Helper()
			statement := strings.NewReplacer("manifold_outbox", "shop_events", "1001", database.key).Replace(insert)
			if message != "" {
				statement = regexp.MustCompile(`'\{.*\}'`).ReplaceAllLiteralString(statement, "'"+message+"'")
			}
			if err := database.exec(statement); err != nil {
				t.Fatal(err)
			}
		}
		add("")
		add("")
		if said := must(t, there, "outbox", "drain", "--table", "shop_events", "--until-empty"); said != "published: 2 events\n" {
			t.Errorf("drain says %s", said)
		}
		if line := must(t, environ, "tail", "order-"+database.key, "--from", "start", "--count", "2"); strings.Count(line, "OrderPaid") != 2 {
			t.Errorf("what came is %s", line)
		}
		// What is refused is left, and so is what comes after it.
		add(`{"topic": "Order"}`)
		add("")
		if o := run(t, there, nil, "outbox", "drain", "--table", "shop_events", "--until-empty"); o.code == 0 || o.out != "published: 0 events\n" ||
			!strings.Contains(o.err, "2 events left") || !strings.Contains(o.err, "is refused") {
			t.Errorf("drain of what is refused ends with %d: %s%s", o.code, o.out, o.err)
		}
	}
	for _, c := range []struct{ args, want string }{
		{"outbox drain --database mysql://secret@localhost/shop", `"mysql" is none of postgres, mongodb and sqlite`},
		{"outbox drain --database sqlite:nowhere.db", "nowhere.db"},
		{"outbox create", "give --database"},
		{"outbox create --print mysql", "neither postgres nor sqlite"},
		{"outbox create --print sqlite --table A", "not an outbox name"},
		{"outbox create --database mongodb://localhost", "name the database"},
	} {
		if o := run(t, environ, nil, strings.Fields(c.args)...); o.code == 0 || !strings.Contains(o.err, c.want) || strings.Contains(o.err, "secret") {
			t.Errorf("%s: %d %s, want %s", c.args, o.code, o.err, c.want)
		}
	}
	if said := must(t, environ, "outbox", "create", "--print", "postgres"); said != postgres.DefaultTable.Schema() {
		t.Errorf("the SQL is %s", said)
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
			for statement := range strings.SplitSeq(regexp.MustCompile(`--.*`).ReplaceAllString(block[2], ""), ";") {
				if statement = strings.TrimSpace(statement); statement != "" {
					statements = append(statements, statement)
				}
			}
			continue
		}
		blocks++
		rest := lines(string(source))
		for _, line := range lines(block[2]) {
			line = strings.TrimSuffix(line, " // or outbox/sqlite, outbox/mongo")
			at := slices.Index(rest, line)
			if at < 0 {
				t.Fatalf("the guide's line is not here, or in another order: %s", line)
			}
			rest = rest[at+1:]
		}
	}
	if blocks != 5 || len(statements) != 3 {
		t.Fatalf("the guide has %d blocks of Go and %d statements", blocks, len(statements))
	}
	return statements
}
