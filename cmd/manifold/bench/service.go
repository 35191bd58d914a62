package bench

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/migrations"
)

// service is the service that a benchmark over HTTP measures: a running one, or a child process started with its own
// database.
type service struct {
	url, key string // the key of a tenant, with every scope
	operator string // the operator's key; empty if the service was already running
	tenant   domain.TenantID
	db       *database // nil: the service was already running, and its database is unknown
	quiet    bool      // no projections except those of the benchmark
	settings []string  // additional environment variables
	process  *exec.Cmd
	said     *tail
	close    func() error
}

// startService starts a service for a benchmark, or uses the one named by --url. It calls prepare with the database
// and a new tenant before the service starts, but not for a running service.
func startService(ctx context.Context, f *flags, progress io.Writer, prepare func(*database, domain.TenantID) error) (*service, error) {
	if f.url != "" {
		return &service{url: strings.TrimSuffix(f.url, "/"), key: f.key, close: func() error { return nil }}, nil
	}
	db, err := openDatabase(ctx, f.databaseURL, progress)
	if err != nil {
		return nil, err
	}
	s := &service{db: db, close: db.close}
	documents, err := f.documentsDatabase()
	if err == nil {
		err = s.start(ctx, documents, progress, prepare)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// start starts the service as a child process. documents are its settings for databases of documents, and may be nil.
func (s *service) start(ctx context.Context, documents map[string]config.DocumentsDatabase, progress io.Writer, prepare func(*database, domain.TenantID) error) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	fmt.Fprintln(progress, "starting the service ...")
	databases, err := json.Marshal(documents)
	if err != nil {
		return err
	}
	s.operator = rand.Text() + rand.Text()
	s.process = exec.Command(self, "serve")
	s.process.Env = s.environ()
	if len(documents) > 0 {
		// Remove deleted builds at once, so that nothing stays in a database that is not the benchmark's own.
		s.process.Env = append(s.process.Env, "MANIFOLD_DATABASES="+string(databases), "MANIFOLD_REBUILD_KEEP=0s")
	}
	// A Ctrl-C must reach only this process, which stops the service itself.
	s.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	output, err := s.process.StderrPipe()
	if err != nil {
		return err
	}
	if err := s.process.Start(); err != nil {
		return fmt.Errorf("start the service: %w", err)
	}
	s.said = &tail{}
	listening := make(chan string, 1)
	var reading sync.WaitGroup
	reading.Go(func() { s.said.follow(output, listening) })
	drop := s.close
	s.close = sync.OnceValue(func() error {
		err := s.process.Process.Signal(syscall.SIGTERM)
		patience := time.AfterFunc(20*time.Second, func() { _ = s.process.Process.Kill() })
		reading.Wait()
		// How the process exits does not affect the measurements.
		_ = s.process.Wait()
		patience.Stop()
		if errors.Is(err, os.ErrProcessDone) {
			err = nil
		}
		return errors.Join(err, drop())
	})
	select {
	case address, ok := <-listening:
		if !ok {
			return fmt.Errorf("the service ended; it said:\n%s", s.said)
		}
		s.url = "http://" + address
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if s.tenant, s.key, err = makeTenant(s.url, s.operator, "bench"); err != nil {
		return fmt.Errorf("make a tenant: %w", err)
	}
	if prepare == nil {
		return nil
	}
	return prepare(s.db, s.tenant)
}

// environ returns the environment of a process of the service.
func (s *service) environ() []string {
	own := withoutSettings(os.Environ())
	if s.quiet {
		own = append(own, "MANIFOLD_USAGE=false")
	}
	own = append(own, s.settings...)
	return append(own,
		"MANIFOLD_LISTEN=127.0.0.1:0",
		"MANIFOLD_LOG_FORMAT=json",
		"MANIFOLD_OPERATOR_KEY="+s.operator,
		"MANIFOLD_DATABASE_URL="+s.db.super,
		"MANIFOLD_DATABASE_APP_URL="+s.db.as(migrations.RoleApp),
		"MANIFOLD_DATABASE_SYSTEM_URL="+s.db.as(migrations.RoleSystem),
		"MANIFOLD_DATABASE_DOCUMENTS_URL="+s.db.as(migrations.RoleDocuments),
		"MANIFOLD_DATABASE_RETENTION_URL="+s.db.as(migrations.RoleRetention),
	)
}

// withoutSettings removes the variables that are settings of the service.
func withoutSettings(environ []string) []string {
	var others []string
	for _, entry := range environ {
		if !strings.HasPrefix(entry, "MANIFOLD_") {
			others = append(others, entry)
		}
	}
	return others
}

func makeTenant(service, operator, name string) (tenant domain.TenantID, key string, err error) {
	w, err := dial(service, operator)
	if err != nil {
		return tenant, "", err
	}
	defer w.close()
	var made struct{ ID, Key string }
	status, answer, err := w.do("POST", "/v1/tenants", "", fmt.Appendf(nil, `{"name":%q}`, name))
	if err := errors.Join(want(status, 201, answer, err), json.Unmarshal(answer, &made)); err != nil {
		return tenant, "", err
	}
	if tenant, err = domain.ParseTenantID(made.ID); err != nil {
		return tenant, "", errNoTenant
	}
	scopes, err := json.Marshal(map[string]any{"name": "bench", "scopes": domain.TenantScopes})
	if err != nil {
		return tenant, "", err
	}
	status, answer, err = w.do("POST", "/v1/tenants/"+made.ID+"/keys", "", scopes)
	if err := errors.Join(want(status, 201, answer, err), json.Unmarshal(answer, &made)); err != nil {
		return tenant, "", err
	}
	if made.Key == "" {
		return tenant, "", errNoTenant
	}
	return tenant, made.Key, nil
}

// connect opens a connection for each client.
func (s *service) connect(clients int) ([]*wire, error) {
	all := make([]*wire, clients)
	for i := range all {
		var err error
		if all[i], err = dial(s.url, s.key); err != nil {
			disconnect(all[:i])
			return nil, err
		}
	}
	return all, nil
}

func disconnect(wires []*wire) {
	for _, w := range wires {
		w.close()
	}
}

// rss returns the service's peak memory, or 0 if it is not a child of this process.
func (s *service) rss() float64 {
	if s.process == nil {
		return 0
	}
	return peakMemory(s.process.Process.Pid)
}

// finish fills in what only the database knows, or nothing if the database is unknown.
func (s *service) finish(ctx context.Context, r *Result, what string, limit func(ctx context.Context, super string, progress io.Writer) (float64, error), progress io.Writer) error {
	r.RSS = s.rss()
	if s.db == nil {
		r.unknown = true
		return nil
	}
	var err error
	if r.SyncedCommits, err = synced(ctx, s.db.super); err != nil || limit == nil {
		return err
	}
	perSecond, err := limit(ctx, s.db.super, progress)
	if err != nil {
		return err
	}
	r.hold(what, perSecond)
	return nil
}

// tail keeps the last output of a service, and finds out where the service listens.
type tail struct {
	mu    sync.Mutex
	lines []string
}

func (t *tail) follow(r io.Reader, listening chan<- string) {
	defer close(listening)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	found := false
	for lines.Scan() {
		var entry struct {
			Msg     string `json:"msg"`
			Address string `json:"address"`
		}
		if !found && json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "listening" {
			found = true
			listening <- entry.Address
		}
		t.mu.Lock()
		t.lines = append(t.lines, lines.Text())
		if len(t.lines) > 40 {
			t.lines = t.lines[1:]
		}
		t.mu.Unlock()
	}
	// A line that is too long ends the scanner. Keep reading, so that a full pipe does not block the service.
	_, _ = io.Copy(io.Discard, r)
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}
