package eventlog

import (
	"testing"
	"time"
)

func TestJustBefore(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 9, 30, 0, 10_000, time.UTC)
	for nanoseconds, want := range map[time.Duration]time.Duration{0: -1000, 1: 0, 999: 0, 1000: 0, 1001: 1000} {
		if got := justBefore(at.Add(nanoseconds)).Sub(at); got != want {
			t.Errorf("%d ns after a microsecond, the last moment before is %d; want %d", nanoseconds, got, want)
		}
	}
}
