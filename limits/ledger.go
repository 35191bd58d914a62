package limits

import (
	"math"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// The resources that have a rate, as indexes of arrays. Their order is part of what is stored.
const (
	requests = iota
	events
	bytes
	rateCount
)

// The resources that a request occupies as long as it runs. Their order is part of what is stored.
const (
	connections = iota
	inFlight
	slotCount
)

// rateOf returns the limit of a resource that has a rate; nil: there is none.
func rateOf(l *domain.Limits, resource int) *domain.Rate {
	return [rateCount]*domain.Rate{l.Requests, l.Events, l.Bytes}[resource]
}

// slotsOf returns how much of a resource may be occupied; nil: any number.
func slotsOf(l *domain.Limits, resource int) *int64 {
	return [slotCount]*int64{l.Connections, l.InFlight}[resource]
}

const (
	// lease is how long a process may use what it has leased, without asking again. Afterwards others may.
	lease = 10 * time.Second
	// remembered is how long a ledger remembers the last round of a process without a lease. A statement that is still
	// under way after a lost connection is recognised as old for so long.
	remembered = time.Minute
)

// ledger is what the processes share about the limits of a tenant or a key. Times are in microseconds of the database's
// clock. At all times, the tokens of a bucket and those in leases are together at most its burst.
type ledger struct {
	Buckets [rateCount]bucket `json:"buckets"`
	Parts   map[string]part   `json:"parts,omitempty"` // by process
}

// bucket has the tokens that no process has leased.
type bucket struct {
	Tokens float64 `json:"tokens"`
	At     int64   `json:"at"` // when Tokens was right; 0: the bucket is new
}

// part is what a process has leased.
type part struct {
	Round  int64              `json:"round"`
	Until  int64              `json:"until"`
	Tokens [rateCount]float64 `json:"tokens"` // at least as many as the process can still use
	Slots  [slotCount]int64   `json:"slots"`
}

// demand is what a process needs of a ledger. Numbers include what it has already.
type demand struct {
	Round  int64              // increases with each demand of the process
	Left   [rateCount]float64 // tokens of its lease that it has not used; whole, as all tokens of leases
	Tokens [rateCount]float64 // without a Least, the process may use those of Left up to here before the answer
	Least  [rateCount]float64 // the smallest number that is of use; 0: any. The process uses none before the answer
	Used   [slotCount]int64   // slots in use: it keeps them in any case
	Slots  [slotCount]int64
}

// grant is what a process has after its demand.
type grant struct {
	Tokens [rateCount]float64
	Slots  [slotCount]int64
	Free   [rateCount]float64 // tokens in the buckets, for any process
}

// settle answers a process's demand. It reports false, and changes nothing, if the demand is older than one that was
// answered.
//
// Tokens are granted from a bucket that is refilled only as far as bucket and leases together hold at most a burst.
// The refill comes before the process's lease is reduced to what is left of it. So whatever the processes do with their
// leases, in any period they use no more than a burst and what the rate gives in that period. What is left beyond the
// demand, or too little for it, returns to the bucket: leases keep nothing from others that is of no use.
func (l *ledger) settle(now int64, limits *domain.Limits, process string, d demand) (grant, bool) {
	own := l.Parts[process]
	if d.Round <= own.Round {
		return grant{}, false
	}
	if l.Parts == nil {
		l.Parts = make(map[string]part)
	}
	for name, p := range l.Parts {
		switch {
		case p.Until > now:
		case p.Until+remembered.Microseconds() > now:
			l.Parts[name] = part{Round: p.Round, Until: p.Until}
		default:
			delete(l.Parts, name)
		}
	}
	own = l.Parts[process]
	var g grant
	for i := range rateCount {
		rate := rateOf(limits, i)
		if rate == nil {
			l.Buckets[i], own.Tokens[i] = bucket{}, 0
			continue
		}
		leased := 0.0
		for _, p := range l.Parts {
			leased += p.Tokens[i]
		}
		b := l.Buckets[i].refill(now, rate, leased)
		left := min(max(d.Left[i], 0), own.Tokens[i])
		own.Tokens[i] = math.Floor(min(d.Tokens[i], b.Tokens+left))
		if own.Tokens[i] < d.Least[i] {
			own.Tokens[i] = 0
		}
		b.Tokens += left - own.Tokens[i]
		l.Buckets[i], g.Free[i] = b, b.Tokens
	}
	for i := range slotCount {
		own.Slots[i] = 0
		limit := slotsOf(limits, i)
		if limit == nil {
			continue
		}
		others := int64(0)
		for name, p := range l.Parts {
			if name != process {
				others += p.Slots[i]
			}
		}
		own.Slots[i] = max(d.Used[i], min(d.Slots[i], *limit-others))
	}
	own.Round, own.Until = d.Round, now+lease.Microseconds()
	l.Parts[process] = own
	g.Tokens, g.Slots = own.Tokens, own.Slots
	return g, true
}

// refill returns the bucket with the tokens of the time since it was right, as far as there is room beside the leases.
func (b bucket) refill(now int64, rate *domain.Rate, leased float64) bucket {
	room := max(float64(rate.Burst)-leased, 0)
	if b.At == 0 {
		return bucket{room, now}
	}
	if now > b.At {
		b.Tokens += float64(rate.PerSecond) * float64(now-b.At) / 1e6
		b.At = now
	}
	b.Tokens = min(b.Tokens, room)
	return b
}

// untilTokens returns how long it takes until there are n more tokens.
func untilTokens(n float64, rate *domain.Rate) time.Duration {
	return time.Duration(math.Ceil(max(n, 0) / float64(rate.PerSecond) * float64(time.Second)))
}
