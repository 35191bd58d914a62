package aggregate

import (
	"encoding/json"

	"github.com/manifold-es/manifold/expr"
)

// DecidedRule is a rule of a command that was evaluated, with what it was evaluated on.
type DecidedRule struct {
	Requirement
	Rule    int // its number in the definition's Require, from 0
	Holds   bool
	Values  []RuleValue // what the condition reads of the command's variables, at most expr.MaxPaths
	Missing []string    // paths that it reads, and that the data does not have
}

// RuleValue is what a condition reads at a path.
type RuleValue struct {
	Path    string
	Value   json.RawMessage
	Clipped bool // Value is a string: the first maxShownBytes of the value as JSON
}

// maxShownBytes is how much of a value is shown.
const maxShownBytes = 1000

// explain returns a rule that was evaluated.
func (r *requirement) explain(meter *expr.Meter, number int, holds bool, in *expr.Inputs) DecidedRule {
	rule := DecidedRule{Requirement: r.Requirement, Rule: number, Holds: holds}
	for _, path := range r.holds.Paths() {
		value, found := path.Find(in)
		if !found {
			rule.Missing = append(rule.Missing, path.String())
			continue
		}
		meter.SpendBytes(expr.Size(value))
		text, whole := expr.ClipJSON(value, maxShownBytes)
		if !whole {
			text, _ = json.Marshal(string(text)) // a string always has a JSON form
		}
		rule.Values = append(rule.Values, RuleValue{path.String(), text, !whole})
	}
	return rule
}
