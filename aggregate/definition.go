package aggregate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// Limits of a definition.
const (
	MinSnapshotEvery   = 10
	MaxSnapshotEvery   = 100_000
	MaxDefinitionBytes = 256 << 10 // of all expressions and the initial state together
)

// ParseDefinition reads a definition from JSON, without checking what it means. Unknown fields are errors. The error is
// a *domain.Error with domain.CodeInvalidDefinition.
func ParseDefinition(text json.RawMessage) (Definition, error) {
	var raw struct {
		Definition
		Commands json.RawMessage `json:"commands"`
	}
	if err := unmarshal(text, &raw); err != nil {
		return Definition{}, domain.Errorf(domain.CodeInvalidDefinition, "", "%s", err)
	}
	commands, err := ParseCommands(raw.Commands)
	raw.Definition.Commands = commands
	return raw.Definition, err
}

// unmarshal reads JSON, in which unknown fields are errors.
func unmarshal(text json.RawMessage, into any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	return decoder.Decode(into)
}

// Check returns the error with which Put refuses a definition.
func (s *States) Check(ctx context.Context, tenant domain.TenantID, definition Definition) error {
	ctx, end, err := s.requests.Begin(ctx, tenant, definitionAdvice)
	if err != nil {
		return err
	}
	defer end()
	return budget.Work(ctx, func() error { return check(expr.MeterOf(ctx), definition) })
}

// Put checks a definition and stores it in place of the category's previous one, whose snapshots are no longer used. An
// invalid definition is a *domain.Error with domain.CodeInvalidDefinition that names every place.
func (s *States) Put(ctx context.Context, tenant domain.TenantID, definition Definition) error {
	if err := s.Check(ctx, tenant, definition); err != nil {
		return err
	}
	before, err := s.store.Aggregate(ctx, tenant, definition.Category)
	if err != nil && !domain.IsCode(err, domain.CodeNotFound) {
		return err
	}
	if err := s.store.PutAggregate(ctx, tenant, definition); err != nil {
		return err
	}
	s.folds.Remove(categoryKey{tenant, definition.Category})
	s.snapshotter.forget(tenant, definition.Category)
	if before.UpdatedAt.IsZero() || tagOf(before, nil) != tagOf(definition, nil) {
		// There may already be streams, with snapshots of a previous definition or none.
		s.Renew(tenant, definition.Category)
	}
	return nil
}

// Definition returns a category's definition. The error is domain.CodeNotFound if there is none.
func (s *States) Definition(ctx context.Context, tenant domain.TenantID, category string) (Definition, error) {
	if err := domain.CheckCategory("category", category); err != nil {
		return Definition{}, err
	}
	return s.store.Aggregate(ctx, tenant, category)
}

// Definitions returns a tenant's definitions, ordered by category.
func (s *States) Definitions(ctx context.Context, tenant domain.TenantID) ([]Definition, error) {
	return s.store.Aggregates(ctx, tenant)
}

// Delete removes a category's definition and the snapshots folded with it; the clients' own snapshots stay. The error
// is domain.CodeNotFound if there is no definition.
func (s *States) Delete(ctx context.Context, tenant domain.TenantID, category string) error {
	if err := domain.CheckCategory("category", category); err != nil {
		return err
	}
	if err := s.store.DeleteAggregate(ctx, tenant, category); err != nil {
		return err
	}
	s.folds.Remove(categoryKey{tenant, category})
	s.snapshotter.forget(tenant, category)
	return nil
}

// check returns everything that keeps a definition from working as one *domain.Error with domain.CodeInvalidDefinition,
// each problem with its place, such as "on.ItemAdded: line 1, column 12: ...". The result is meaningless if the meter
// ended it.
func check(meter *expr.Meter, definition Definition) error {
	var wrong []*domain.Error
	add := func(where, format string, args ...any) {
		wrong = append(wrong, domain.Errorf(domain.CodeInvalidDefinition, where, format, args...))
	}
	adopt := func(err error) {
		if problem, ok := errors.AsType[*domain.Error](err); ok {
			add(problem.Where, "%s", problem.Message)
		}
	}
	adopt(domain.CheckCategory("category", definition.Category))
	if every := definition.SnapshotEvery; every != 0 && (every < MinSnapshotEvery || every > MaxSnapshotEvery) {
		add("snapshotEvery", "%d events between snapshots are not possible; use %d to %d, or leave it out for %d", every, MinSnapshotEvery, MaxSnapshotEvery, DefaultSnapshotEvery)
	}
	size := len(definition.Initial)
	if len(definition.Initial) > 0 {
		// Check both what the database can store and what an expression accepts.
		if err := domain.CheckJSON(definition.Initial); err != nil {
			add("initial", "%s", err)
		} else if _, err := expr.ParseDocument(definition.Initial); err != nil {
			add("initial", "%s", err)
		}
	}
	if len(definition.On) == 0 {
		add("on", "there is no event type in it; write at least one, such as {\"OrderPlaced\": \"merge(state, event.data)\"}")
	}
	for _, source := range definition.On {
		size += len(source)
	}
	for _, command := range definition.Commands {
		size += command.bytes()
	}
	if size > MaxDefinitionBytes {
		add("", "the definition has %d bytes; at most %d are allowed", size, MaxDefinitionBytes)
	} else if _, err := compileAll(meter, "on.", definition.On, add); err != nil {
		return err
	} else if _, err := compileCommands(meter, definition, nil, add); err != nil {
		return err
	}
	switch len(wrong) {
	case 0:
		return nil
	case 1:
		return wrong[0]
	}
	lines := make([]string, len(wrong))
	for i, one := range wrong {
		lines[i] = one.Error()
	}
	sum := domain.Errorf(domain.CodeInvalidDefinition, "", "%d problems: %s", len(wrong), strings.Join(lines, "; "))
	sum.Parts = wrong
	return sum
}

// compileAll compiles the expressions of a fold, and calls wrong for each that does not compile; prefix begins their
// places. The result is meaningless if the meter ended it.
func compileAll(meter *expr.Meter, prefix string, on map[string]string, wrong func(where, format string, args ...any)) (map[string]*expr.Fold, error) {
	folds := make(map[string]*expr.Fold, len(on))
	for _, eventType := range slices.Sorted(maps.Keys(on)) {
		if !meter.SpendSource(len(on[eventType])) {
			break
		}
		where := prefix + eventType
		if eventType != anyType {
			if problem, ok := errors.AsType[*domain.Error](domain.CheckType(where, eventType)); ok {
				wrong(problem.Where, "%s", problem.Message)
				continue
			}
		}
		fold, err := expr.CompileFold(expr.ScopeAggregate, on[eventType])
		if _, ok := errors.AsType[*expr.CompileError](err); ok {
			wrong(where, "%s", err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("compile %s: %w", where, err)
		}
		folds[eventType] = fold
	}
	return folds, nil
}
