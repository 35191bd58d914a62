package wire

import (
	"math"
	"time"
)

// Seconds converts a number of seconds, already checked against the contract, with microsecond precision.
func Seconds(given float64) time.Duration {
	return time.Duration(math.Round(given*1e6)) * time.Microsecond
}
