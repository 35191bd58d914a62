package group

import (
	"time"

	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
)

// withDefaults fills in the defaults of a definition.
func withDefaults(d domain.GroupDefinition) domain.GroupDefinition {
	number := func(n *int, otherwise int) {
		if *n == 0 {
			*n = otherwise
		}
	}
	number(&d.BatchSize, domain.DefaultBatchSize)
	number(&d.MaxInFlight, domain.DefaultMaxInFlight)
	number(&d.MaxAttempts, domain.DefaultMaxAttempts)
	if d.AckTimeout == 0 {
		d.AckTimeout = domain.DefaultAckTimeout
	}
	if d.BackoffMin == 0 && d.BackoffMax == 0 {
		d.BackoffMin, d.BackoffMax = domain.DefaultBackoffMin, domain.DefaultBackoffMax
	}
	if d.Ordering == "" {
		d.Ordering = domain.OrderingNone
	}
	return d
}

// checkDefinition checks a definition that has its defaults, except for From, and rounds its durations to milliseconds.
// Its error is a *domain.Error that names the field.
func checkDefinition(d *domain.GroupDefinition) error {
	if _, err := selection.New(d.Selection); err != nil {
		return err
	}
	for _, n := range []struct {
		field             string
		value, from, most int
	}{
		{"batchSize", d.BatchSize, 1, domain.MaxBatchSize},
		{"maxInFlight", d.MaxInFlight, 1, domain.MaxMaxInFlight},
		{"maxAttempts", d.MaxAttempts, 1, domain.MaxMaxAttempts},
		{"partitions", d.Partitions, 0, domain.MaxPartitions},
	} {
		if n.value < n.from || n.value > n.most {
			return domain.Errorf(domain.CodeInvalidRequest, n.field, "it is %d; it must be from %d to %d", n.value, n.from, n.most)
		}
	}
	for _, t := range []struct {
		field      string
		value      *time.Duration
		from, most time.Duration
	}{
		{"ackTimeout", &d.AckTimeout, domain.MinAckTimeout, domain.MaxAckTimeout},
		{"backoff.min", &d.BackoffMin, 0, domain.MaxBackoff},
		{"backoff.max", &d.BackoffMax, 0, domain.MaxBackoff},
		{"delay", &d.Delay, 0, domain.MaxDelay},
	} {
		if *t.value < t.from || *t.value > t.most {
			return domain.Errorf(domain.CodeInvalidRequest, t.field, "it is %s; it must be from %s to %s", *t.value, t.from, t.most)
		}
		*t.value = t.value.Round(time.Millisecond)
	}
	if d.BackoffMin > d.BackoffMax {
		return domain.Errorf(domain.CodeInvalidRequest, "backoff.min", "it is %s, above backoff.max, which is %s", d.BackoffMin, d.BackoffMax)
	}
	if d.To < 0 {
		return domain.Errorf(domain.CodeInvalidRequest, "to", "it is %d; positions begin with 1", d.To)
	}
	if d.Ordering != domain.OrderingNone && d.Ordering != domain.OrderingStream {
		return domain.Errorf(domain.CodeInvalidRequest, "ordering", "unknown ordering %q; use none or stream", domain.Clip(string(d.Ordering), 60))
	}
	return nil
}

// changeable refuses changes to the settings that a group keeps from its creation.
func changeable(group domain.Group, wanted domain.GroupDefinition) error {
	switch {
	case group.From != wanted.From:
		return domain.Errorf(domain.CodeConflict, "from", "group %q began at %q; from applies only to a new group: move this one with seek, or create another", group.Name, group.From)
	case group.Ordering != wanted.Ordering:
		return domain.Errorf(domain.CodeConflict, "ordering", "group %q has the ordering %q and keeps it; create another group", group.Name, group.Ordering)
	case group.Partitions != wanted.Partitions:
		return domain.Errorf(domain.CodeConflict, "partitions", "group %q has %d partitions and keeps them; create another group", group.Name, group.Partitions)
	}
	return nil
}
