package bench

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/migrations"
)

// service is the service that a benchmark over HTTP measures: a running one, or a child process started with its own
// database.
type service struct {
	url, key string // the key of a tenant, with every scope
	operator string // the operator's key; empty if the service was already running
	tenant   domain.TenantID
	process  *exec.Cmd // nil if the service was already running
}

// withoutUsage is the setting for a service without any projection, so that the measured work has the machine to
// itself.
const withoutUsage = "MANIFOLD_USAGE=false"

// startService uses the service that --url names, or starts one with a new database, a tenant and additional settings.
// The run stops it at its end.
func (r *run) startService(ctx context.Context, settings ...string) (*service, error) {
	if r.url != "" {
		r.service = &service{url: strings.TrimSuffix(r.url, "/"), key: r.key}
		return r.service, nil
	}
	documents, err := r.documentsDatabase()
	if err != nil {
		return nil, err
	}
	if len(documents) > 0 {
		databases, err := json.Marshal(documents)
		if err != nil {
			return nil, err
		}
		// Remove deleted builds at once, so that nothing stays in a database that is not the benchmark's own.
		settings = append(settings, "MANIFOLD_DATABASES="+string(databases), "MANIFOLD_REBUILD_KEEP=0s")
	}
	db, err := r.createDatabase(ctx)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r.log("starting the service")
	s := &service{operator: rand.Text() + rand.Text()}
	s.process = exec.Command(self, "serve")
	s.process.Env = append(s.environ(db), settings...)
	// A Ctrl-C must reach only this process, which stops the service itself.
	s.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stderr, err := s.process.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := s.process.Start(); err != nil {
		return nil, fmt.Errorf("start the service: %w", err)
	}
	output := &outputReader{}
	listening := make(chan string, 1)
	var reading sync.WaitGroup
	reading.Go(func() { output.read(stderr, listening) })
	r.onClose(func() error {
		err := s.process.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(20*time.Second, func() { _ = s.process.Process.Kill() })
		reading.Wait()
		_ = s.process.Wait() // how the process exits does not affect the measurements
		kill.Stop()
		if errors.Is(err, os.ErrProcessDone) {
			return nil
		}
		return err
	})
	select {
	case address, ok := <-listening:
		if !ok {
			return nil, fmt.Errorf("the service exited; its last output:\n%s", output)
		}
		s.url = "http://" + address
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if s.tenant, s.key, err = s.createTenant("bench"); err != nil {
		return nil, fmt.Errorf("create a tenant: %w", err)
	}
	r.service = s
	return s, nil
}

// environ returns the environment of the service's process.
func (s *service) environ(db *database) []string {
	return append(withoutSettings(os.Environ()),
		"MANIFOLD_LISTEN=127.0.0.1:0",
		"MANIFOLD_LOG_FORMAT=json",
		"MANIFOLD_OPERATOR_KEY="+s.operator,
		"MANIFOLD_DATABASE_URL="+db.super,
		"MANIFOLD_DATABASE_APP_URL="+db.as(migrations.RoleApp),
		"MANIFOLD_DATABASE_SYSTEM_URL="+db.as(migrations.RoleSystem),
		"MANIFOLD_DATABASE_DOCUMENTS_URL="+db.as(migrations.RoleDocuments),
		"MANIFOLD_DATABASE_RETENTION_URL="+db.as(migrations.RoleRetention),
	)
}

// withoutSettings removes the variables that are settings of the service.
func withoutSettings(environ []string) []string {
	return slices.DeleteFunc(environ, func(entry string) bool { return strings.HasPrefix(entry, "MANIFOLD_") })
}

// createTenant creates a tenant and a key with every scope.
func (s *service) createTenant(name string) (tenant domain.TenantID, key string, err error) {
	w, err := dial(s.url, s.operator)
	if err != nil {
		return tenant, "", err
	}
	defer w.close()
	var created struct{ ID, Key string }
	if err := w.json("POST", "/v1/tenants", map[string]string{"name": name}, http.StatusCreated, &created); err != nil {
		return tenant, "", err
	}
	scopes := map[string]any{"name": "bench", "scopes": auth.TenantScopes}
	tenant, err = domain.ParseTenantID(created.ID)
	if err == nil {
		err = w.json("POST", "/v1/tenants/"+created.ID+"/keys", scopes, http.StatusCreated, &created)
	}
	return tenant, created.Key, err
}

// connect opens connections as the tenant, which the run closes at its end.
func (r *run) connect(count int) ([]*wire, error) {
	all := make([]*wire, count)
	for i := range all {
		var err error
		if all[i], err = r.dial(r.service.key); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// dial opens a connection as the holder of key, which the run closes at its end.
func (r *run) dial(key string) (*wire, error) {
	w, err := dial(r.service.url, key)
	if err != nil {
		return nil, err
	}
	r.onClose(func() error { w.close(); return nil })
	// A service closes a connection that sends nothing for ten seconds. After its first request it may wait longer.
	_, err = w.do("GET", "/livez", "", nil, http.StatusOK)
	return w, err
}

// peakMemory returns the service's peak memory, or 0 if it is not a child of this process.
func (s *service) peakMemory() float64 {
	if s.process == nil {
		return 0
	}
	return peakMemory(s.process.Process.Pid)
}

// outputReader keeps the last lines of a service's output, and finds out where the service listens.
type outputReader struct {
	mu    sync.Mutex
	lines []string
}

func (o *outputReader) read(r io.Reader, listening chan<- string) {
	defer close(listening)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	found := false
	for lines.Scan() {
		var entry struct{ Msg, Address string }
		if !found && json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "listening" {
			found = true
			listening <- entry.Address
		}
		o.mu.Lock()
		o.lines = append(o.lines[max(0, len(o.lines)-39):], lines.Text())
		o.mu.Unlock()
	}
	// A line that is too long ends the scanner. Keep reading, so that a full pipe does not block the service.
	_, _ = io.Copy(io.Discard, r)
}

func (o *outputReader) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.Join(o.lines, "\n")
}
