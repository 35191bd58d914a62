package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// A projection that publishes its changes may fold the changes of others. If these form a cycle, each change would
// cause the next, endlessly, in the log of every tenant. So the transaction that stores a definition refuses it if it
// would close a cycle, since all of the owner's definitions are visible there. A shared projection is checked only
// against other shared ones, so that a tenant's own projections cannot stop the operator from deploying.

// feeding returns the projections whose changes a definition folds, if the definition publishes its own changes;
// otherwise none.
func feeding(definition domain.Definition) (names []string) {
	if !definition.PublishChanges {
		return nil
	}
	types := definition.Types()
	for _, category := range definition.Source.Categories {
		name, ok := strings.CutSuffix(category, domain.ChangesCategory(""))
		// The type equals the category. Only the program knows which types a handler folds.
		if ok && (definition.Handler != "" || types == nil || slices.Contains(types, category)) {
			names = append(names, name)
		}
	}
	return names
}

// circle returns the cycle from a projection back to itself, or nil if there is none. The first element feeds the last,
// and each other element feeds the one before it.
func circle(of string, feeding []string, others map[string][]string) []string {
	from := map[string]string{} // the projection through which each one was reached
	next := []string{}
	come := func(by string, names []string) {
		for _, name := range names {
			if _, seen := from[name]; !seen {
				from[name] = by
				next = append(next, name)
			}
		}
	}
	for come(of, feeding); len(next) > 0; {
		name := next[0]
		if next = next[1:]; name == of {
			way := []string{of}
			for by := from[of]; by != of; by = from[by] {
				way = append(way, by)
			}
			return way
		}
		come(name, others[name])
	}
	return nil
}

// mustEnd refuses a definition that was just written for a projection if its changes would come back to it. If one
// owner writes several at the same time, the last one sees the others.
func mustEnd(ctx context.Context, tx pgx.Tx, id domain.ProjectionID, definition domain.Definition) error {
	start := feeding(definition)
	if len(start) == 0 {
		return nil
	}
	// Each owner of a projection has a row here, because it has taken a build number.
	if _, err := tx.Exec(ctx, "select from build_numbers b where b.tenant_id = $1 for update", id.Owner); err != nil {
		return fmt.Errorf("wait for other definitions: %w", err)
	}
	const some = `(d.definition->>'publishChanges')::boolean and d.definition->'source'->>'categories' like '%.changed"%'`
	rows, _ := tx.Query(ctx, `
		select d.name, d.definition from projections d where d.tenant_id in ($1, $2) and d.name <> $3 and `+some+`
		union all
		select r.name, r.definition from rebuilds r cross join lateral (select r.name, r.definition) as d
		where r.tenant_id = $1 and r.name <> $3 and `+running+` and not coalesce((r.options->>'dryRun')::boolean, false) and `+some,
		id.Owner, domain.Everyone, id.Name)
	others := make(map[string][]string)
	var name string
	var text []byte
	_, err := pgx.ForEachRow(rows, []any{&name, &text}, func() error {
		var other domain.Definition
		if err := pg.DecodeStrictly(text, &other); err != nil {
			return err
		}
		others[name] = append(others[name], feeding(other)...)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read which changes the projections fold: %w", err)
	}
	way := circle(id.Name, start, others)
	if way == nil {
		return nil
	}
	const most = 10
	var steps []string
	for i, name := range way {
		if i == most {
			steps = append(steps, fmt.Sprintf("and so on by %d more", len(way)-most))
			break
		}
		steps = append(steps, fmt.Sprintf("%q is folded by %s", domain.ChangesCategory(name), way[(i+1)%len(way)]))
	}
	return domain.Errorf(domain.CodeInvalidDefinition, "source.categories", "the changes would form a cycle: %s; leave out one of these categories, or publishChanges of one of the projections",
		strings.Join(steps, ", "))
}
