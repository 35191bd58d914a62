package schema

import "context"

// OrderSchema is a schema of 20 fields, and OrderEvent is data that satisfies it.
const (
	OrderSchema = orderSchema
	OrderEvent  = orderEvent
)

// TryForTest evaluates a text, if it is JSON, and compares the schema with itself.
func TryForTest(s *Schema, text string) {
	if value, err := parseValue([]byte(text)); err == nil {
		e := &evaluator{left: stepsWithoutTurn}
		_, _ = e.evaluate(s, value)
	}
	if found := compareSchemas(s, s, "new", "old"); len(found) > 0 {
		panic("a schema is not compatible with itself: " + found[0].Message)
	}
}

// CheckUpcasters looks for changed upcasters at once.
func (s *Schemas) CheckUpcasters(ctx context.Context) error { return s.checkUpcasters(ctx) }
