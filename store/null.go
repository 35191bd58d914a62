package store

import (
	"fmt"
	"time"
)

// moment scans a timestamp as UTC; a null is the zero time.
type moment time.Time

// Scan is database/sql's contract.
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

// nullText scans a text whose null is the empty string.
type nullText string

// Scan is database/sql's contract.
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

// text turns the empty string into a null.
func text(value string) *string {
	if value == "" {
		return nil
	}
	return &value
}

// instant turns the zero time into a null.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
