package webhook

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// maxDedupeBytes is the maximum length of a deduplication's expression.
const maxDedupeBytes = 8000

// Dedupe finds events that repeat an earlier one, for the consumer of a service group: a webhook, its replay, or a
// reactor. Its methods may be called concurrently. A nil Dedupe finds none.
type Dedupe struct {
	store  *Postgres
	key    *expr.Key
	window time.Duration
}

// CheckDedupe checks an expression event -> string, and the window within which only the first event with the same
// result is delivered. Both are empty if there is no deduplication. The error is a *domain.Error at dedupe.id or
// dedupe.window.
func CheckDedupe(id string, window time.Duration) error {
	wrong := func(where, format string, args ...any) error {
		return domain.Errorf(domain.CodeInvalidRequest, where, format, args...)
	}
	switch {
	case id == "" && window != 0:
		return wrong("dedupe.id", "it is missing; write an expression that returns a string, such as event.data.order")
	case id == "":
		return nil
	case window < time.Second || window > MaxDedupeWindow:
		return wrong("dedupe.window", "it is %s; it must be from 1s to %s", window, MaxDedupeWindow)
	case len(id) > maxDedupeBytes:
		return wrong("dedupe.id", "it has %d bytes; at most %d are allowed", len(id), maxDedupeBytes)
	}
	err := expr.CheckString(id)
	if failure, ok := errors.AsType[*expr.CompileError](err); ok {
		return domain.Errorf(domain.CodeInvalidDefinition, "dedupe.id", "%s", failure)
	}
	return err
}

// NewDedupe returns a Dedupe for a checked expression and window. It returns nil if the expression is empty.
func NewDedupe(store *Postgres, id string, window time.Duration) (*Dedupe, error) {
	if id == "" {
		return nil, nil
	}
	key, err := expr.CompileKey(id)
	if err != nil {
		return nil, err
	}
	return &Dedupe{store, key, window}, nil
}

// Duplicates reports for each delivery of a group whether another event with its id was delivered within the window. An
// event without an id is not a duplicate, nor is one for which the expression fails. Repeating a call gives the same
// answer, in any process.
func (d *Dedupe) Duplicates(ctx context.Context, tenant domain.TenantID, group string, deliveries []domain.Delivery) ([]bool, error) {
	duplicate := make([]bool, len(deliveries))
	if d == nil {
		return duplicate, nil
	}
	var at []int
	claims := make(map[int]Claim)
	for i := range deliveries {
		event := &deliveries[i].Event
		id, ok, err := d.key.Eval(expr.NewEvent(event))
		if !ok || err != nil {
			continue
		}
		at = append(at, i)
		claims[i] = Claim{ID: ClaimID(id), Position: event.Position, RecordedAt: event.RecordedAt}
	}
	if len(at) == 0 {
		return duplicate, nil
	}
	slices.SortFunc(at, func(a, b int) int { return cmp.Compare(claims[a].Position, claims[b].Position) })
	asked := make([]Claim, len(at))
	for n, i := range at {
		asked[n] = claims[i]
	}
	found, err := d.store.ClaimEvents(ctx, tenant, group, d.window, asked)
	if err != nil {
		return nil, err
	}
	if len(found) != len(at) {
		return nil, errors.New("the store returned unrequested claims")
	}
	for n, i := range at {
		duplicate[i] = found[n]
	}
	return duplicate, nil
}

// Sweep removes a slice of the claims that later events of a group cannot meet. more reports that there may be more. It
// is for groups other than those of webhooks, which SweepWebhook sweeps.
func (d *Dedupe) Sweep(ctx context.Context, tenant domain.TenantID, group string) (more bool, err error) {
	if d == nil {
		return false, nil
	}
	return d.store.sweepClaimsOf(ctx, tenant, group, d.window+ClaimsKept)
}
