package systemtest

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/manifold-es/manifold"
	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// A decider of the program answers at the endpoint of commands, and its outcomes are counted with the others.
func TestDecidersOfTheProgram(t *testing.T) {
	t.Parallel()
	double := manifold.WithDecider("account", "Double", func(_ context.Context, d aggregate.Decision) ([]aggregate.NewEvent, error) {
		var state struct{ Balance int }
		if err := json.Unmarshal(d.State, &state); err != nil {
			return nil, err
		}
		if state.Balance > 2 {
			return nil, &aggregate.Rejection{Code: "rich", Message: "that is enough"}
		}
		return []aggregate.NewEvent{{Type: "Deposited", Data: json.RawMessage(`{"amount": 2}`)}}, nil
	})
	c := configuration(pgtest.Database(t))
	c.Admin.Listen = "none" // so that the metrics are at the same address
	operator := newUser(t, inside(t, c, double), operatorKey)
	_, u := newTenant(t, operator, "acme")
	u.must(t, 200, nil, "PUT", "/v1/aggregates/account", map[string]any{
		"initial": map[string]any{"balance": 0}, "on": map[string]string{"Deposited": `{"balance": state.balance + event.data.amount}`},
	})
	const path = "/v1/aggregates/account/7/commands/Double"
	for _, version := range []int64{1, 2} {
		var outcome struct{ Version int64 }
		if u.must(t, 200, &outcome, "POST", path, []byte(`{"data": {}}`)); outcome.Version != version {
			t.Errorf("the account is at version %d, want %d", outcome.Version, version)
		}
	}
	rejected, err := u.once(t.Context(), 0, "POST", path, []byte(`{"data": {}}`))
	if err != nil || rejected.status != 422 || !strings.Contains(string(rejected.body), `"reason":"rich"`) {
		t.Errorf("a rejection is answered %s, %v", rejected, err)
	}
	metrics, err := operator.once(t.Context(), 0, "GET", "/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`manifold_command_seconds_count{outcome="accepted"} 2`, `manifold_command_seconds_count{outcome="rejected"} 1`} {
		if !strings.Contains(string(metrics.body), want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}
