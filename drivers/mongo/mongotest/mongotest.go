// Package mongotest gives tests a server that speaks MongoDB's protocol. FerretDB runs on the test binary's PostgreSQL
// and is started when the first test asks for it. Real connects to the real MongoDB that MANIFOLD_TEST_MONGO_URL names,
// if it is set.
//
// A package that uses it has
//
//	func TestMain(m *testing.M) { mongotest.Main(m) }
//
// so that everything is stopped at the end. If the binary is killed, the server ends with it. Parallel tests may call
// all functions.
package mongotest

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/manifold-es/manifold/embedded/pgtest"
)

// Variable is the environment variable with the URL of a real MongoDB, a server on which databases may be created and
// dropped.
const Variable = "MANIFOLD_TEST_MONGO_URL"

// process is what the tests of this test binary share.
var process struct {
	once    sync.Once
	urls    [3]string // as a standalone server, a replica set, and a sharded cluster
	err     error
	command *exec.Cmd
	stdin   io.Closer
}

// Main runs the package's tests, stops what they started, and exits.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main without the exit: it returns the exit code.
func Run(m *testing.M) int {
	code := pgtest.Run(m)
	if process.command != nil {
		_ = process.stdin.Close()
		_ = process.command.Wait() // without its PostgreSQL it has nothing left to do
	}
	return code
}

// Real returns the URL of a new database on the real MongoDB, which is dropped when the test ends. If no server is
// configured, the test is skipped with a message.
func Real(t testing.TB) string {
	t.Helper()
	server := os.Getenv(Variable)
	if server == "" {
		t.Skipf("NOT RUN: there is no real MongoDB here; set %s to the URL of one, such as mongodb://127.0.0.1:27017/", Variable)
	}
	return database(t, server)
}

// FerretDB returns the URL of a new database on the binary's FerretDB, which is dropped when the test ends. It acts as
// a standalone server.
func FerretDB(t testing.TB) string {
	t.Helper()
	return stand(t, 0)
}

// ReplicaSet is FerretDB as a replica set, with transactions and with snapshots outside of them.
func ReplicaSet(t testing.TB) string {
	t.Helper()
	return stand(t, 1)
}

// Cluster is FerretDB as a sharded cluster. It records in config.collections which collections are sharded.
func Cluster(t testing.TB) string {
	t.Helper()
	return stand(t, 2)
}

func stand(t testing.TB, as int) string {
	t.Helper()
	server := pgtest.Server(t)
	process.once.Do(func() { process.err = start(server.URL("postgres"), server.URL(storage)) })
	if process.err != nil {
		t.Fatalf("mongotest: %v", process.err)
	}
	return database(t, process.urls[as])
}

// Storage returns the URL of the PostgreSQL database in which the binary's FerretDB stores everything: a schema per
// database, and in it a table per collection.
func Storage(t testing.TB) string {
	t.Helper()
	return pgtest.Server(t).URL(storage)
}

// database returns the URL of a new database on the server.
func database(t testing.TB, server string) string {
	t.Helper()
	address, err := url.Parse(server)
	if err != nil {
		t.Fatalf("mongotest: %s: %v", Variable, err)
	}
	if query := address.Query(); query.Get("authSource") == "" && strings.Trim(address.Path, "/") != "" && address.User != nil {
		// The database that holds the login must stay the same.
		query.Set("authSource", strings.Trim(address.Path, "/"))
		address.RawQuery = query.Encode()
	}
	name := "manifold_test_" + strings.ToLower(rand.Text()[:12])
	address.Path = "/" + name
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		client, err := mongo.Connect(options.Client().ApplyURI(address.String()))
		if err == nil {
			err = errors.Join(client.Database(name).Drop(ctx), client.Disconnect(ctx))
		}
		if err != nil {
			t.Errorf("mongotest: drop the test's database: %v", err)
		}
	})
	return address.String()
}

// Rows returns all documents of all collections of a database as text, one a line.
func Rows(t testing.TB, address string) string {
	t.Helper()
	ctx := t.Context()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	client, err := mongo.Connect(options.Client().ApplyURI(address))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(ctx)
	db := client.Database(strings.Trim(parsed.Path, "/"))
	collections, err := db.ListCollectionNames(ctx, bson.D{{Key: "type", Value: "collection"}})
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range collections {
		cursor, err := db.Collection(name).Find(ctx, bson.D{})
		if err != nil {
			t.Fatal(err)
		}
		for cursor.Next(ctx) {
			fmt.Fprintf(&all, "%s: %s\n", name, cursor.Current)
		}
		if err := cursor.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return all.String()
}

// storage is the PostgreSQL database in which FerretDB stores everything.
const storage = "ferretdb"

// startTimeout includes building the server, which takes a minute if Go's cache has nothing of it.
const startTimeout = 5 * time.Minute

func start(postgres, stored string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := makeStorage(ctx, postgres, stored); err != nil {
		return fmt.Errorf("make FerretDB's storage: %w", err)
	}
	binary, err := build(ctx)
	if err != nil {
		return err
	}
	command := exec.Command(binary, "-postgres", stored)
	command.Stderr = os.Stderr
	stdin, err := command.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("start FerretDB: %w", err)
	}
	process.command, process.stdin = command, stdin
	lines := bufio.NewReader(stdout)
	for as := range process.urls {
		line, err := lines.ReadString('\n')
		if err != nil {
			return fmt.Errorf("FerretDB did not say where it is: %w", err)
		}
		process.urls[as] = strings.TrimSpace(line)
	}
	return nil
}

// makeStorage creates FerretDB's database. FerretDB looks up documents with an operator that none of its own indexes
// supports, so makeStorage gives its tables indexes that do.
func makeStorage(ctx context.Context, postgres, stored string) error {
	if err := execute(ctx, postgres, "create database "+storage); err != nil {
		return err
	}
	return execute(ctx, stored,
		"alter database "+storage+" set plan_cache_mode = force_custom_plan",
		`create function add_indexes() returns event_trigger language plpgsql as $$
		declare made record;
		begin
			for made in select * from pg_event_trigger_ddl_commands() where command_tag = 'CREATE TABLE' and object_type = 'table' loop
				if exists (select from pg_attribute where attrelid = made.objid and attname = '_jsonb') then
					execute format('create index on %s using gin ((_jsonb->''_id'')) with (fastupdate = off)', made.object_identity);
					execute format('create index on %s using gin ((_jsonb->''tenant'')) with (fastupdate = off)', made.object_identity);
				end if;
			end loop;
		end $$`,
		"create event trigger add_indexes on ddl_command_end execute function add_indexes()")
}

func execute(ctx context.Context, address string, statements ...string) (err error) {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	for _, statement := range statements {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// build returns the path of the server's binary. It builds the binary if the sources have changed or it does not exist.
func build(ctx context.Context) (string, error) {
	source, err := sources()
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	files, err := os.ReadDir(source)
	if err != nil {
		return "", err
	}
	for _, file := range files {
		content, err := os.ReadFile(filepath.Join(source, file.Name()))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(hash, "%s %d\n%s", file.Name(), len(content), content)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	binary := filepath.Join(cache, "manifold", "ferretdb-"+hex.EncodeToString(hash.Sum(nil))[:16])
	if _, err := os.Stat(binary); !errors.Is(err, fs.ErrNotExist) {
		return binary, err
	}
	if err := os.MkdirAll(filepath.Dir(binary), 0o755); err != nil {
		return "", err
	}
	// Several test binaries may build at the same time, so each builds a separate file.
	fresh := fmt.Sprintf("%s.%d", binary, os.Getpid())
	command := exec.CommandContext(ctx, "go", "build", "-o", fresh, ".")
	command.Dir = source
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build FerretDB (%s; the tests on MongoDB's protocol need it): %w\n%s", source, err, output)
	}
	return binary, os.Rename(fresh, binary)
}

// sources finds tools/ferretdb in the test's working directory or a folder above it.
func sources() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		source := filepath.Join(dir, "tools", "ferretdb")
		if _, err := os.Stat(filepath.Join(source, "go.mod")); err == nil {
			return source, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("tools/ferretdb is not above the folder that the tests run in")
		}
		dir = parent
	}
}
