package systemtest

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// Two processes share the tenants. When one is killed, the other one works on all of them soon.
func TestTheOtherProcessTakesOver(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	one, two := serve(t, db), serve(t, db)
	operator := newUser(t, services{one}, operatorKey)
	tenants := make([]user, 8)
	for i := range tenants {
		_, tenants[i] = newTenant(t, operator, fmt.Sprintf("tenant-%d", i))
		tenants[i].must(t, http.StatusCreated, nil, http.MethodPost, "/v1/projections",
			map[string]any{"name": "counts", "key": "'all'", "on": map[string]string{"*": "merge(doc, {'n': event.position})"}})
		tenants[i].must(t, http.StatusCreated, nil, http.MethodPost, "/v1/streams/order-1/events", []map[string]any{{"type": "Placed", "data": map[string]int{"n": 1}}})
	}
	caughtUp := func() {
		t.Helper()
		for i := range tenants {
			var state client.ProjectionState
			tenants[i].must(t, http.StatusOK, &state, http.MethodPost, "/v1/projections/counts/catch-up?timeout=30", nil)
			if state.Checkpoint == nil || *state.Checkpoint != state.Head {
				t.Errorf("tenant %d is at %+v", i, state)
			}
		}
	}
	caughtUp()
	members := func() []client.Member {
		t.Helper()
		var list client.MemberList
		operator.must(t, http.StatusOK, &list, http.MethodGet, "/v1/admin/members", nil)
		return list.Members
	}
	await := func(n int) []client.Member {
		t.Helper()
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for deadline := time.After(patience); ; {
			if now := members(); len(now) == n {
				return now
			}
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("there are %+v, want %d members", members(), n)
			}
		}
	}
	shared, ofTwo := int64(0), int64(0)
	address, _ := two.state()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	for _, member := range await(2) {
		if shared += member.Tenants; strings.HasSuffix(member.Name, ":"+port) {
			ofTwo = member.Tenants
		}
		if member.Name == "" || member.Version == "" || member.StartedAt.IsZero() || member.AliveAt.IsZero() {
			t.Errorf("a member is %+v", member)
		}
	}
	if shared != int64(len(tenants)) {
		t.Errorf("the members have %d tenants, there are %d", shared, len(tenants))
	}

	// The first process learns of the second with its next sign of life.
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(patience); ; {
		a, err := newUser(t, fixed(one.admin), operatorKey).once(t.Context(), 0, http.MethodGet, "/metrics", nil)
		if err == nil && strings.Contains(string(a.body), fmt.Sprintf("\nmanifold_member_tenants %d\n", int64(len(tenants))-ofTwo)) &&
			strings.Contains(string(a.body), "\nmanifold_members 2\n") {
			break
		}
		select {
		case <-tick.C:
			continue
		case <-deadline:
			t.Fatalf("the first process does not hand %d tenants over", ofTwo)
		}
	}
	caughtUp()

	two.kill()
	killed := time.Now()
	for i := range tenants {
		tenants[i].must(t, http.StatusCreated, nil, http.MethodPost, "/v1/streams/order-1/events", []map[string]any{{"type": "Placed", "data": map[string]int{"n": 2}}})
	}
	caughtUp()
	took := time.Since(killed)
	t.Logf("the %d tenants of the killed process were caught up with after %s", ofTwo, took.Round(time.Millisecond))
	if took > within(15*time.Second) { // it took 5 s
		t.Errorf("it took %s until all tenants were worked on", took)
	}
	if left := await(1); left[0].Tenants != int64(len(tenants)) {
		t.Errorf("the one that is left has %d tenants", left[0].Tenants)
	}
	two.start()
	await(2)
	caughtUp()
}
