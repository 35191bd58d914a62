package systemtest

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/rs/zerolog"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// network is what lies between the service and a database of documents.
type network struct {
	t     *testing.T
	proxy *toxiproxy.Proxy
}

// newNetwork puts a network before the database at a URL, and returns the URL through it.
func newNetwork(t *testing.T, address string) (*network, string) {
	t.Helper()
	parsed, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	server := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(nil), zerolog.Nop())
	n := &network{t, toxiproxy.NewProxy(server, t.Name(), "127.0.0.1:0", parsed.Host)}
	n.connect()
	t.Cleanup(n.cut)
	parsed.Host = n.proxy.Listen
	return n, parsed.String()
}

// cut ends every connection, and refuses new ones until connect.
func (n *network) cut() { n.proxy.Stop() }

func (n *network) connect() {
	n.t.Helper()
	if err := n.proxy.Start(); err != nil {
		n.t.Fatal(err)
	}
}

// hang swallows everything that is sent, and keeps the connections.
func (n *network) hang() {
	n.t.Helper()
	for _, direction := range []string{"upstream", "downstream"} {
		toxic := fmt.Sprintf(`{"name": %q, "type": "timeout", "stream": %[1]q, "toxicity": 1, "attributes": {"timeout": 0}}`, direction)
		if _, err := n.proxy.Toxics.AddToxicJson(strings.NewReader(toxic)); err != nil {
			n.t.Fatal(err)
		}
	}
}

// heal lets everything pass again.
func (n *network) heal() { n.proxy.Toxics.ResetToxics(context.Background()) }

// A database of documents is cut off, comes back, hangs, and comes back: its projections wait in sight and go on by
// themselves, and those of the other database never lag.
func TestDatabaseThatGoesDown(t *testing.T) {
	t.Parallel()
	c := configuration(pgtest.Database(t))
	network, address := newNetwork(t, pgtest.Database(t).URL(migrations.RoleDocuments))
	c.Databases = map[string]config.DocumentsDatabase{"reports": {Driver: "postgres", URL: address}}
	c.Limits.ProjectionWorkers = 2
	operator := newUser(t, inside(t, c), operatorKey)
	_, u := newTenant(t, operator, "acme")
	p := &party{user: u, name: "acme", history: newHistory()}
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
		for late := time.After(time.Minute); ; {
			position = add()
			begin := time.Now()
			sees("here", position)
			if took := time.Since(begin); took > 5*time.Second {
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
		if err != nil || a.status != http.StatusServiceUnavailable || a.code() != "unavailable" || time.Since(begin) > 2*time.Second {
			t.Errorf("after %s a read there: %s, %v", time.Since(begin), a, err)
		}
		var ready client.Readiness
		if a, err := u.once(t.Context(), 0, "GET", "/readyz", nil); err != nil {
			t.Error(err)
		} else if err := a.decode(http.StatusOK, &ready); err != nil {
			t.Error(err)
		}
		shown := false
		for _, check := range ready.Checks {
			shown = shown || check.Name == "documents: reports" && !check.Ok && strings.Contains(check.Message, "since")
		}
		if !shown {
			t.Errorf("/readyz shows %+v", ready)
		}
		return position
	}

	everywhere(add())
	network.cut()
	goesDown()
	network.connect()
	everywhere(add())

	network.hang()
	goesDown()
	network.heal()
	everywhere(add())
}
