// Package examples tests that the examples in its folder work as a reader would use them.
package examples

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const operatorKey = "the operator's key of the tests, long enough"

// A binary of another module has an additional driver. A shared projection and a tenant's own store their documents
// there, and are rebuilt when the documents are gone.
func TestMemoryDriver(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "manifold-with-memory")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-w", "-o", program, ".")
	build.Dir = "memory-driver"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s\nif dependencies have changed, run `go mod tidy` in examples/memory-driver", err, out)
	}
	definitions := t.TempDir()
	const definition = `{"name": %q, "database": "mine", "source": {"categories": ["order"]}, "initial": {"total": 0}, "on": {"ItemAdded": "{\"total\": doc.total + event.data.price}"}}`
	if err := os.WriteFile(filepath.Join(definitions, "orders.json"), fmt.Appendf(nil, definition, "orders"), 0o600); err != nil {
		t.Fatal(err)
	}
	db := pgtest.Database(t)
	s := start(t, program, []string{
		"MANIFOLD_LISTEN=127.0.0.1:0", "MANIFOLD_LOG_FORMAT=json", "MANIFOLD_OPERATOR_KEY=" + operatorKey,
		"MANIFOLD_DATABASE_URL=" + db.URL(pgtest.RoleMigrator),
		"MANIFOLD_DATABASE_APP_URL=" + db.URL(migrations.RoleApp),
		"MANIFOLD_DATABASE_SYSTEM_URL=" + db.URL(migrations.RoleSystem),
		"MANIFOLD_DATABASE_DOCUMENTS_URL=" + db.URL(migrations.RoleDocuments),
		"MANIFOLD_DATABASE_RETENTION_URL=" + db.URL(migrations.RoleRetention),
		`MANIFOLD_DATABASES={"mine": {"driver": "memory", "url": "memory://x"}}`,
		"MANIFOLD_PROJECTIONS=" + definitions,
	})
	var tenant struct{ ID string }
	s.must(t, operatorKey, "POST", "/v1/tenants", `{"name": "acme"}`, &tenant)
	var key struct{ Key string }
	s.must(t, operatorKey, "POST", "/v1/tenants/"+tenant.ID+"/keys",
		`{"name": "all", "scopes": ["events:append", "events:read", "projections:write", "documents:read"]}`, &key)
	s.must(t, key.Key, "PUT", "/v1/projections/own-orders", fmt.Sprintf(definition, "own-orders"), nil)
	for i, price := range []int{5, 30, 20, 40} {
		s.must(t, key.Key, "POST", fmt.Sprintf("/v1/streams/order-%d/events", i), fmt.Sprintf(`[{"type": "ItemAdded", "data": {"price": %d}}]`, price), nil)
	}
	query := "/documents?" + url.Values{
		"filter": {"doc.total >= 20"}, "orderBy": {"total desc"}, "count": {"exact"}, "pageSize": {"2"}, "minPosition": {"4"}, "timeout": {"30"},
	}.Encode()
	read := func() {
		t.Helper()
		for _, projection := range []string{"orders", "own-orders"} {
			var page struct {
				Documents []struct {
					ID       string
					Document struct{ Total int }
				}
				Count int
			}
			// While a projection is lost and rebuilt, the response is 503.
			s.until(t, key.Key, "/v1/projections/"+projection+query, &page)
			var totals []int
			for _, document := range page.Documents {
				totals = append(totals, document.Document.Total)
			}
			if !slices.Equal(totals, []int{40, 30}) || page.Count != 3 {
				t.Errorf("%s lists %v of %d totals; want 40 and 30 of 3", projection, totals, page.Count)
			}
		}
	}
	read()
	var explained struct{ Explanation struct{ Statement string } }
	s.must(t, operatorKey, "GET", "/v1/projections/orders/documents?explain=true&tenant="+tenant.ID, "", &explained)
	if statement := explained.Explanation.Statement; statement != "look at each of the tenant's documents" {
		t.Errorf("it is explained as %q", statement)
	}

	// The process takes the documents with it. The next one finds the projections without documents, and rebuilds them.
	s.stop(t)
	s = start(t, program, s.environ)
	read()
	s.must(t, key.Key, "POST", "/v1/streams/order-2/events", `[{"type": "ItemAdded", "data": {"price": -15}}]`, nil)
	s.stop(t)
}

// service is a running binary.
type service struct {
	environ []string
	url     string
	process *exec.Cmd
	reading sync.WaitGroup
	output  strings.Builder // its whole output, to be read when it has ended
}

// start returns when the service listens.
func start(t *testing.T, program string, environ []string) *service {
	t.Helper()
	s := &service{environ: environ, process: exec.Command(program, "serve")}
	s.process.Env = append(slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "MANIFOLD_") }), environ...)
	output, err := s.process.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.process.Start(); err != nil {
		t.Fatal(err)
	}
	listening := make(chan string, 1)
	s.reading.Go(func() {
		defer close(listening)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			fmt.Fprintln(&s.output, lines.Text())
			var entry struct{ Msg, Address string }
			if json.Unmarshal(lines.Bytes(), &entry) == nil && entry.Msg == "listening" {
				listening <- entry.Address
			}
		}
	})
	t.Cleanup(func() {
		s.process.Process.Kill()
		s.reading.Wait()
		if t.Failed() {
			t.Log(s.output.String())
		}
	})
	address, ok := <-listening
	if !ok {
		t.Fatalf("it does not start: %v", s.process.Wait())
	}
	s.url = "http://" + address
	return s
}

// stop shuts the service down gracefully.
func (s *service) stop(t *testing.T) {
	t.Helper()
	if err := s.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.reading.Wait()
	if err := s.process.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
}

func (s *service) call(t *testing.T, key, method, path, body string) (status int, answer []byte) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	request.Close = true // leave no connection for the leak check to find
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, answer
}

// must calls, decodes the response, and fails the test if it is an error.
func (s *service) must(t *testing.T, key, method, path, body string, to any) {
	t.Helper()
	status, answer := s.call(t, key, method, path, body)
	if status >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
	if to != nil {
		if err := json.Unmarshal(answer, to); err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
	}
}

// until repeats a read until the response is no longer that the database cannot serve now.
func (s *service) until(t *testing.T, key, path string, to any) {
	t.Helper()
	for patience := time.After(2 * time.Minute); ; {
		status, answer := s.call(t, key, "GET", path, "")
		if status != http.StatusServiceUnavailable {
			if status != http.StatusOK {
				t.Fatalf("GET %s: %d %s", path, status, answer)
			}
			if err := json.Unmarshal(answer, to); err != nil {
				t.Fatalf("GET %s: %v", path, err)
			}
			return
		}
		select {
		case <-patience:
			t.Fatalf("GET %s: still %d %s", path, status, answer)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
