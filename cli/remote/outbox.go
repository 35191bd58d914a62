package remote

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
	driver "go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	_ "modernc.org/sqlite"

	"github.com/manifold-es/manifold/outbox"
	"github.com/manifold-es/manifold/outbox/mongo"
	"github.com/manifold-es/manifold/outbox/postgres"
	"github.com/manifold-es/manifold/outbox/sqlite"
)

func outboxCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "outbox",
		Short: "Publish what a producer's transactions wrote to a table",
		Long: `A producer in any language writes its events to a table in its own database, in the transactions that make its changes. A drainer
publishes exactly what was committed, in order and once.

The database is the producer's: postgres://..., mongodb://.../DATABASE or sqlite:FILE.`,
		Args: cobra.NoArgs,
	}
	command.AddCommand(outboxCreate(), outboxDrain())
	return command
}

// producer is the database of a producer, with its outbox.
type producer struct{ url, table string }

func (p *producer) bind(command *cobra.Command) {
	command.Flags().StringVar(&p.url, "database", os.Getenv("MANIFOLD_OUTBOX_URL"), "the producer's database (MANIFOLD_OUTBOX_URL)")
	command.Flags().Lookup("database").DefValue = "" // --help must not show a password
	command.Flags().StringVar(&p.table, "table", string(postgres.DefaultTable), "the outbox's table or collection")
}

// openOutbox is an outbox with its database.
type openOutbox struct {
	store  outbox.Store
	create func(ctx context.Context) error
	schema string // SQL; empty in MongoDB
	close  func()
}

func (p *producer) open(ctx context.Context) (*openOutbox, error) {
	scheme, rest, _ := strings.Cut(p.url, ":")
	switch scheme {
	case "postgres", "postgresql":
		return p.openPostgres(ctx)
	case "mongodb", "mongodb+srv":
		return p.openMongo()
	case "sqlite":
		return p.openSQLite(rest)
	case "":
		return nil, errors.New("no database: give --database, or set MANIFOLD_OUTBOX_URL")
	}
	return nil, fmt.Errorf("--database: %q is none of postgres, mongodb and sqlite", scheme) // the rest may have a password
}

func (p *producer) openPostgres(ctx context.Context) (*openOutbox, error) {
	pool, err := pgxpool.New(ctx, p.url)
	if err != nil {
		return nil, fmt.Errorf("--database: %w", err)
	}
	table := postgres.Table(p.table)
	store, err := table.Open(pool)
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("--table: %w", err)
	}
	return &openOutbox{store: store, create: func(ctx context.Context) error { return table.Create(ctx, pool) }, schema: table.Schema(), close: pool.Close}, nil
}

func (p *producer) openMongo() (*openOutbox, error) {
	address, err := url.Parse(p.url)
	if err != nil {
		return nil, errors.New("--database: it is not a URL")
	}
	name := strings.Trim(address.Path, "/")
	if name == "" {
		return nil, errors.New("--database: name the database, as in mongodb://host/shop")
	}
	client, err := driver.Connect(options.Client().ApplyURI(p.url))
	if err != nil {
		return nil, fmt.Errorf("--database: %w", err)
	}
	box := mongo.New(client.Database(name), p.table)
	return &openOutbox{store: box, create: box.Prepare, close: func() { _ = client.Disconnect(context.Background()) }}, nil
}

// openSQLite opens a file, which must exist: a wrong path would make an empty database.
func (p *producer) openSQLite(file string) (*openOutbox, error) {
	file = strings.TrimPrefix(file, "//")
	if _, err := os.Stat(file); err != nil {
		return nil, fmt.Errorf("--database: %w", err)
	}
	db, err := sql.Open("sqlite", "file:"+(&url.URL{Path: file}).EscapedPath()+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	if err != nil {
		return nil, fmt.Errorf("--database: %w", err)
	}
	table := sqlite.Table(p.table)
	store, err := table.Open(db)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--table: %w", err), db.Close())
	}
	return &openOutbox{store: store, create: func(ctx context.Context) error { return table.Create(ctx, db) }, schema: table.Schema(), close: func() { _ = db.Close() }}, nil
}

func outboxCreate() *cobra.Command {
	from, onlyPrint := &producer{}, ""
	command := &cobra.Command{
		Use:   "create",
		Short: "Create the outbox's table or collections, or print the SQL",
		Long: `Create the outbox's table with its indexes, or in MongoDB its collections. What exists stays as it is. With --print the SQL is
printed for your own migrations; then no database is needed.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if onlyPrint != "" {
				return printOutbox(command.OutOrStdout(), onlyPrint, from.table)
			}
			box, err := from.open(command.Context())
			if err != nil {
				return err
			}
			defer box.close()
			if err := box.create(command.Context()); err != nil {
				return err
			}
			fmt.Fprintf(command.OutOrStdout(), "%s is ready\n", from.table)
			return nil
		},
	}
	from.bind(command)
	command.Flags().StringVar(&onlyPrint, "print", "", "print the SQL for postgres or sqlite")
	return command
}

func printOutbox(out io.Writer, kind, table string) error {
	var schema string
	switch kind {
	case "postgres":
		schema = postgres.Table(table).Schema()
	case "sqlite":
		schema = sqlite.Table(table).Schema()
	default:
		return fmt.Errorf("--print: %q is neither postgres nor sqlite", kind)
	}
	if schema == "" {
		return fmt.Errorf("--table: %q is not an outbox name: use lower-case letters, digits and _", table)
	}
	_, err := io.WriteString(out, schema)
	return err
}

func outboxDrain() *cobra.Command {
	to, from, untilEmpty := &connection{}, &producer{}, false
	config := outbox.Config{}
	command := &cobra.Command{
		Use:   "drain",
		Short: "Publish the events of an outbox, until it is stopped",
		Long: `Publish the events of an outbox as they are added, until it is stopped. Any number of drainers may work on one outbox. A refused
event blocks the later ones of its stream, until it is accepted or you delete its row; the reason is in the log, and in its row.

The key needs events:append for the events' topics.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := to.check(); err != nil {
				return err
			}
			box, err := from.open(command.Context())
			if err != nil {
				return err
			}
			defer box.close()
			key, err := to.currentKey(command.Context())
			if err != nil {
				return err
			}
			manifold, err := outbox.NewHTTP(to.url, key, nil)
			if err != nil {
				return err
			}
			published := 0
			config.Store, config.Publish = box.store, manifold.Publish
			config.Log = slog.New(slog.NewTextHandler(command.ErrOrStderr(), nil))
			config.Observer.Published = func(rows int) { published += rows }
			drainer, err := outbox.New(config)
			if err != nil {
				return err
			}
			drain := drainer.Run
			if untilEmpty {
				drain = func(ctx context.Context) error { return drainAll(ctx, drainer, box.store) }
			}
			err = drain(command.Context())
			fmt.Fprintf(command.OutOrStdout(), "published: %s\n", howMany(int64(published), "event"))
			return err
		},
	}
	to.bind(command, "MANIFOLD_KEY")
	from.bind(command)
	command.Flags().IntVar(&config.Batch, "batch", 100, "events to publish at once, up to 1000")
	command.Flags().DurationVar(&config.Lease, "lease", 30*time.Second, "how long events stay reserved for a drainer that died")
	command.Flags().DurationVar(&config.Poll, "poll", 500*time.Millisecond, "how often to look for new events when there are none")
	command.Flags().DurationVar(&config.Keep, "keep", 0, "how long to keep published events, marked; by default they are removed at once")
	command.Flags().BoolVar(&untilEmpty, "until-empty", false, "stop when nothing is left to publish")
	return command
}

// drainAll publishes until there is nothing to claim, and removes what was kept for long enough. An event that has to
// wait is an error.
func drainAll(ctx context.Context, drainer *outbox.Drainer, store outbox.Store) error {
	for claimed := 1; claimed > 0; {
		var err error
		if claimed, err = drainer.Drain(ctx); err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
	}
	if err := drainer.Upkeep(ctx); err != nil {
		return err
	}
	lag, err := store.Lag(ctx)
	if err == nil && lag.Waiting > 0 {
		err = fmt.Errorf("%s left: refused, after a refused one of the same stream, or in another drainer's hands", howMany(int64(lag.Waiting), "event"))
	}
	return err
}
