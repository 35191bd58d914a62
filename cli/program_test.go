package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// program is the binary that these tests run, as a user would.
var program string

func TestMain(m *testing.M) {
	folder, err := os.MkdirTemp("", "manifold-cmd-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	program = filepath.Join(folder, "manifold")
	build := exec.Command("go", "build", "-ldflags=-w", "-o", program, "../cmd/manifold")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	code := 1
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "build the binary:", err)
	} else {
		// The benchmarks keep the processors busy, so do not run more of them at once than there are processors.
		flag.Parse()
		if err := flag.Set("test.parallel", flag.Lookup("test.parallel").Value.String()); err != nil {
			panic(err)
		}
		code = pgtest.Run(m)
	}
	if err := os.RemoveAll(folder); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// outcome is how a command has ended.
type outcome struct {
	out, err string
	code     int
}

// run runs a command to its end.
func run(t *testing.T, environ []string, stdin io.Reader, args ...string) outcome {
	t.Helper()
	return runAs(t, "manifold", environ, stdin, args...) // as if it were on the PATH
}

// runAs runs a command that was called by the name.
func runAs(t *testing.T, name string, environ []string, stdin io.Reader, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Args[0] = name
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = withEnviron(environ), stdin, &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// must runs a command that has to succeed, and returns what it prints.
func must(t *testing.T, environ []string, args ...string) string {
	t.Helper()
	o := run(t, environ, nil, args...)
	if o.code != 0 {
		t.Fatalf("manifold %s ends with %d:\n%s%s", strings.Join(args, " "), o.code, o.out, o.err)
	}
	return o.out
}

// withEnviron is the tests' environment without Manifold's variables, and with others.
func withEnviron(more []string) []string {
	environ := []string{"MANIFOLD_PROFILES=/dev/null"} // not those of the person who runs the tests
	for _, entry := range os.Environ() {
		if !strings.HasPrefix(entry, "MANIFOLD_") {
			environ = append(environ, entry)
		}
	}
	return append(environ, more...)
}

// running is a command that runs until it is ended.
type running struct {
	t     testing.TB
	cmd   *exec.Cmd
	lines chan string // what it prints, on both outputs; closed at its end
	mu    sync.Mutex
	said  strings.Builder
	ended chan struct{}
}

func launch(t testing.TB, environ []string, folder string, args ...string) *running {
	t.Helper()
	r := &running{t: t, lines: make(chan string, 1000), ended: make(chan struct{})}
	r.cmd = exec.Command(program, args...)
	r.cmd.Args[0] = "manifold"
	r.cmd.Env, r.cmd.Dir = withEnviron(environ), folder
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.cmd.Stdout, r.cmd.Stderr = write, write
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	go func() {
		defer close(r.ended)
		defer close(r.lines)
		for lines := bufio.NewScanner(read); lines.Scan(); {
			r.mu.Lock()
			fmt.Fprintln(&r.said, lines.Text())
			r.mu.Unlock()
			select {
			case r.lines <- lines.Text():
			default: // nobody waits for so many
			}
		}
		read.Close()
		_ = r.cmd.Wait() // the code is looked at by whoever ends it
	}()
	t.Cleanup(func() {
		select {
		case <-r.ended:
		default:
			r.cmd.Process.Kill()
			<-r.ended
		}
	})
	return r
}

// output is all that it has said.
func (r *running) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.said.String()
}

// await waits for a line that holds text, and returns it.
func (r *running) await(text string) string {
	r.t.Helper()
	patience := time.After(2 * time.Minute)
	for {
		select {
		case line, ok := <-r.lines:
			if !ok {
				r.t.Fatalf("it has ended without saying %q:\n%s", text, r.output())
			}
			if strings.Contains(line, text) {
				return line
			}
		case <-patience:
			r.t.Fatalf("it does not say %q:\n%s", text, r.output())
		}
	}
}

// end sends signals and returns the exit code.
func (r *running) end(signals ...os.Signal) int {
	r.t.Helper()
	for _, signal := range signals {
		if err := r.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
			r.t.Fatal(err)
		}
	}
	select {
	case <-r.ended:
	case <-time.After(2 * time.Minute):
		r.t.Fatalf("it does not end:\n%s", r.output())
	}
	return r.cmd.ProcessState.ExitCode()
}

const operatorKey = "the operator's key of the tests, long enough"

// serve runs `manifold serve` on a separate database, and returns its URL.
func serve(t testing.TB, settings ...string) (url string, service *running) {
	t.Helper()
	return serveOn(t, pgtest.Database(t), settings...)
}

// configurationOf is the environment of `manifold serve` on a database.
func configurationOf(db pgtest.DB) (environ []string) {
	return []string{
		"MANIFOLD_LISTEN=127.0.0.1:0", "MANIFOLD_LOG_FORMAT=json", "MANIFOLD_OPERATOR_KEY=" + operatorKey,
		"MANIFOLD_DATABASE_URL=" + db.URL(pgtest.RoleMigrator),
		"MANIFOLD_DATABASE_APP_URL=" + db.URL(migrations.RoleApp),
		"MANIFOLD_DATABASE_SYSTEM_URL=" + db.URL(migrations.RoleSystem),
		"MANIFOLD_DATABASE_DOCUMENTS_URL=" + db.URL(migrations.RoleDocuments),
		"MANIFOLD_DATABASE_RETENTION_URL=" + db.URL(migrations.RoleRetention),
	}
}

// serveOn is serve on a test's database.
func serveOn(t testing.TB, db pgtest.DB, settings ...string) (url string, service *running) {
	t.Helper()
	service = launch(t, append(configurationOf(db), settings...), "", "serve")
	var entry struct{ Address string }
	if err := json.Unmarshal([]byte(service.await(`"listening"`)), &entry); err != nil {
		t.Fatal(err)
	}
	url = "http://" + entry.Address
	t.Cleanup(func() {
		if code := service.end(syscall.SIGTERM); code != 0 {
			t.Errorf("serve ends with %d:\n%s", code, service.output())
		}
	})
	return url, service
}

// newTenant makes a tenant and a key, and returns the environment of a user who has it.
func newTenant(t *testing.T, url, name string) (environ []string) {
	t.Helper()
	operator := clientOf(t, []string{"MANIFOLD_URL=" + url, "MANIFOLD_KEY=" + operatorKey})
	tenant, err := operator.CreateTenantWithResponse(t.Context(), client.NewTenant{Name: name})
	if err != nil || tenant.JSON201 == nil {
		t.Fatalf("create the tenant %s: %v, %s", name, err, tenant.Body)
	}
	var scopes []string
	for _, scope := range auth.TenantScopes {
		scopes = append(scopes, string(scope))
	}
	key, err := operator.CreateTenantKeyWithResponse(t.Context(), tenant.JSON201.Id, client.NewKey{Name: "all", Scopes: scopes})
	if err != nil || key.JSON201 == nil {
		t.Fatalf("create a key of %s: %v, %s", name, err, key.Body)
	}
	return []string{"MANIFOLD_URL=" + url, "MANIFOLD_KEY=" + key.JSON201.Key}
}

// common is the address of the service that tests share.
var common struct {
	once sync.Once
	url  string
}

// sharedTenant is newTenant on a service with default settings that many tests share. The tenant's name is extended.
func sharedTenant(t *testing.T, name string) (environ []string) {
	t.Helper()
	common.once.Do(func() { common.url, _ = serve(pgtest.Lasting(t)) })
	if common.url == "" {
		t.Fatal("the shared service has not started")
	}
	return newTenant(t, common.url, name+"-"+strings.ToLower(rand.Text()))
}

// clientOf is a client with what an environment of newTenant says.
func clientOf(t *testing.T, environ []string) *client.ClientWithResponses {
	t.Helper()
	c, err := client.NewClientWithResponses(strings.TrimPrefix(environ[0], "MANIFOLD_URL="), client.WithKey(strings.TrimPrefix(environ[1], "MANIFOLD_KEY=")))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// documents reads all documents of a projection, once it has seen the log up to position.
func documents(t *testing.T, c *client.ClientWithResponses, name string, position int64) map[string]json.RawMessage {
	t.Helper()
	all := make(map[string]json.RawMessage)
	size, wait := 1000, 30
	params := &client.ListDocumentsParams{PageSize: &size, MinPosition: &position, Timeout: &wait}
	for {
		r, err := c.ListDocumentsWithResponse(t.Context(), name, params)
		if err != nil {
			t.Fatal(err)
		}
		if r.JSON200 == nil {
			t.Fatalf("read the documents of %s: %s", name, r.Body)
		}
		for _, document := range r.JSON200.Documents {
			all[document.Id] = json.RawMessage(document.Document)
		}
		link := r.HTTPResponse.Header.Get("Link")
		_, rest, found := strings.Cut(link, "pageToken=")
		if !found {
			return all
		}
		page, _, _ := strings.Cut(strings.TrimSuffix(strings.TrimSpace(rest), `"`), ">")
		page, _, _ = strings.Cut(page, "&")
		params = &client.ListDocumentsParams{PageSize: &size, PageToken: &page}
	}
}
