package api

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

const (
	// groupsAtOnce is how many of the up to group.MaxGroups groups are read at once.
	groupsAtOnce = 250

	kindGroup      = "group"
	kindProjection = "projection"
)

// consumer is a projection or a group's partition, with its cursor in a tenant's log.
type consumer struct {
	kind, name string
	partition  *int   // of a group with partitions
	position   int64  // everything up to here is processed
	unknown    string // why position is unknown; empty if it is known
	faulted    bool
	status     *domain.PartitionStatus // of a group
}

// consumers returns the tenant's projections, including shared ones, and then its groups, each sorted by name. It
// leaves out those that the caller may not see.
func (s operations) consumers(ctx context.Context, caller access.Caller, tenant domain.TenantID) (all []consumer, err error) {
	positions, err := s.config.Projections.Positions(ctx, tenant)
	if err != nil {
		return nil, err
	}
	for _, p := range positions {
		if mayFollow(caller, domain.Selection{Categories: p.Projection.Definition.Source.Categories}) {
			all = append(all, projectionConsumer(p))
		}
	}
	for after := ""; ; {
		groups, err := s.config.Groups.List(ctx, tenant, after, groupsAtOnce)
		if err != nil {
			return nil, err
		}
		for _, group := range groups {
			after = group.Name
			if mayFollow(caller, group.Selection) {
				all = append(all, groupConsumers(group)...)
			}
		}
		if len(groups) < groupsAtOnce {
			return all, nil
		}
	}
}

// mayFollow reports whether the caller may see a consumer's position in these events.
func mayFollow(caller access.Caller, events domain.Selection) bool {
	return caller.Credential.Operator || caller.Credential.Require(auth.ScopeTenantAdmin) == nil || caller.AllowSelection(events, auth.ScopeEventsRead) == nil
}

func projectionConsumer(p projection.Position) consumer {
	return consumer{kind: kindProjection, name: p.Projection.Name, position: p.Checkpoint, unknown: p.Unknown, faulted: p.Faulted}
}

// groupConsumers returns the partitions of a group.
func groupConsumers(group domain.GroupStatus) []consumer {
	all := make([]consumer, len(group.Partitions))
	for i := range group.Partitions {
		status := &group.Partitions[i]
		all[i] = consumer{kind: kindGroup, name: group.Name, position: status.Checkpoint, status: status}
		if group.GroupDefinition.Partitions > 0 {
			all[i].partition = &status.Partition
		}
	}
	return all
}

func (s operations) ListCursors(ctx context.Context, caller access.Caller, request openapi.ListCursorsRequest) (*openapi.Response, error) {
	tenant, err := s.onBehalf(ctx, caller, request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	all, err := s.consumers(ctx, caller, tenant)
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.CursorList{Cursors: convert(all, func(c consumer) openapi.Cursor {
		cursor := openapi.Cursor{Kind: c.kind, Name: c.name, Partition: c.partition, Error: c.unknown}
		if c.unknown == "" {
			cursor.Position = &c.position
		}
		return cursor
	})}), nil
}

func (s operations) GetLag(ctx context.Context, caller access.Caller, request openapi.GetLagRequest) (*openapi.Response, error) {
	tenant, err := s.onBehalf(ctx, caller, request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	lag, err := s.lag(ctx, caller, tenant)
	return openapi.OK(lag), err
}

// lagPageTime ends a page of all tenants' lag after this time, even if it lacks tenants.
const lagPageTime = 5 * time.Second

func (s operations) GetAllLag(ctx context.Context, caller access.Caller, request openapi.GetAllLagRequest) (*openapi.Response, error) {
	page, err := listPageOf(new(cmp.Or(value(request.Params.PageSize), 20)), request.Params.PageToken, domain.ParseTenantID)
	if err != nil {
		return nil, err
	}
	tenants, err := s.config.Tenants.Tenants(ctx, page.after, page.size+1)
	if err != nil {
		return nil, err
	}
	answer, query := openapi.TenantLagList{Tenants: []openapi.TenantLag{}}, url.Values{}
	if behind := request.Params.Behind; behind != nil {
		query.Set("behind", strconv.Itoa(*behind))
	}
	read, until := 0, time.Now().Add(lagPageTime)
	for read < min(page.size, len(tenants)) && (read == 0 || time.Now().Before(until)) {
		tenant := tenants[read]
		read++
		if tenant.State == domain.TenantDeleting || tenant.State == domain.TenantDeleted {
			continue
		}
		shown := openapi.TenantLag{Tenant: tenant.ID.String(), Name: tenant.Name, Consumers: []openapi.Lag{}}
		// A tenant whose documents' database does not answer must not keep the others from being seen.
		reading, cancel := context.WithTimeout(ctx, lagPageTime)
		lag, err := s.lag(reading, caller, tenant.ID)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			reason, _ := problem.Of(err)
			shown.Error = reason.Error()
		default:
			shown.Head, shown.Consumers = lag.Head, lag.Consumers
		}
		if behind := request.Params.Behind; behind != nil {
			shown.Consumers = slices.DeleteFunc(shown.Consumers, func(lag openapi.Lag) bool { return !needsAttention(lag, *behind) })
			if len(shown.Consumers) == 0 && shown.Error == "" {
				continue
			}
		}
		answer.Tenants = append(answer.Tenants, shown)
	}
	link := ""
	if read < len(tenants) {
		link = pageLink("/v1/admin/lag", query, page.size, pageToken(tenants[read-1].ID.String()))
	}
	return openapi.OK(answer).With("Link", link), nil
}

// needsAttention reports whether a consumer lags by so many seconds or more, has dead letters or a fault, or is at an
// unknown position.
func needsAttention(lag openapi.Lag, behind int) bool {
	return value(lag.Faulted) || value(lag.DeadLetters) > 0 || lag.Seconds == nil || value(lag.LagPositions) > 0 && *lag.Seconds >= float64(behind)
}

// lag returns the lag of a tenant's consumers that the caller may see.
func (s operations) lag(ctx context.Context, caller access.Caller, tenant domain.TenantID) (answer openapi.LagList, err error) {
	all, err := s.consumers(ctx, caller, tenant)
	if err != nil {
		return answer, err
	}
	// The head is read after the cursors, so no cursor is ahead of it.
	head, err := s.config.Log.Head(ctx, tenant)
	if err != nil {
		return answer, err
	}
	var behind []int64
	seen := make(map[int64]bool)
	for _, c := range all {
		if next := c.position + 1; c.unknown == "" && next <= head.Position && !seen[next] {
			seen[next] = true
			behind = append(behind, next)
		}
	}
	var recorded map[int64]time.Time
	if len(behind) > 0 {
		if recorded, err = s.config.Log.RecordedAt(ctx, tenant, behind); err != nil {
			return answer, err
		}
	}
	now := time.Now()
	answer = openapi.LagList{Head: head.Position, Consumers: make([]openapi.Lag, len(all))}
	for i, c := range all {
		lag := openapi.Lag{Kind: c.kind, Name: c.name, Partition: c.partition, Error: c.unknown}
		if c.unknown == "" {
			lag.Position, lag.LagPositions, lag.Seconds = &c.position, new(max(0, head.Position-c.position)), new(0.0)
			lag.Events = lag.LagPositions
			if at, ok := recorded[c.position+1]; ok {
				*lag.Seconds = max(0, now.Sub(at).Seconds())
			}
		}
		if c.kind == kindProjection {
			lag.Faulted = &c.faulted
		} else {
			lag.InFlight, lag.Retrying, lag.DeadLetters = &c.status.InFlight, &c.status.Retrying, &c.status.Parked
		}
		answer.Consumers[i] = lag
	}
	return answer, nil
}
