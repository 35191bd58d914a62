package pg

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// Moment scans a timestamp as UTC; a null is the zero time.
type Moment time.Time

// Scan implements sql.Scanner.
func (t *Moment) Scan(value any) error {
	switch value := value.(type) {
	case nil:
		*t = Moment{}
	case time.Time:
		*t = Moment(value.UTC())
	default:
		return fmt.Errorf("%T is not a timestamp", value)
	}
	return nil
}

// Time returns the timestamp.
func (t Moment) Time() time.Time { return time.Time(t) }

// NullText scans a text; a null is the empty string.
type NullText string

// Scan implements sql.Scanner.
func (t *NullText) Scan(value any) error {
	switch value := value.(type) {
	case nil:
		*t = ""
	case string:
		*t = NullText(value)
	default:
		return fmt.Errorf("%T is not a text", value)
	}
	return nil
}

// TextOrNull returns nil, a null, for the empty string.
func TextOrNull(value string) *string {
	if value == "" {
		return nil
	}
	return &value
}

// TimeOrNull returns nil, a null, for the zero time.
func TimeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// NilIfEmpty returns nil for an empty list.
func NilIfEmpty(list []string) []string {
	if len(list) == 0 {
		return nil
	}
	return list
}

// FirstRevision returns a random first revision. So a row that is created again has no revision of an earlier row
// of that name, and anyone who still knows the earlier one notices.
func FirstRevision() int64 { return rand.Int64N(1 << 50) }
