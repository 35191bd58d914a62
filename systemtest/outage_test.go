package systemtest

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/drivers/drivertest/proxy"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// behindProxy puts a proxy before the database at a URL, and returns the URL through it.
func behindProxy(t *testing.T, address string) (network *proxy.Proxy, through string) {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	network = proxy.New(t, parsed.Host)
	parsed.Host = network.Address()
	return network, parsed.String()
}

// A database of documents is cut off, comes back, hangs, and comes back. Its projections report that they wait, and
// continue automatically. Those of the other database never lag.
func TestDatabaseOutage(t *testing.T) {
	t.Parallel()
	c := configuration(pgtest.Database(t))
	network, address := behindProxy(t, pgtest.Database(t).URL(migrations.RoleDocuments))
	c.Databases = map[string]config.DocumentsDatabase{"reports": {Driver: "postgres", URL: address}}
	c.Limits.ProjectionWorkers = 2
	operator := newUser(t, inside(t, c), operatorKey)
	_, u := newTenant(t, operator, "acme")
	p := &tenantLoad{user: u, name: "acme", history: newHistory()}
	const there = 5
	elsewhere := func(i int) string { return fmt.Sprint("there-", i) }
	u.must(t, 201, nil, "PUT", "/v1/projections/here", sumsDefinition("here", 1))
	for i := range there {
		u.must(t, 201, nil, "PUT", "/v1/projections/"+elsewhere(i), in(sumsDefinition(elsewhere(i), 1), "reports"))
	}
	n := 0
	add := func() (position int64) {
		t.Helper()
		n++
		o, err := p.append(t.Context(), 0, client.AppendRequest{Streams: []client.StreamAppend{{
			Stream: "account-1", Events: []client.NewEvent{newEvent(eventID("outage", n), "Added", "k", int64(n))}}}})
		if err != nil {
			t.Fatal(err)
		}
		return o.answer.Position
	}
	// sees reads the projection once it has seen the position, and compares.
	sees := func(name string, position int64) {
		t.Helper()
		documents, err := u.documents(t.Context(), name, 10, position)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readSums(documents)
		if err != nil {
			t.Fatal(err)
		}
		log, err := p.log(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		compareSums(t, name, got, foldSums(t, log, 1))
	}
	everywhere := func(position int64) {
		t.Helper()
		sees("here", position)
		for i := range there {
			sees(elsewhere(i), position)
		}
	}
	// goesDown appends, sees that what is here follows at once, and waits until what is there is known to wait.
	goesDown := func() (position int64) {
		t.Helper()
		for late := time.After(patience); ; {
			position = add()
			begin := time.Now()
			sees("here", position)
			// A caller that hangs with the database is released when the database is known to be unreachable, after
			// at least 10 s.
			if took := time.Since(begin); alone && took > 9*time.Second {
				t.Errorf("what is here took %s to follow", took)
			}
			// This is about the state of an outage: a caller must not hang with the database.
			var state client.ProjectionState
			u.must(t, 200, &state, "GET", "/v1/projections/"+elsewhere(0)+"/state", nil)
			if state.State == "unavailable" && state.Since != nil && state.NextTry != nil && state.Error != "" {
				break
			}
			select {
			case <-late:
				t.Fatalf("the state is %+v", state)
			case <-time.After(50 * time.Millisecond):
			}
		}
		begin := time.Now()
		a, err := u.once(t.Context(), 0, "GET", "/v1/projections/"+elsewhere(0)+"/documents", nil)
		if err != nil || a.status != http.StatusServiceUnavailable || a.code() != "unavailable" || alone && time.Since(begin) > 9*time.Second {
			t.Errorf("after %s a read there: %s, %v", time.Since(begin), a, err)
		}
		// On a busy machine, the log's own database may take longer than /readyz waits.
		awaitThat(t, "/readyz is ready, and shows the outage", func() bool {
			var ready client.Readiness
			a, err := u.once(t.Context(), 0, "GET", "/readyz", nil)
			return err == nil && a.decode(http.StatusOK, &ready) == nil && slices.ContainsFunc(ready.Checks, func(check client.ReadinessCheck) bool {
				return check.Name == "documents: reports" && !check.Ok && strings.Contains(check.Message, "since")
			})
		})
		return position
	}

	everywhere(add())
	network.Down()
	goesDown()
	network.Up()
	everywhere(add())

	network.Hang(proxy.ToServer)
	network.Hang(proxy.ToClient)
	goesDown()
	network.Heal()
	everywhere(add())
}

// The documents in the log's database are unreachable, while the log is not. Reads of documents and inline appends
// are refused meanwhile, and /readyz reports that.
func TestReadinessAgreesWithInlineRequests(t *testing.T) {
	t.Parallel()
	c := configuration(pgtest.Database(t))
	network, address := behindProxy(t, c.Database.Documents.URL)
	c.Database.Documents.URL = address
	operator := newUser(t, inside(t, c), operatorKey)
	_, u := newTenant(t, operator, "acme")
	u.must(t, 201, nil, "PUT", "/v1/projections/sums", inline(sumsDefinition("sums", 1)))
	n := 0
	status := func(method, path string, body any) int {
		t.Helper()
		a, err := u.once(t.Context(), 0, method, path, body)
		if err != nil {
			t.Fatal(err)
		}
		return a.status
	}
	// statuses are those of an inline append to a document that nobody remembers, of a read, and of /readyz.
	statuses := func() [3]int {
		t.Helper()
		n++
		return [3]int{
			status("POST", "/v1/append", client.AppendRequest{Streams: []client.StreamAppend{{Stream: "account-1",
				Events: []client.NewEvent{newEvent(eventID("readiness", n), "Added", fmt.Sprint("key-", n), 1)}}}}),
			status("GET", "/v1/projections/sums/documents", nil),
			status("GET", "/readyz", nil),
		}
	}
	await := func(want [3]int) {
		t.Helper()
		for late := time.After(patience); ; {
			got := statuses()
			if got == want {
				return
			}
			select {
			case <-late:
				t.Fatalf("an inline append, a read and /readyz are answered %v, want %v", got, want)
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	await([3]int{201, 200, 200})
	network.Down()
	await([3]int{503, 503, 503})
	network.Up()
	for late := time.After(patience); status("GET", "/readyz", nil) != http.StatusOK; {
		select {
		case <-late:
			t.Fatal("the service does not become ready again")
		case <-time.After(10 * time.Millisecond):
		}
	}
	if got := statuses(); got != [3]int{201, 200, 200} {
		t.Errorf("once /readyz says 200, an inline append, a read and /readyz are answered %v", got)
	}
}
