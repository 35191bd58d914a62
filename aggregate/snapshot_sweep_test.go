package aggregate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

func TestSweepTakesSnapshotsOfMovedStreams(t *testing.T) {
	t.Parallel()
	s, states, tenant := begin(t, false)
	must(t, states.Put(t.Context(), tenant, adding("sum")))
	add(t, s, states, tenant, "sum-long", 1, 40)
	add(t, s, states, tenant, "sum-short", 1, 9)
	add(t, s, states, tenant, "other-1", 1, 40)
	add(t, s, states, tenant, "sum-faulty", 1, 20)
	add(t, s, states, tenant, "sum-broken", 1, 20)
	_, err := s.Append(t.Context(), tenant, domain.Append{Streams: []domain.StreamAppend{{
		Stream: "sum-faulty", Expected: domain.Any, Events: []domain.NewEvent{{Type: "Added", Data: json.RawMessage(`{}`)}},
	}}})
	must(t, err)
	for _, want := range []int{1, 0} {
		taken, err := states.Sweep(t.Context())
		must(t, err)
		if taken != want {
			t.Errorf("took %d snapshots, want %d", taken, want)
		}
	}
	got, err := states.Load(t.Context(), tenant, "sum-long", At{})
	must(t, err)
	wantState(t, got, 40, sumTo(40))
	if got.EventsRead != 0 {
		t.Errorf("%d events were read", got.EventsRead)
	}
}

// A tenant with much to sweep does not delay another one's snapshots.
func TestSweepTakesTenantsInTurn(t *testing.T) {
	t.Parallel()
	s, states, large := begin(t, false)
	states.turnTime = 0
	small := domain.NewTenantID()
	must(t, s.CreateTenant(t.Context(), domain.Tenant{ID: small, Name: small.String()}))
	if bytes.Compare(large[:], small[:]) > 0 {
		large, small = small, large // the sweep begins with the first one
	}
	for _, tenant := range []domain.TenantID{large, small} {
		must(t, states.Put(t.Context(), tenant, adding("sum")))
		must(t, states.Put(t.Context(), tenant, adding("count")))
	}
	for n := range 20 {
		add(t, s, states, large, fmt.Sprintf("sum-large%d", n), 1, 11)
		add(t, s, states, large, fmt.Sprintf("count-large%d", n), 1, 11)
	}
	add(t, s, states, small, "sum-small", 1, 11)
	add(t, s, states, small, "count-small", 1, 11)
	taken, err := states.Sweep(t.Context())
	must(t, err)
	if taken != 42 {
		t.Errorf("took %d snapshots, want 42", taken)
	}
	for n := range 42 {
		if stream := (<-s.snapshots).Stream; strings.HasSuffix(stream, "small") && n > 3 {
			t.Errorf("%s got its snapshot after %d others", stream, n)
		}
	}
}
