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

// foldedChanges returns the projections whose changes a definition folds, if the definition publishes its own changes;
// otherwise none.
func foldedChanges(definition domain.Definition) (names []string) {
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

// findCycle returns the cycle from a projection back to itself, or nil if there is none. The first element feeds the
// last, and each other element feeds the one before it. folded are the projections whose changes this one folds, and
// others those of the others.
func findCycle(projection string, folded []string, others map[string][]string) []string {
	via := map[string]string{} // the projection through which each one was reached
	var next []string
	visit := func(from string, names []string) {
		for _, name := range names {
			if _, seen := via[name]; !seen {
				via[name] = from
				next = append(next, name)
			}
		}
	}
	for visit(projection, folded); len(next) > 0; {
		name := next[0]
		if next = next[1:]; name == projection {
			cycle := []string{projection}
			for from := via[projection]; from != projection; from = via[from] {
				cycle = append(cycle, from)
			}
			return cycle
		}
		visit(name, others[name])
	}
	return nil
}

// requireNoCycle refuses a definition that was just written for a projection if its changes would come back to it. If
// one owner writes several at the same time, the last one sees the others.
func requireNoCycle(ctx context.Context, tx pgx.Tx, id domain.ProjectionID, definition domain.Definition) error {
	folded := foldedChanges(definition)
	if len(folded) == 0 {
		return nil
	}
	// Each owner of a projection has a row here, because it has taken a build number.
	if _, err := tx.Exec(ctx, "select from build_numbers b where b.tenant_id = $1 for update", id.Owner); err != nil {
		return fmt.Errorf("wait for other definitions: %w", err)
	}
	const publishers = `(d.definition->>'publishChanges')::boolean and d.definition->'source'->>'categories' like '%.changed"%'`
	rows, _ := tx.Query(ctx, `
		select d.name, d.definition from projections d where d.tenant_id in ($1, $2) and d.name <> $3 and `+publishers+`
		union all
		select r.name, r.definition from rebuilds r cross join lateral (select r.name, r.definition) as d
		where r.tenant_id = $1 and r.name <> $3 and `+running+` and not coalesce((r.options->>'dryRun')::boolean, false) and `+publishers,
		id.Owner, domain.Everyone, id.Name)
	others := make(map[string][]string)
	var name string
	var text []byte
	_, err := pgx.ForEachRow(rows, []any{&name, &text}, func() error {
		var other domain.Definition
		if err := pg.DecodeStrictly(text, &other); err != nil {
			return err
		}
		others[name] = append(others[name], foldedChanges(other)...)
		return nil
	})
	if err != nil {
		return fmt.Errorf("read which changes the projections fold: %w", err)
	}
	cycle := findCycle(id.Name, folded, others)
	if cycle == nil {
		return nil
	}
	const maxSteps = 10
	var steps []string
	for i, name := range cycle {
		if i == maxSteps {
			steps = append(steps, fmt.Sprintf("and so on by %d more", len(cycle)-maxSteps))
			break
		}
		steps = append(steps, fmt.Sprintf("%q is folded by %s", domain.ChangesCategory(name), cycle[(i+1)%len(cycle)]))
	}
	return domain.Errorf(domain.CodeInvalidDefinition, "source.categories", "the changes would form a cycle: %s; leave out one of these categories, or publishChanges of one of the projections",
		strings.Join(steps, ", "))
}
