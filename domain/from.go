package domain

import (
	"strconv"
	"strings"
	"time"
)

// From says where in a log a subscription begins. At most one of its fields is set; the zero value is the start of the
// log.
type From struct {
	End      bool      // after the head at the time when the subscription begins
	Position int64     // at this position, inclusive
	Time     time.Time // at the first event recorded at this time or later
	EventID  EventID   // at this event, inclusive
}

// ParseFrom parses where a subscription begins: start, end, a position from 1 on, an RFC 3339 time, or an event's id.
// The argument where names the place in the request.
func ParseFrom(where, text string) (From, error) {
	wrong := func(format string, args ...any) (From, error) {
		return From{}, Errorf(CodeInvalidRequest, where, format, args...)
	}
	switch text {
	case "start":
		return From{}, nil
	case "end":
		return From{End: true}, nil
	}
	if text != "" && strings.Trim(text, "0123456789") == "" {
		position, err := strconv.ParseInt(text, 10, 64)
		switch {
		case err != nil:
			return wrong("the position %s is too large", Clip(text, 40))
		case position == 0:
			return wrong("positions begin with 1; write 1, or start")
		}
		return From{Position: position}, nil
	}
	if id, err := ParseEventID(text); err == nil {
		if id.IsZero() {
			return wrong("%s is no event's id", text)
		}
		return From{EventID: id}, nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	switch {
	case err != nil && strings.Contains(text, " "):
		return wrong("%q is not a time such as 2026-03-01T09:30:00Z; in a URL a + is written %%2B", Clip(text, 40))
	case err != nil:
		return wrong("%q is not start, end, a position such as 17, a time such as 2026-03-01T09:30:00Z, or an event's id", Clip(text, 40))
	}
	if at = at.UTC(); at.Year() < 2 || at.Year() > 9999 {
		return wrong("%q is out of range; times lie in the years 2 to 9999", Clip(text, 40))
	}
	return From{Time: at}, nil
}

// String returns the form that ParseFrom parses.
func (f From) String() string {
	switch {
	case f.End:
		return "end"
	case f.Position > 0:
		return strconv.FormatInt(f.Position, 10)
	case !f.Time.IsZero():
		return f.Time.UTC().Format(time.RFC3339Nano)
	case !f.EventID.IsZero():
		return f.EventID.String()
	default:
		return "start"
	}
}
