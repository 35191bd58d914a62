package projection

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
)

// Action says what deploying a definition does.
type Action string

// The actions.
const (
	ActionCreate  Action = "create"  // no projection has this name yet
	ActionChange  Action = "change"  // takes effect at once, since documents stay as they are: see SameDocuments
	ActionRebuild Action = "rebuild" // documents are folded again, while the present ones stay readable
	ActionRemove  Action = "remove"  // it is not among the definitions
	ActionNone    Action = "none"    // nothing changes
)

// PlannedChange says what a deployment would do to one projection.
type PlannedChange struct {
	Name    string
	Action  Action
	Changes []folding.FieldChange
	Counted bool            // Events is known: with ActionCreate and ActionRebuild, unless counting takes too long
	Events  int64           // how many events will be folded; for a shared projection, of all tenants
	Errors  []*domain.Error // why the definition cannot work or be deployed, each with its place
}

// MaxPlanned is how many definitions one plan may contain.
const MaxPlanned = 1000

// planCounting limits how long a plan counts events.
const planCounting = 5 * time.Second

// Plan compares definitions with the owner's projections, by name, and says what deploying them would do. With remove,
// it also lists the projections that are not among the definitions, except those that Manifold itself deploys. Of
// aggregates, by category, it uses these rules in place of stored ones, as if they were put before. It changes nothing.
func (c *Catalog) Plan(ctx context.Context, owner domain.TenantID, definitions []domain.Definition, remove bool, aggregates map[string]folding.AggregateRules) (plan []PlannedChange, err error) {
	ctx, end, err := c.config.Requests.Begin(ctx, owner, "plan fewer definitions at a time")
	if err != nil {
		return nil, err
	}
	defer end()
	defer func() { err = budget.Cause(ctx, err) }()
	if len(definitions) > MaxPlanned {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "definitions", "there are %d definitions; at most %d are allowed", len(definitions), MaxPlanned)
	}
	present, err := c.config.Store.Projections(ctx, owner)
	if err != nil {
		return nil, err
	}
	var shared []domain.Projection
	if owner != domain.Everyone {
		if shared, err = c.config.Store.Projections(ctx, domain.Everyone); err != nil {
			return nil, err
		}
	}
	count := counting{catalog: c, owner: owner, until: time.Now().Add(planCounting)}
	for i, definition := range definitions {
		if definition.Name == "" {
			return nil, domain.Errorf(domain.CodeInvalidRequest, fmt.Sprintf("definitions[%d].name", i), "required: the projection's name")
		}
		if slices.ContainsFunc(plan, func(p PlannedChange) bool { return p.Name == definition.Name }) {
			return nil, domain.Errorf(domain.CodeInvalidRequest, fmt.Sprintf("definitions[%d].name", i), "there are two definitions of projection %q", folding.Clip(definition.Name))
		}
		definition, err := c.complete(ctx, owner, definition, aggregates)
		if err != nil && !domain.IsCode(err, domain.CodeInvalidDefinition) {
			return nil, err
		}
		change, err := c.planChange(ctx, owner, definition, present, shared, folding.ErrorsOf(err), &count)
		if err != nil {
			return nil, err
		}
		plan = append(plan, change)
	}
	if remove {
		for _, p := range present {
			if !folding.BuiltIn(p.ProjectionID) && !slices.ContainsFunc(definitions, func(d domain.Definition) bool { return d.Name == p.Name }) {
				plan = append(plan, PlannedChange{Name: p.Name, Action: ActionRemove, Changes: folding.Changes(&p.Definition, nil)})
			}
		}
	}
	slices.SortFunc(plan, func(a, b PlannedChange) int { return strings.Compare(a.Name, b.Name) })
	return plan, nil
}

// planChange says what deploying one definition would do. incomplete is why it lacks an aggregate's rules.
func (c *Catalog) planChange(ctx context.Context, owner domain.TenantID, definition domain.Definition, present, shared []domain.Projection, incomplete []*domain.Error, count *counting) (PlannedChange, error) {
	named := func(p domain.Projection) bool { return p.Name == definition.Name }
	change := PlannedChange{Name: definition.Name}
	if i := slices.IndexFunc(present, named); i >= 0 {
		before := &present[i].Definition
		change.Action, change.Changes = actionFor(*before, definition), folding.Changes(before, &definition)
	} else {
		change.Action, change.Changes = ActionCreate, folding.Changes(nil, &definition)
		if slices.ContainsFunc(shared, named) {
			change.Errors = append(change.Errors, domain.Errorf(domain.CodeAlreadyExists, "name", "there is a shared projection named %q; choose another name", definition.Name))
		}
	}
	if len(incomplete) > 0 {
		change.Errors = append(change.Errors, incomplete...)
		return change, nil
	}
	err := c.Check(ctx, domain.ProjectionID{Owner: owner, Name: definition.Name}, definition)
	if ctx.Err() != nil {
		return PlannedChange{}, ctx.Err()
	}
	change.Errors = append(change.Errors, folding.ErrorsOf(err)...)
	if len(change.Errors) == 0 && (change.Action == ActionCreate || change.Action == ActionRebuild) {
		change.Events, change.Counted, err = count.events(ctx, definition)
		return change, err
	}
	return change, nil
}

func actionFor(before, after domain.Definition) Action {
	switch {
	case folding.SameDefinition(before, after):
		return ActionNone
	case folding.SameDocuments(before, after):
		return ActionChange
	}
	return ActionRebuild
}

// counting counts the events that projections fold, until its time is up.
type counting struct {
	catalog *Catalog
	owner   domain.TenantID
	until   time.Time
	heads   []domain.Head // of the tenants that the owner's projections run for; nil: not read yet
}

// events returns how many events a definition folds; ok is false if counting takes too long.
func (c *counting) events(ctx context.Context, definition domain.Definition) (n int64, ok bool, err error) {
	if definition.Mode == domain.ModeLive {
		return 0, true, nil // nothing is folded before a request
	}
	counted, cancel := context.WithDeadline(ctx, c.until)
	defer cancel()
	types := c.catalog.types(definition)
	err = c.findHeads(counted)
	for _, head := range c.heads {
		if err != nil {
			break
		}
		if len(definition.Source.Categories) == 0 && types == nil {
			n += head.Position
			continue
		}
		var one int64
		one, err = c.catalog.config.Store.CountEvents(counted, head.Tenant, definition.Source, types, 0, head.Position)
		n += one
	}
	if err != nil && ctx.Err() == nil && counted.Err() != nil {
		return 0, false, nil
	}
	return n, err == nil, err
}

func (c *counting) findHeads(ctx context.Context) (err error) {
	switch {
	case c.heads != nil:
	case c.owner == domain.Everyone:
		c.heads, err = c.catalog.config.Store.Heads(ctx, time.Time{})
	default:
		var head domain.Head
		if head, err = c.catalog.config.Store.Head(ctx, c.owner); err == nil {
			c.heads = []domain.Head{head}
		}
	}
	return err
}
