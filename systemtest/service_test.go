package systemtest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/manifold-es/manifold"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

const operatorKey = "the operator's key of the tests, long enough"

// service is a process of the real binary, which can be killed and started again.
type service struct {
	t       *testing.T
	program string
	environ []string

	mu      sync.Mutex
	up      chan struct{} // closed while it answers; another one from the kill on
	address string
	admin   string // where its admin listener is
	cmd     *exec.Cmd
	ended   chan struct{} // closed when the process is gone
	said    strings.Builder
}

// serve starts `manifold serve` on a database, with further settings as MANIFOLD_NAME=value. When the test ends it must
// still run, and end in order.
func serve(t *testing.T, db pgtest.DB, environ ...string) *service {
	t.Helper()
	return serveBy(t, program(t), db, environ...)
}

// serveTwo starts two processes on a database, as serve does. If MANIFOLD_TEST_PREVIOUS is the path of a program of the
// previous release, the second process runs that one.
func serveTwo(t *testing.T, db pgtest.DB, environ ...string) services {
	t.Helper()
	second := cmp.Or(os.Getenv("MANIFOLD_TEST_PREVIOUS"), program(t))
	return services{serve(t, db, environ...), serveBy(t, second, db, environ...)}
}

// serveBy is serve with another program.
func serveBy(t *testing.T, program string, db pgtest.DB, environ ...string) *service {
	t.Helper()
	s := &service{t: t, program: program, up: make(chan struct{})}
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "MANIFOLD_") {
			s.environ = append(s.environ, entry)
		}
	}
	s.environ = append(s.environ,
		"MANIFOLD_LISTEN=127.0.0.1:0", "MANIFOLD_LOG_FORMAT=json", "MANIFOLD_OPERATOR_KEY="+operatorKey,
		"MANIFOLD_DATABASE_MAX_CONNS=8",
		"MANIFOLD_DATABASE_URL="+db.URL(pgtest.RoleMigrator),
		"MANIFOLD_DATABASE_APP_URL="+db.URL(migrations.RoleApp),
		"MANIFOLD_DATABASE_SYSTEM_URL="+db.URL(migrations.RoleSystem),
		"MANIFOLD_DATABASE_DOCUMENTS_URL="+db.URL(migrations.RoleDocuments),
		"MANIFOLD_DATABASE_RETENTION_URL="+db.URL(migrations.RoleRetention),
	)
	s.environ = append(s.environ, environ...)
	t.Cleanup(s.end)
	s.start()
	return s
}

// start starts the process and waits until it listens. It is for the test's own goroutine.
func (s *service) start() {
	s.t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.Command(s.program, "serve")
	cmd.Env, cmd.Stdout, cmd.Stderr = s.environ, write, write
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	write.Close()
	ended := make(chan struct{})
	s.mu.Lock()
	s.cmd, s.ended = cmd, ended
	up := s.up
	s.mu.Unlock()
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(read)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var entry struct{ Msg, Address, Admin string }
			s.mu.Lock()
			fmt.Fprintln(&s.said, lines.Text())
			if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "listening" {
				s.address, s.admin = entry.Address, entry.Admin
				close(up)
			}
			s.mu.Unlock()
		}
		read.Close()
		_ = cmd.Wait() // the code is looked at by end
	}()
	select {
	case <-up:
	case <-ended:
		s.t.Fatalf("the service ended instead of listening:\n%s", s.output())
	case <-time.After(patience):
		s.t.Fatalf("the service does not listen:\n%s", s.output())
	}
}

// kill ends the process with SIGKILL.
func (s *service) kill() {
	s.mu.Lock()
	s.up = make(chan struct{})
	cmd, ended := s.cmd, s.ended
	s.mu.Unlock()
	_ = cmd.Process.Kill() // fails where it is gone already, and then start or end tell
	<-ended
}

// end makes the process end in order. If the test has failed, it prints the process's output and the stacks of its
// goroutines.
func (s *service) end() {
	s.mu.Lock()
	cmd, ended := s.cmd, s.ended
	s.mu.Unlock()
	if cmd == nil {
		return
	}
	select {
	case <-ended:
		s.t.Errorf("the service ended by itself: %s", cmd.ProcessState)
	default:
		if s.t.Failed() {
			s.killWithGoroutines(cmd, ended)
			return
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
			if code := cmd.ProcessState.ExitCode(); code != 0 {
				s.t.Errorf("the service ends with %s", cmd.ProcessState)
			}
		case <-time.After(patience):
			s.t.Error("the service does not end")
			s.killWithGoroutines(cmd, ended)
			return
		}
	}
	if s.t.Failed() {
		s.t.Logf("at last the service said:\n%s", last(s.output(), 8000))
	}
}

// killWithGoroutines prints the process's output, and ends the process in a way that prints its goroutines.
func (s *service) killWithGoroutines(cmd *exec.Cmd, ended <-chan struct{}) {
	said := s.output()
	_ = cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-ended:
	case <-time.After(patience):
		_ = cmd.Process.Kill()
		<-ended
	}
	stacks := s.output()[len(said):]
	s.t.Logf("at last the service said:\n%s\nand its goroutines are:\n%s", last(said, 8000), stacks[:min(len(stacks), 100_000)])
}

// last is the end of a text.
func last(text string, most int) string { return text[max(0, len(text)-most):] }

func (s *service) output() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.said.String()
}

// state returns the process's address, and a channel that is closed while it can be reached there.
func (s *service) state() (address string, up <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.address, s.up
}

// configuration is that of a process on a test's database, at a free port.
func configuration(db pgtest.DB) config.Config {
	c := config.Default()
	c.Listen = "127.0.0.1:0"
	c.Database.URL = db.URL(pgtest.RoleMigrator)
	c.Database.App.URL = db.URL(migrations.RoleApp)
	c.Database.System.URL = db.URL(migrations.RoleSystem)
	c.Database.Documents.URL = db.URL(migrations.RoleDocuments)
	c.Database.Retention.URL = db.URL(migrations.RoleRetention)
	c.Database.MaxConns = 8
	c.OperatorKeys = []string{operatorKey}
	return c
}

// inside starts the service in the test's own process, for tests in which nothing is killed.
func inside(t testing.TB, c config.Config, options ...manifold.Option) site {
	t.Helper()
	said := &transcript{}
	p, err := manifold.Start(t.Context(), c, slog.New(slog.NewTextHandler(said, nil)), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("at last the service said:\n%s", said)
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := p.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return fixed(p.Address())
}

// transcript is the last part of a service's output.
type transcript struct {
	mu   sync.Mutex
	text []byte
}

func (tr *transcript) Write(line []byte) (int, error) {
	const most = 8000
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.text = append(tr.text, line...)
	if len(tr.text) > 2*most {
		tr.text = slices.Clone(tr.text[len(tr.text)-most:])
	}
	return len(line), nil
}

func (tr *transcript) String() string {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return string(tr.text)
}
