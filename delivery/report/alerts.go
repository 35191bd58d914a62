package report

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Kind is a kind of alert: a condition whose beginning and end are both reported.
type Kind string

// The kinds of alerts.
const (
	KindStopped          Kind = "projection" // a projection has stopped before an event
	KindProjectionBehind Kind = "projection-lag"
	KindGroupBehind      Kind = "group-lag"
	KindFailing          Kind = "webhook" // all attempts to reach a webhook have failed for a while
	KindQuota            Kind = "quota"   // most of a quota is used
)

// types are the types of the reports of an alert's beginning and end.
var types = map[Kind]struct{ begin, end string }{
	KindStopped:          {TypeStopped, TypeResumed},
	KindProjectionBehind: {TypeProjectionBehind, TypeProjectionCaughtUp},
	KindGroupBehind:      {TypeGroupBehind, TypeGroupCaughtUp},
	KindFailing:          {TypeWebhookFailing, TypeWebhookRecovered},
	KindQuota:            {TypeQuotaNearlyReached, TypeQuotaRelieved},
}

// finding is what a look has found about the subject of an alert.
type finding uint8

const (
	holds   finding = iota // the condition holds
	between                // it is unknown, or neither holds nor has ended
	ended                  // the condition has ended
)

// findings are what a look has found, by kind and name. What is missing has been removed. begun has the new alerts.
type findings struct {
	found map[Kind]map[string]finding
	begun []alert
}

func (f *findings) add(kind Kind, name string, what finding) {
	if f.found == nil {
		f.found = make(map[Kind]map[string]finding)
	}
	f.includeKind(kind)
	f.found[kind][name] = what
}

// includeKind records that a kind was looked for, even if nothing was found.
func (f *findings) includeKind(kind Kind) {
	if f.found == nil {
		f.found = make(map[Kind]map[string]finding)
	}
	if f.found[kind] == nil {
		f.found[kind] = make(map[string]finding)
	}
}

// begin adds a new alert.
func (f *findings) begin(kind Kind, name, episode string, data any) error {
	text, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode an alert: %w", err)
	}
	f.begun = append(f.begun, alert{kind: kind, name: name, episode: episode, data: text, openedID: domain.NewEventID()})
	return nil
}

// reportAlerts reports which conditions have begun and ended. Each is a row from before its first report until after
// its last, so neither is missed or repeated. A condition that begins and ends between two looks is not reported.
func (r *Reporter) reportAlerts(ctx context.Context, tenant domain.TenantID, t *reporting) (bool, error) {
	alerts, err := r.config.Store.alerts(ctx, tenant)
	if err != nil {
		return false, err
	}
	open := make(map[Kind]map[string]alert)
	for _, a := range alerts {
		if open[a.kind] == nil {
			open[a.kind] = make(map[string]alert)
		}
		open[a.kind][a.name] = a
	}
	var f findings
	looks := []func() error{func() error { return r.findStopped(ctx, tenant, &f, open[KindStopped]) }}
	if now := time.Now(); !now.Before(t.nextSlow) {
		t.nextSlow = now.Add(r.config.Slow)
		looks = append(looks,
			func() error { return r.findLag(ctx, tenant, t.MaxLag, &f, open) },
			func() error { return r.findFailing(ctx, tenant, &f, open[KindFailing]) },
			func() error { return r.findQuotas(ctx, tenant, &f, open[KindQuota]) })
	}
	for _, look := range looks {
		if err := look(); err != nil {
			return false, err
		}
	}
	changed, err := r.update(ctx, tenant, alerts, &f)
	if err != nil {
		return false, err
	}
	if changed {
		if alerts, err = r.config.Store.alerts(ctx, tenant); err != nil {
			return false, err
		}
	}
	reported := false
	for _, a := range alerts {
		if a.reported && a.closedID.IsZero() {
			continue
		}
		reported = true
		if err := r.reportAlert(ctx, tenant, a); err != nil {
			return false, err
		}
	}
	return reported, nil
}

// update stores what a look has found: alerts that begin, end, or whose subject was removed.
func (r *Reporter) update(ctx context.Context, tenant domain.TenantID, alerts []alert, f *findings) (changed bool, err error) {
	for _, a := range f.begun {
		changed = true
		if err := r.config.Store.openAlert(ctx, tenant, a); err != nil {
			return changed, err
		}
	}
	for _, a := range alerts {
		found, seen := f.found[a.kind]
		what, exists := found[a.name]
		switch {
		case !seen || !a.closedID.IsZero() || exists && what != ended:
			continue
		case exists:
			err = r.config.Store.closeAlert(ctx, tenant, a)
		default:
			err = r.config.Store.deleteAlert(ctx, tenant, a)
		}
		if changed = true; err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// reportAlert appends the reports of an alert that are due, and records that. An interrupted call may be repeated,
// because the events' ids are in the alert's row.
func (r *Reporter) reportAlert(ctx context.Context, tenant domain.TenantID, a alert) error {
	stream := streamOf(domain.AlertsCategory, string(a.kind)+"."+a.name)
	if !a.reported {
		report, err := newReport(a.openedID, stream, types[a.kind].begin, time.Time{}, a.data, domain.EventID{})
		if err != nil {
			return err
		}
		if err := r.append(ctx, tenant, []domain.StreamAppend{report}); err != nil {
			return err
		}
		if err := r.config.Store.markAlert(ctx, tenant, a); err != nil {
			return err
		}
	}
	if a.closedID.IsZero() {
		return nil
	}
	report, err := newReport(a.closedID, stream, types[a.kind].end, time.Time{}, a.data, a.openedID)
	if err != nil {
		return err
	}
	if err := r.append(ctx, tenant, []domain.StreamAppend{report}); err != nil {
		return err
	}
	return r.config.Store.deleteAlert(ctx, tenant, a)
}
