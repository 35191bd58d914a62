package limits

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Fields returns the values of the header fields RateLimit-Policy and RateLimit for an answer to the caller, as
// draft-ietf-httpapi-ratelimit-headers-10 has them: what its rates allow, and about how much is left of that in all
// processes together. Both are empty for a caller without rates.
//
// A policy's quota is the burst, and its window the time in which an empty bucket is full again. Those of events and
// their bytes are there for requests that append.
func (l *Limiter) Fields(caller Caller, kind Kind) (policy, current string) {
	if l == nil || caller.Limits == nil && !l.config.Settings.of(caller.Tenant).any() {
		return "", ""
	}
	shares := l.sharesOf(caller)
	l.mu.Lock()
	defer l.mu.Unlock()
	var policies, states []string
	for _, s := range shares {
		for i := range rateCount {
			rate := rateOf(&s.limits, i)
			if rate == nil || i != requests && kind != Append {
				continue
			}
			name := [rateCount]string{"requests", "events", "bytes"}[i]
			unit := [rateCount]string{"", `;qu="events"`, `;qu="content-bytes"`}[i]
			if !s.ofTenant() {
				name = "key-" + name
			}
			burst := min(rate.Burst, domain.MaxBurst) // earlier releases have stored larger ones
			left := min(math.Floor(max(s.tokens[i].left, 0)+s.tokens[i].free), float64(burst))
			if s.asked.IsZero() {
				left = float64(burst)
			}
			missing := float64(burst) - left
			if left == 0 {
				missing = 1 // as Retry-After has it
			}
			window := (burst + rate.PerSecond - 1) / rate.PerSecond
			policies = append(policies, fmt.Sprintf(`"%s";q=%d;w=%d%s`, name, burst, window, unit))
			states = append(states, fmt.Sprintf(`"%s";r=%.0f;t=%d`, name, left, ceilSeconds(untilTokens(missing, rate))))
		}
	}
	return strings.Join(policies, ", "), strings.Join(states, ", ")
}

// ceilSeconds returns a duration in seconds, rounded up.
func ceilSeconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }
