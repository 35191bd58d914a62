package openapi

import (
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Time is a moment in an answer. Its JSON has the layout domain.TimeLayout, in UTC, where time.Time's own would leave
// out trailing zeros.
type Time struct{ time.Time }

// At makes a Time.
func At(t time.Time) Time { return Time{t} }

// MarshalJSON writes the time as domain.AppendTime does, as a JSON string.
func (t Time) MarshalJSON() ([]byte, error) {
	return append(domain.AppendTime([]byte{'"'}, t.Time), '"'), nil
}

// Bind reads the value of a parameter.
func (t *Time) Bind(text string) (err error) {
	t.Time, err = time.Parse(time.RFC3339Nano, text)
	return err
}
