package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, written as a whole number with or without a unit: 1048576, 1024KiB, 1MiB, 2GiB.
type Size int64

var units = [...]struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// UnmarshalText parses a size.
func (s *Size) UnmarshalText(text []byte) error {
	number, unit := strings.TrimSpace(string(text)), int64(1)
	for _, u := range units {
		if before, found := strings.CutSuffix(number, u.name); found {
			number, unit = strings.TrimSpace(before), u.bytes
			break
		}
	}
	count, err := strconv.ParseInt(number, 10, 64)
	if err != nil || count < 0 || count > math.MaxInt64/unit {
		return fmt.Errorf("%q is not a size; write bytes, or a whole number of KiB, MiB or GiB, such as 64MiB", text)
	}
	*s = Size(count * unit)
	return nil
}

// MarshalText returns String.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// String returns the size in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range units {
		if s != 0 && int64(s)%u.bytes == 0 && u.bytes > 1 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
