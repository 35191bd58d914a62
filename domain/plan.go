package domain

import (
	"fmt"
	"math"
)

// Rate limits how much of something may happen over time: PerSecond on average, and Burst at once after a pause. It is
// a token bucket of the size Burst that is refilled by PerSecond.
type Rate struct {
	PerSecond int64 `json:"perSecond"`
	Burst     int64 `json:"burst"` // at least PerSecond, at most MaxBurstSeconds times PerSecond, and at most MaxBurst
}

const (
	// MaxRate limits Rate.PerSecond.
	MaxRate = 1_000_000_000_000
	// MaxBurstSeconds limits the time after which an empty bucket is full again.
	MaxBurstSeconds = 3600
	// MaxBurst limits Rate.Burst: header fields cannot have larger integers (RFC 9651, section 3.3.1).
	MaxBurst = 999_999_999_999_999
	// DefaultPlan is the name of the plan of the tenants that no plan is assigned to. It need not exist.
	DefaultPlan = "default"
	// MaxPlans limits the number of plans.
	MaxPlans = 1000
)

// Limits are the limits of a tenant, or of a key. Nil means that there is no limit.
type Limits struct {
	Requests    *Rate  `json:"requests,omitempty"` // HTTP requests, and messages over WebSockets
	Events      *Rate  `json:"events,omitempty"`   // events of appends
	Bytes       *Rate  `json:"bytes,omitempty"`    // bytes of these events, see NewEvent.Bytes
	Connections *int64 `json:"connections,omitempty"`
	InFlight    *int64 `json:"requestsInFlight,omitempty"`
}

// Quotas limit what a tenant may have. Nil means that there is no quota.
type Quotas struct {
	Events      *int64 `json:"events,omitempty"` // stored ones
	Bytes       *int64 `json:"bytes,omitempty"`  // of stored events
	Projections *int64 `json:"projections,omitempty"`
	Groups      *int64 `json:"groups,omitempty"`
	Webhooks    *int64 `json:"webhooks,omitempty"`
	Keys        *int64 `json:"keys,omitempty"`
}

// Quota names one of the Quotas.
type Quota string

// The quotas.
const (
	QuotaEvents      Quota = "events"
	QuotaBytes       Quota = "bytes"
	QuotaProjections Quota = "projections"
	QuotaGroups      Quota = "groups"
	QuotaWebhooks    Quota = "webhooks"
	QuotaKeys        Quota = "keys"
)

// QuotaNames are the names of all quotas.
var QuotaNames = []Quota{QuotaEvents, QuotaBytes, QuotaProjections, QuotaGroups, QuotaWebhooks, QuotaKeys}

// Of returns the quota with a name; nil: there is none.
func (q *Quotas) Of(name Quota) *int64 { return *q.field(name) }

func (q *Quotas) field(name Quota) **int64 {
	switch name {
	case QuotaEvents:
		return &q.Events
	case QuotaBytes:
		return &q.Bytes
	case QuotaProjections:
		return &q.Projections
	case QuotaGroups:
		return &q.Groups
	case QuotaWebhooks:
		return &q.Webhooks
	case QuotaKeys:
		return &q.Keys
	}
	panic(fmt.Sprintf("%q is no quota", name))
}

// QuotaUse is how much a tenant has of what a quota limits.
type QuotaUse struct {
	Quota Quota
	Used  int64
	Limit int64
}

// Plan is a named set of limits and quotas.
type Plan struct {
	Name   string
	Limits Limits
	Quotas Quotas
}

// TenantLimits are the plan of a tenant, and what differs from the plan for it.
type TenantLimits struct {
	Plan   string // empty: DefaultPlan
	Limits Limits // each that is not nil replaces the plan's
	Quotas Quotas
}

// Within returns the limits and quotas that hold for the tenant if its plan is p.
func (t TenantLimits) Within(p Plan) (Limits, Quotas) {
	limits, quotas := p.Limits, p.Quotas
	replace(&limits.Requests, t.Limits.Requests)
	replace(&limits.Events, t.Limits.Events)
	replace(&limits.Bytes, t.Limits.Bytes)
	replace(&limits.Connections, t.Limits.Connections)
	replace(&limits.InFlight, t.Limits.InFlight)
	for _, name := range QuotaNames {
		replace(quotas.field(name), t.Quotas.Of(name))
	}
	return limits, quotas
}

func replace[T any](value **T, by *T) {
	if by != nil {
		*value = by
	}
}

// Check returns nil, or a *Error with CodeInvalidRequest about the first limit that is out of range. It sets each Burst
// that is zero to one second's worth. where is the place of the limits in the request; empty: they are its body.
func (l *Limits) Check(where string) error {
	if where != "" {
		where += "."
	}
	for _, rate := range []struct {
		name string
		rate *Rate
	}{{"requests", l.Requests}, {"events", l.Events}, {"bytes", l.Bytes}} {
		if rate.rate == nil {
			continue
		}
		if rate.rate.Burst == 0 {
			rate.rate.Burst = rate.rate.PerSecond
		}
		switch r := rate.rate; {
		case r.PerSecond < 1 || r.PerSecond > MaxRate:
			return Errorf(CodeInvalidRequest, where+rate.name+".perSecond", "it is %d; it must be 1 to %d", r.PerSecond, int64(MaxRate))
		case r.Burst < r.PerSecond || r.Burst > r.PerSecond*MaxBurstSeconds || r.Burst > MaxBurst:
			return Errorf(CodeInvalidRequest, where+rate.name+".burst",
				"it is %d; it must be perSecond to %d times perSecond, and at most %d", r.Burst, MaxBurstSeconds, int64(MaxBurst))
		}
	}
	for _, count := range []struct {
		name  string
		count *int64
	}{{"connections", l.Connections}, {"requestsInFlight", l.InFlight}} {
		if count.count != nil && (*count.count < 0 || *count.count > math.MaxInt32) {
			return Errorf(CodeInvalidRequest, where+count.name, "it is %d; it must be 0 to %d", *count.count, math.MaxInt32)
		}
	}
	return nil
}

// Check returns nil, or a *Error with CodeInvalidRequest about the first quota that is out of range.
func (q *Quotas) Check(where string) error {
	for _, name := range QuotaNames {
		if n := q.Of(name); n != nil && *n < 0 {
			return Errorf(CodeInvalidRequest, where+"."+string(name), "it is %d; it must be 0 or more", *n)
		}
	}
	return nil
}
