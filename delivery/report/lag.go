package report

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// groupsAtOnce is how many groups are read at once.
const groupsAtOnce = 250

// cursor is how far a projection or a group has come.
type cursor struct {
	kind     Kind
	name     string
	position int64                   // of a group's last partition; -1: unknown
	group    *domain.GroupDefinition // nil: a projection
}

// findLag looks for projections and groups whose next event is older than limit; 0: for none. An alert ends when the
// lag is less than half of that.
func (r *Reporter) findLag(ctx context.Context, tenant domain.TenantID, limit time.Duration, f *findings, open map[Kind]map[string]alert) error {
	f.includeKind(KindProjectionBehind)
	f.includeKind(KindGroupBehind)
	if limit == 0 {
		return nil // open alerts are removed, without their ends
	}
	cursors, err := r.cursors(ctx, tenant)
	if err != nil {
		return err
	}
	// The head is read after the cursors, so no cursor is ahead of it.
	head, err := r.config.Events.Head(ctx, tenant)
	if err != nil {
		return err
	}
	var next []int64
	for _, c := range cursors {
		if c.position >= 0 && c.position < head.Position {
			next = append(next, c.position+1)
		}
	}
	recorded := make(map[int64]time.Time)
	if len(next) > 0 {
		if recorded, err = r.config.Events.RecordedAt(ctx, tenant, next); err != nil {
			return err
		}
	}
	now, pages := time.Now(), lagPages
	for _, c := range cursors {
		var lag time.Duration
		if at, ok := recorded[c.position+1]; ok {
			lag = now.Sub(at)
		}
		if c.group != nil && lag >= limit/2 {
			// While nobody receives from a group, it does not pass the events that it does not select.
			if lag, err = r.groupLag(ctx, tenant, c, head.Position, &pages); err != nil {
				return err
			}
		}
		_, isOpen := open[c.kind][c.name]
		switch {
		case c.position < 0 || lag < 0 || isOpen && lag >= limit/2:
			f.add(c.kind, c.name, between)
		case isOpen:
			f.add(c.kind, c.name, ended)
		case lag > limit:
			data := behind{Position: c.position, Head: head.Position, LagSeconds: int64(lag / time.Second), MaxLag: int64(limit / time.Second)}
			if c.kind == KindGroupBehind {
				data.Group = c.name
			} else {
				data.Projection = c.name
			}
			if err := f.begin(c.kind, c.name, "", data); err != nil {
				return err
			}
		}
	}
	return nil
}

// Bounds of looking for the next events of groups that nobody receives from.
const (
	lagPages  = 100 // in one look at a tenant
	lagEvents = 100 // of a page
	lagBytes  = 1 << 20
)

// groupLag returns the age of the first event after a group's position that it selects, up to the log's head; 0: there
// is none; -1: unknown, because no pages are left. A filter is not asked.
func (r *Reporter) groupLag(ctx context.Context, tenant domain.TenantID, of cursor, head int64, pages *int) (time.Duration, error) {
	selected, to := of.group.Selection, head
	if of.group.To > 0 {
		to = min(to, of.group.To)
	}
	categories := selected.Categories
	if selected.Stream != "" {
		categories = []string{domain.Category(selected.Stream)}
	}
	for from := of.position + 1; from <= to; {
		if *pages == 0 {
			return -1, nil
		}
		*pages--
		events, err := r.config.Events.ReadLog(ctx, tenant, domain.LogQuery{
			From: from, To: to, Limit: lagEvents, MaxBytes: lagBytes, Direction: domain.Forward,
			Categories: categories, Types: selected.Types, Query: selected.Query,
		})
		if err != nil || len(events) == 0 {
			return 0, err
		}
		for i := range events {
			e := &events[i]
			if (selected.Stream == "" || e.Stream == selected.Stream) && (len(selected.Query) == 0 || selected.Query.Matches(e.Type, e.Tags)) {
				return time.Since(e.RecordedAt), nil
			}
			from = e.Position + 1
		}
	}
	return 0, nil
}

// cursors returns how far the tenant's projections and groups have come.
func (r *Reporter) cursors(ctx context.Context, tenant domain.TenantID) ([]cursor, error) {
	positions, err := r.config.Projections.Positions(ctx, tenant)
	if err != nil {
		return nil, err
	}
	var all []cursor
	for _, p := range positions {
		c := cursor{kind: KindProjectionBehind, name: p.Projection.Name, position: p.Checkpoint}
		if p.Unknown != "" {
			c.position = -1
		}
		all = append(all, c)
	}
	for after := ""; ; {
		groups, err := r.config.Groups.Groups(ctx, tenant, after, groupsAtOnce)
		if err != nil {
			return nil, err
		}
		for _, g := range groups {
			after = g.Name
			c := cursor{kind: KindGroupBehind, name: g.Name, position: -1, group: &g.GroupDefinition}
			for _, p := range g.Partitions {
				if c.position < 0 || p.Checkpoint < c.position {
					c.position = p.Checkpoint
				}
			}
			all = append(all, c)
		}
		if len(groups) < groupsAtOnce {
			return all, nil
		}
	}
}
