package service_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/service"
)

// Each of many groups has maintenance work that fails because the database does not answer.
func TestOutageDoesNotFloodTheLog(t *testing.T) {
	t.Parallel()
	const groups = 30
	server := pgtest.Private(t, pgtest.Options{})
	log := &notes{wrote: make(chan struct{}, 1)}
	p, err := service.Start(t.Context(), configuration(pgtest.Migrated(t, server)), slog.New(slog.NewTextHandler(log, nil)), service.Extensions{})
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, p)
	u := as(t, p, newTenant(t, p, "acme"))
	u.add("thing-1", "Added", `{}`)
	for n := range groups {
		name := fmt.Sprint("group-", n)
		put, err := u.PutSubscriptionWithResponse(t.Context(), name, client.NewSubscription{AckTimeout: new(1.0), MaxAttempts: new(1)})
		if err != nil || put.JSON201 == nil {
			t.Fatal(err, string(put.Body))
		}
		got, err := u.ReceiveWithResponse(t.Context(), name, client.Receive{})
		if err != nil || got.JSON200 == nil || len(got.JSON200.Deliveries) != 1 {
			t.Fatal(err, string(got.Body))
		}
	}
	server.Kill()
	const message = "expired deliveries of a group could not be processed"
	metrics := func() string {
		address := p.AdminAddress()
		if address == "" {
			address = p.Address()
		}
		status, text := getAt(t, address, "/metrics")
		if status != http.StatusOK {
			t.Fatalf("/metrics is answered %d", status)
		}
		return text
	}
	counted := func() (n int) {
		for line := range strings.Lines(metrics()) {
			fmt.Sscanf(line, "manifold_log_repeated_warnings_total %d", &n) //nolint:errcheck // most lines are others
		}
		return n
	}
	for late := time.After(time.Minute); counted() < groups-1 || !strings.Contains(log.String(), message); {
		select {
		case <-late:
			t.Fatalf("%d warnings were counted; the log has\n%s", counted(), log)
		case <-time.After(50 * time.Millisecond):
		}
	}
	kinds := make(map[string]int)
	for line := range strings.Lines(log.String()) {
		if _, rest, ok := strings.Cut(line, "level=WARN msg="); ok {
			kinds[strings.SplitN(rest, "\"", 3)[1]]++
		}
	}
	// Causes alternate: connections break, and the server is starting or gone.
	for kind, lines := range kinds {
		if lines > 4 {
			t.Errorf("%q is logged %d times", kind, lines)
		}
	}
	if kinds[message+"; trying again"] == 0 {
		t.Errorf("logged are %v", kinds)
	}
}
