package schema

import (
	"encoding/json"
	"errors"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// Check checks a value, which may be any JSON, against the schema. The error is domain.CodeInvalidRequest with up to
// ten violations whose Where is where, or domain.CodeTooCostly. The result is meaningless if the meter ended the check.
func (s *Schema) Check(meter *expr.Meter, where string, value json.RawMessage) error {
	e := &evaluator{left: maxSteps, meter: meter}
	parsed, err := parseValue(value)
	if err != nil {
		return domain.Errorf(domain.CodeInvalidJSON, where, "%s", err)
	}
	ok, err := e.evaluate(s, parsed)
	meter.Spend(e.unmetered)
	switch {
	case errors.Is(err, errTooCostly):
		return domain.Errorf(domain.CodeTooCostly, where, "checking it against its schema takes more than %d steps; make it smaller, or simplify the schema", maxSteps)
	case err != nil:
		return err
	case ok:
		return nil
	}
	for i := range e.found {
		e.found[i].Where = where
	}
	problem := domain.Errorf(domain.CodeInvalidRequest, where, "it does not fit its schema: %s", summary(e.found))
	problem.Violations = e.found
	return problem
}
