package api

import (
	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// The scopes that allow a look at the events that a group is about to deliver or could not deliver. They are the scopes
// that give access to these events anyway.
var groupPeekers = []auth.Scope{auth.ScopeEventsRead, auth.ScopeEventsConsume}

// peekSubscription is GET /v1/subscriptions/{name}/peek. It does not use the generated code because it returns events
// unchanged.
func (s *Server) peekSubscription(c echo.Context, caller access.Caller) error {
	name := c.Param("name")
	ctx, query := c.Request().Context(), c.QueryParams()
	limit, err := integer(query, "limit")
	if err != nil {
		return err
	}
	partition := int64(-1)
	if query.Has("partition") {
		if partition, err = integer(query, "partition"); err != nil {
			return err
		}
	}
	of, err := s.config.Groups.Get(ctx, caller.Tenant, name)
	if err == nil {
		err = caller.AllowSelection(of.Selection, groupPeekers...)
	}
	if err != nil {
		return err
	}
	found, err := s.config.Groups.Peek(ctx, caller.Tenant, of.Name, group.Peek{Limit: int(limit), Partition: int(partition)})
	if err != nil {
		return err
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return openapi.OK(peekAnswer(caller, &found, of.GroupDefinition.Partitions > 0)).Send(c)
}

// peekAnswer leaves out events that the caller may not see. The group's selection may have changed since they were
// delivered.
func peekAnswer(caller access.Caller, found *group.Peeked, partitions bool) openapi.SubscriptionPeek {
	answer := openapi.SubscriptionPeek{
		Next: []openapi.PeekedEvent{}, InFlight: []openapi.PeekedEvent{}, Retrying: []openapi.PeekedEvent{}, Searching: found.Searching,
	}
	add := func(to *[]openapi.PeekedEvent, event domain.Event, partition int, shown openapi.PeekedEvent) {
		if caller.Allow(domain.Category(event.Stream), groupPeekers...) != nil {
			return
		}
		shown.Event = eventAnswer(event)
		if partitions {
			shown.Partition = &partition
		}
		*to = append(*to, shown)
	}
	for _, d := range found.Next {
		add(&answer.Next, d.Event, d.Partition, openapi.PeekedEvent{Attempt: d.Attempt, Replays: d.Replays})
	}
	for _, d := range found.InFlight {
		add(&answer.InFlight, d.Event, d.Partition, openapi.PeekedEvent{Attempt: d.Attempt, Replays: d.Replays, AckDeadline: moment(d.AckDeadline)})
	}
	for _, r := range found.Retrying {
		add(&answer.Retrying, r.Event, r.Partition, openapi.PeekedEvent{Attempt: r.Attempt, Replays: r.Replays, DueAt: moment(r.DueAt), Reason: r.Reason})
	}
	return answer
}
