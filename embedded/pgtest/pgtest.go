// Package pgtest gives tests a real PostgreSQL. Each test binary has one server, which starts when the first test asks
// for it, and each test has a separate database with Manifold's schema. Start with Main and Database.
//
// A package that uses it has
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// so that at the end the server is stopped, its files are removed, and a leaked goroutine or excessive use of memory
// fails the package. Without that, or if the binary is killed, the server ends with the binary, and the next test
// binary removes the files. Parallel tests may call all functions.
package pgtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"go.uber.org/goleak"

	"github.com/manifold-es/manifold/embedded"
)

// startTimeout limits the start of a server. It takes half a second on an idle machine, and includes a download if
// PostgreSQL is not installed.
const startTimeout = 5 * time.Minute

// process is what the tests of this test binary share.
var process struct {
	once    sync.Once
	server  *embedded.Server
	dir     string
	err     error
	copies  copies
	cluster cluster
}

// Main runs the package's tests, stops the server if they started it, and exits. A leaked goroutine counts as a
// failure, and so does taking more than 4 GiB of memory.
func Main(m *testing.M) {
	os.Exit(Run(m))
}

// Run is Main without the exit, for a TestMain that has more to do: it returns the exit code.
func Run(m *testing.M) int {
	flag.Parse()
	if err := runMoreInParallel(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		return 1
	}
	code := m.Run()
	cleanUp()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		code = max(code, 1)
	}
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		code = max(code, 1)
	}
	if err := checkMemory(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		code = max(code, 1)
	}
	return code
}

// checkMemory returns an error if the process took far more memory than any package needs, even with the race detector.
// Otherwise such use shows only when packages running in parallel exhaust the machine's memory. It works only on Linux.
func checkMemory() error {
	const most = 4 << 30
	self, err := procfs.Self()
	if err != nil {
		return nil // there is no /proc
	}
	status, err := self.NewStatus()
	if err == nil && status.VmHWM > most {
		err = fmt.Errorf("the tests took %d MiB of memory, more than %d; use -memprofile", status.VmHWM>>20, most>>20)
	}
	return err
}

// runMoreInParallel lets several parallel tests run per processor, because most of the time a test waits for the server
// or for a deadline. A number that was set with the flag -parallel stays.
func runMoreInParallel() error {
	const parallel, perProcessor = "test.parallel", 2
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == parallel })
	if given {
		return nil
	}
	return flag.Set(parallel, strconv.Itoa(perProcessor*runtime.GOMAXPROCS(0)))
}

func stop() error {
	if err := process.cluster.close(); err != nil {
		return err
	}
	process.once.Do(func() { process.err = fmt.Errorf("pgtest: asked for a server after the tests' end") })
	if process.server == nil {
		return nil
	}
	if process.copies.admin != nil {
		process.copies.admin.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := process.server.Stop(ctx); err != nil {
		return err
	}
	return os.RemoveAll(process.dir)
}

// Server returns the server that the tests of this binary share. It does not sync, and allows 300 connections. A single
// test must not stop or kill it: see Private.
func Server(t testing.TB) *embedded.Server {
	t.Helper()
	process.once.Do(func() {
		sweep()
		if process.dir, process.err = tempDir(base()); process.err != nil {
			return
		}
		process.server, process.err = startMigrated(embedded.Config{Dir: process.dir, Disposable: true})
	})
	if process.err != nil {
		t.Fatalf("pgtest: %v", process.err)
	}
	return process.server
}

// Options configures a private server.
type Options struct {
	// Settings are added to those of the shared server.
	Settings embedded.Settings
	// Durable makes it sync its commits, on disk rather than in memory.
	Durable bool
	// Empty makes it a server as initdb leaves it, for tests that create the roles themselves. Migrated fails there.
	Empty bool
}

// Private starts a server for one test, which may kill and restart it. It is stopped when the test ends.
func Private(t testing.TB, options Options) *embedded.Server {
	t.Helper()
	sweep()
	in := base()
	if options.Durable {
		in = os.TempDir()
	}
	dir, err := tempDir(in)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	begin := startMigrated
	if options.Empty {
		begin = start
	}
	server, err := begin(embedded.Config{Dir: dir, Disposable: !options.Durable, Settings: options.Settings})
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() { remove(t, server) })
	return server
}

// Replicated returns the options of a private server that may have replicas.
func Replicated() Options {
	return Options{Settings: embedded.Settings{"wal_level": "replica", "max_wal_senders": "4"}}
}

// Replica starts a streaming replica of a private server with Replicated options. A test promotes it with pg_promote().
// It is stopped when the test ends. The test is skipped if PostgreSQL's pg_basebackup is not installed.
func Replica(t testing.TB, primary *embedded.Server) *embedded.Server {
	t.Helper()
	dir, err := tempDir(base())
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	replica, err := start(embedded.Config{Dir: dir, Disposable: true, Settings: Replicated().Settings, Primary: primary})
	if errors.Is(err, fs.ErrNotExist) {
		t.Skip("pg_basebackup is not installed: ", err)
	}
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() { remove(t, replica) })
	return replica
}

// remove stops a private server, and removes its files.
func remove(t testing.TB, server *embedded.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := server.Stop(ctx); err != nil {
		t.Errorf("pgtest: %v", err)
	}
	if err := os.RemoveAll(server.Dir); err != nil {
		t.Errorf("pgtest: remove the private server's files: %v", err)
	}
}

func start(cfg embedded.Config) (*embedded.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	return embedded.Start(ctx, cfg)
}
