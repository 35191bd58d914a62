package store

import (
	"fmt"
	"time"
)

// moment scans a timestamp as UTC; a null is the zero time.
type moment time.Time

// Scan implements sql.Scanner.
func (t *moment) Scan(value any) error {
	switch value := value.(type) {
	case nil:
		*t = moment{}
	case time.Time:
		*t = moment(value.UTC())
	default:
		return fmt.Errorf("%T is not a timestamp", value)
	}
	return nil
}

func (t moment) time() time.Time { return time.Time(t) }

// nullText scans a text; a null is the empty string.
type nullText string

// Scan implements sql.Scanner.
func (t *nullText) Scan(value any) error {
	switch value := value.(type) {
	case nil:
		*t = ""
	case string:
		*t = nullText(value)
	default:
		return fmt.Errorf("%T is not a text", value)
	}
	return nil
}

// text returns nil, a null, for the empty string.
func text(value string) *string {
	if value == "" {
		return nil
	}
	return &value
}

// instant returns nil, a null, for the zero time.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
