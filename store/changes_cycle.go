package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/domain"
)

// A projection that publishes its changes may fold those of others. Where they go round, each change would be the cause of the next,
// for ever, in the log of every tenant. So a definition that would close such a circle is refused in the transaction that keeps it,
// which is where all of an owner's definitions can be seen. A shared one is looked at among the shared ones: what a tenant has of its
// own does not keep the operator from deploying.

// feeding are the names of the projections whose changes a definition folds that publishes its own; none where it does not.
func feeding(definition domain.Definition) (names []string) {
	if !definition.PublishChanges {
		return nil
	}
	types := definition.Types()
	for _, category := range definition.Source.Categories {
		name, ok := strings.CutSuffix(category, domain.ChangesCategory(""))
		// The type is called as the category. What a handler folds the program alone knows.
		if ok && (definition.Handler != "" || types == nil || slices.Contains(types, category)) {
			names = append(names, name)
		}
	}
	return names
}

// circle returns the way from a projection back to itself by whose changes feed whom, the first feeding the last, and each of the
// others the one before it; nil where there is none.
func circle(of string, feeding []string, others map[string][]string) []string {
	from := map[string]string{} // by whom a projection was come to
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

// mustEnd refuses a definition that was just written for a projection, where its changes would come back to it. Of several that
// are written at the same time by one owner the last one sees the others.
func mustEnd(ctx context.Context, tx pgx.Tx, id domain.ProjectionID, definition domain.Definition) error {
	start := feeding(definition)
	if len(start) == 0 {
		return nil
	}
	// Each owner of a projection has taken a number for its build.
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
		if err := decodeStrictly(text, &other); err != nil {
			return err
		}
		others[name] = append(others[name], feeding(other)...)
		return nil
	})
	if err != nil {
		return fmt.Errorf("look at whose changes the projections fold: %w", err)
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
	return domain.Errorf(domain.CodeInvalidDefinition, "source.categories", "the changes would go round for ever: %s; leave one of these categories out, or publishChanges of one of the projections",
		strings.Join(steps, ", "))
}
