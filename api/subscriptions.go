package api

import (
	"context"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// The scopes that allow a look at a group. Each counts for the categories for which the key has it.
var groupReaders = []auth.Scope{auth.ScopeEventsRead, auth.ScopeEventsConsume, auth.ScopeSubscriptionsWrite}

func (s operations) ListSubscriptions(ctx context.Context, caller access.Caller, request openapi.ListSubscriptionsRequest) (*openapi.Response, error) {
	page, err := namePageOf(request.Params.PageSize, request.Params.PageToken)
	if err != nil {
		return nil, err
	}
	groups, err := s.config.Groups.List(ctx, caller.Tenant, page.after, page.size+1)
	if err != nil {
		return nil, err
	}
	groups, link := cutPage(groups, page.size, func(group domain.GroupStatus) string { return group.Name }, "/v1/subscriptions", nil)
	answer := openapi.SubscriptionList{Subscriptions: []openapi.Subscription{}}
	for _, group := range groups {
		if caller.AllowSelection(group.Selection, groupReaders...) == nil {
			answer.Subscriptions = append(answer.Subscriptions, groupOf(group))
		}
	}
	return openapi.OK(answer).With("Link", link), nil
}

func (s operations) GetSubscription(ctx context.Context, caller access.Caller, request openapi.GetSubscriptionRequest) (*openapi.Response, error) {
	group, err := s.config.Groups.Get(ctx, caller.Tenant, request.Name)
	if err == nil {
		err = caller.AllowSelection(group.Selection, groupReaders...)
	}
	return openapi.OK(groupOf(group)), err
}

func (s operations) PutSubscription(ctx context.Context, caller access.Caller, request openapi.PutSubscriptionRequest) (*openapi.Response, error) {
	if err := domain.CheckGroupName("path name", request.Name); err != nil {
		return nil, err
	}
	definition := groupDefinition(request.Body)
	if err := caller.AllowSelection(definition.Selection, auth.ScopeSubscriptionsWrite); err != nil {
		return nil, problem.At("source", err)
	}
	// If the group exists, the caller must also be allowed to change it in its current form.
	if err := caller.AllowGroup(ctx, s.config.Groups, request.Name, auth.ScopeSubscriptionsWrite); err != nil && !domain.IsCode(err, domain.CodeNotFound) {
		return nil, err
	}
	if err := access.RefuseServiceGroup("name", request.Name); err != nil {
		return nil, err
	}
	group, created, err := s.config.Groups.Put(ctx, caller.Tenant, request.Name, definition)
	return openapi.CreatedIf(created, groupOf(group)), err
}

func (s operations) DeleteSubscription(ctx context.Context, caller access.Caller, request openapi.DeleteSubscriptionRequest) (*openapi.Response, error) {
	if err := caller.AllowOwnGroup(ctx, s.config.Groups, request.Name, auth.ScopeSubscriptionsWrite); err != nil {
		return nil, err
	}
	return openapi.NoContent(), s.config.Groups.Delete(ctx, caller.Tenant, request.Name)
}

func (s operations) SeekSubscription(ctx context.Context, caller access.Caller, request openapi.SeekSubscriptionRequest) (*openapi.Response, error) {
	if err := caller.AllowOwnGroup(ctx, s.config.Groups, request.Name, auth.ScopeSubscriptionsWrite); err != nil {
		return nil, err
	}
	var to domain.From
	switch position, at := request.Body.Position, request.Body.Timestamp; {
	case position != nil && at != nil:
		return nil, domain.Errorf(domain.CodeInvalidRequest, "timestamp", "position and timestamp cannot be combined; give one of them")
	case position != nil:
		to.Position = *position
	case at != nil:
		to.Time = at.UTC()
	default:
		return nil, domain.Errorf(domain.CodeInvalidRequest, "body", "no target: give position or timestamp")
	}
	group, err := s.config.Groups.Seek(ctx, caller.Tenant, request.Name, to)
	return openapi.OK(groupOf(group)), err
}

func (s operations) PauseSubscription(ctx context.Context, caller access.Caller, request openapi.PauseSubscriptionRequest) (*openapi.Response, error) {
	return s.pause(ctx, caller, request.Name, true)
}

func (s operations) ResumeSubscription(ctx context.Context, caller access.Caller, request openapi.ResumeSubscriptionRequest) (*openapi.Response, error) {
	return s.pause(ctx, caller, request.Name, false)
}

func (s operations) pause(ctx context.Context, caller access.Caller, name string, paused bool) (*openapi.Response, error) {
	if err := caller.AllowOwnGroup(ctx, s.config.Groups, name, auth.ScopeSubscriptionsWrite); err != nil {
		return nil, err
	}
	group, err := s.config.Groups.Pause(ctx, caller.Tenant, name, paused)
	return openapi.OK(groupOf(group)), err
}

// groupDefinition converts a definition from a request, and applies defaults. Without from, an existing group keeps its
// own.
func groupDefinition(body openapi.NewSubscription) domain.GroupDefinition {
	d := domain.GroupDefinition{
		Selection: domain.Selection{Types: body.Types, Query: queryOf(body.Query), Filter: body.Filter},
		From:      body.From, Ordering: domain.Ordering(body.Ordering), Partitions: body.Partitions,
		BatchSize: domain.DefaultBatchSize, MaxInFlight: domain.DefaultMaxInFlight, MaxAttempts: domain.DefaultMaxAttempts,
		AckTimeout: domain.DefaultAckTimeout, BackoffMin: domain.DefaultBackoffMin, BackoffMax: domain.DefaultBackoffMax,
	}
	if source := body.Source; source != nil {
		d.Stream, d.Categories = source.Stream, source.Categories
	}
	if d.Ordering == "" {
		d.Ordering = domain.OrderingNone
	}
	for to, given := range map[*int]*int{&d.BatchSize: body.BatchSize, &d.MaxInFlight: body.MaxInFlight, &d.MaxAttempts: body.MaxAttempts} {
		if given != nil {
			*to = *given
		}
	}
	if body.AckTimeout != nil {
		d.AckTimeout = wire.Seconds(*body.AckTimeout)
	}
	if b := body.Backoff; b != nil {
		if b.Min != nil {
			d.BackoffMin = wire.Seconds(*b.Min)
		}
		if b.Max != nil {
			d.BackoffMax = wire.Seconds(*b.Max)
		} else {
			d.BackoffMax = max(d.BackoffMin, d.BackoffMax)
		}
	}
	return d
}

// queryOf converts a query of a request; nil: none.
func queryOf(query *openapi.Query) domain.Query {
	if query == nil {
		return nil
	}
	return convert(query.Items, func(item openapi.QueryItem) domain.QueryItem { return domain.QueryItem(item) })
}

// shownQuery converts a query for the answer; nil: none.
func shownQuery(query domain.Query) *openapi.Query {
	if len(query) == 0 {
		return nil
	}
	return &openapi.Query{Items: convert(query, func(item domain.QueryItem) openapi.QueryItem { return openapi.QueryItem(item) })}
}

// groupOf converts a group for the answer.
func groupOf(group domain.GroupStatus) openapi.Subscription {
	answer := openapi.Subscription{
		Name:   group.Name,
		Source: openapi.SubscriptionSource{Stream: group.Stream, Categories: group.Categories},
		Types:  group.Types, Query: shownQuery(group.Query), Filter: group.Filter, From: group.From, BatchSize: group.BatchSize, MaxInFlight: group.MaxInFlight,
		AckTimeout: group.AckTimeout.Seconds(), MaxAttempts: group.MaxAttempts,
		Backoff:  openapi.Backoff{Min: new(group.BackoffMin.Seconds()), Max: new(group.BackoffMax.Seconds())},
		Ordering: string(group.Ordering), Partitions: group.GroupDefinition.Partitions, Paused: group.Paused,
		CreatedAt: openapi.At(group.CreatedAt), UpdatedAt: openapi.At(group.UpdatedAt), Head: group.Head, RemovedTo: group.RemovedTo,
		Progress: make([]openapi.SubscriptionProgress, len(group.Partitions)),
	}
	for i, p := range group.Partitions {
		answer.Progress[i] = openapi.SubscriptionProgress{
			Partition: p.Partition, Checkpoint: p.Checkpoint, ReadTo: p.ReadTo, InFlight: p.InFlight, Retrying: p.Retrying, DeadLetters: p.Parked,
		}
		if p.Oldest > 0 {
			answer.Progress[i].Oldest = &p.Oldest
		}
		if !p.Owner.IsZero() {
			answer.Progress[i].MemberId = p.Owner.String()
		}
	}
	return answer
}
