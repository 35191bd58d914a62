package webhook

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/delivery/selection"
	"github.com/manifold-es/manifold/domain"
)

// Settings of a webhook's group that its definition does not contain.
const (
	groupBatch = 100
	groupLease = time.Minute // of events taken by a process of an earlier release; see pace.lease
	// groupInFlight is more than one process takes at the same time, so that another process also finds events.
	groupInFlight = 2000
)

// complete fills in a definition's defaults and validates it. Its error is a *domain.Error that names the field.
func (w *Webhooks) complete(d Definition) (Definition, error) {
	if d.Format == "" {
		d.Format = FormatStandard
	}
	if d.Ordering == "" {
		d.Ordering = domain.OrderingNone
	}
	if d.Timeout == 0 {
		d.Timeout = DefaultTimeout
	}
	if err := w.sender.checkURL(d.URL); err != nil {
		return d, err
	}
	wrong := func(where, format string, args ...any) (Definition, error) {
		return d, domain.Errorf(domain.CodeInvalidRequest, where, format, args...)
	}
	switch {
	case d.Format != FormatStandard && d.Format != FormatCloudEvents:
		return wrong("format", "%q is no format; it is standard or cloudevents", domain.Clip(string(d.Format), 60))
	case d.Timeout < MinTimeout || d.Timeout > MaxTimeout:
		return wrong("timeout", "it is %s; it must be from %s to %s", d.Timeout, MinTimeout, MaxTimeout)
	case d.Delay < 0 || d.Delay > MaxDelay:
		return wrong("delay", "it is %s; it must be from 0 to %s", d.Delay, MaxDelay)
	case d.Projection != "" && (d.Stream != "" || len(d.Categories) > 0):
		return wrong("source", "it names a projection and categories or a stream; name one or the other: a projection's source is its own")
	}
	if err := CheckDedupe(d.DedupeID, d.DedupeWindow); err != nil {
		return d, err
	}
	d.Timeout, d.Delay, d.DedupeWindow = d.Timeout.Round(time.Millisecond), d.Delay.Round(time.Millisecond), d.DedupeWindow.Round(time.Millisecond)
	return d, nil
}

// groupOf returns the definition of a webhook's group. The webhook's definition must be complete; its From is used as
// it is.
func (w *Webhooks) groupOf(ctx context.Context, tenant domain.TenantID, d Definition) (domain.GroupDefinition, error) {
	selection, err := w.selection(ctx, tenant, d)
	if err != nil {
		return domain.GroupDefinition{}, err
	}
	return group.Complete(domain.GroupDefinition{
		Selection: selection, From: d.From, BatchSize: groupBatch, MaxInFlight: groupInFlight, AckTimeout: groupLease, MaxAttempts: w.pace.attempts(),
		BackoffMin: schedule[0], BackoffMax: schedule[len(schedule)-1], Ordering: d.Ordering, Delay: d.Delay,
	})
}

// sourceProjection is the place of errors about the projection.
const sourceProjection = "source.projection"

func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return names
}

// selection returns which events a webhook's group selects. For a projection these are the events that it selects now.
// If the projection has more names than a selection can have, the selection includes all names, and the projection is
// asked for each event.
func (w *Webhooks) selection(ctx context.Context, tenant domain.TenantID, d Definition) (domain.Selection, error) {
	if d.Projection == "" {
		return d.Selection, nil
	}
	p, err := w.config.Projections.Live(ctx, tenant, d.Projection)
	if failure, ok := errors.AsType[*domain.Error](err); ok && failure.Code == domain.CodeNotFound {
		return domain.Selection{}, domain.Errorf(domain.CodeInvalidRequest, sourceProjection, "there is no projection %q; create it first, or name another", domain.Clip(d.Projection, 60))
	}
	if err != nil {
		return domain.Selection{}, err
	}
	if p.Definition.Mode == domain.ModeLive {
		return domain.Selection{}, domain.Errorf(domain.CodeUnsupported, sourceProjection,
			"projection %q is live and stores no documents; change its mode to async", d.Projection)
	}
	selected := domain.Selection{Types: d.Types, Query: d.Query, Filter: d.Filter}
	categories, types := w.config.Projections.Selects(p)
	if len(categories) <= selection.MaxCategories {
		selected.Categories = categories
	}
	if len(d.Types) == 0 && len(types) <= selection.MaxTypes {
		selected.Types = types
	}
	// Sort the names, so that the same names give the same group.
	selected.Categories, selected.Types = sorted(selected.Categories), sorted(selected.Types)
	return selected, nil
}
