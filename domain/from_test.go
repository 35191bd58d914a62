package domain

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestFromRoundTrips(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.OneOf(
			rapid.Just(From{}),
			rapid.Just(From{End: true}),
			rapid.Custom(func(t *rapid.T) From { return From{Position: rapid.Int64Min(1).Draw(t, "position")} }),
			rapid.Custom(func(t *rapid.T) From {
				return From{EventID: DeriveEventID(rapid.String().Draw(t, "name"))}
			}),
			rapid.Custom(func(t *rapid.T) From {
				seconds := rapid.Int64Range(-62_000_000_000, 253_000_000_000).Draw(t, "seconds")
				return From{Time: time.Unix(seconds, rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).UTC()}
			}),
		).Draw(t, "from")
		again, err := ParseFrom("from", from.String())
		if err != nil || again != from {
			t.Fatalf("%+v is written %q, which is read as %+v, %v", from, from.String(), again, err)
		}
	})
}

func TestParseFrom(t *testing.T) {
	t.Parallel()
	if from, err := ParseFrom("from", "2026-03-01T10:30:00.5+01:00"); err != nil || from.String() != "2026-03-01T09:30:00.5Z" {
		t.Errorf("a time of another zone is %s, %v", from, err)
	}
	if from, err := ParseFrom("from", "0190D3A4-5b6c-7def-8123-456789abcdef"); err != nil || from.String() != "0190d3a4-5b6c-7def-8123-456789abcdef" {
		t.Errorf("an id is %s, %v", from, err)
	}
	for text, want := range map[string]string{
		"":                                     "is not start, end, a position",
		"START":                                "is not start, end, a position",
		"-1":                                   "is not start, end, a position",
		"1.5":                                  "is not start, end, a position",
		"2026-03-01":                           "is not start, end, a position",
		"0":                                    "positions begin with 1",
		"9223372036854775808":                  "too large",
		"2026-03-01T10:30:00 01:00":            "%2B",
		"0001-03-01T10:30:00Z":                 "out of range",
		"00000000-0000-0000-0000-000000000000": "no event's id",
	} {
		_, err := ParseFrom("query from", text)
		failure, ok := errors.AsType[*Error](err)
		if !ok || failure.Code != CodeInvalidRequest || failure.Where != "query from" || !strings.Contains(failure.Message, want) {
			t.Errorf("%q is refused with %v; want %q", text, err, want)
		}
	}
}
