package aggregate

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

func TestDefinitionsAreChecked(t *testing.T) {
	t.Parallel()
	_, states, tenant := begin(t, false)
	for name, test := range map[string]struct {
		change func(*Definition)
		where  string
		says   string
	}{
		"expression": {func(d *Definition) { d.On["Added"] = "{'a': state.b +}" }, "on.Added", "line 1, column"},
		"variable":   {func(d *Definition) { d.On["Added"] = "doc" }, "on.Added", "doc"},
		"type":       {func(d *Definition) { d.On["No Type"] = "state" }, "on.No Type", "event type"},
		"nothing":    {func(d *Definition) { d.On = nil }, "on", "no event type"},
		"initial":    {func(d *Definition) { d.Initial = json.RawMessage(`[1]`) }, "initial", "object"},
		"not JSON":   {func(d *Definition) { d.Initial = json.RawMessage(`{"a": "\u0000"}`) }, "initial", "U+0000"},
		"category":   {func(d *Definition) { d.Category = "a-b" }, "category", "category"},
		"often":      {func(d *Definition) { d.SnapshotEvery = 1 }, "snapshotEvery", "10 to 100000"},
		"long":       {func(d *Definition) { d.On["Added"] = strings.Repeat(" ", MaxDefinitionBytes) + "state" }, "", "at most"},
		"two":        {func(d *Definition) { d.SnapshotEvery, d.On["Added"] = -1, "" }, "", "2 problems"},
	} {
		t.Run(name, func(t *testing.T) {
			definition := adding("sum")
			test.change(&definition)
			problem, ok := errors.AsType[*domain.Error](states.Put(t.Context(), tenant, definition))
			if !ok || problem.Code != domain.CodeInvalidDefinition || problem.Where != test.where || !strings.Contains(problem.Message, test.says) {
				t.Errorf("got %+v", problem)
			}
		})
	}
	if all, err := states.Definitions(t.Context(), tenant); err != nil || len(all) != 0 {
		t.Errorf("something was kept: %v, %v", all, err)
	}
}
