package api

import (
	"context"
	"math"
	"net/url"
	"strconv"
	"time"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// Groups manages groups and delivers events to their consumers. *group.Groups implements it.
type Groups interface {
	Put(ctx context.Context, tenant domain.TenantID, name string, definition domain.GroupDefinition) (status domain.GroupStatus, created bool, err error)
	Get(ctx context.Context, tenant domain.TenantID, name string) (domain.GroupStatus, error)
	// Selection returns which events a group selects. It is called often, and answers from memory if possible.
	Selection(ctx context.Context, tenant domain.TenantID, name string) (domain.Selection, error)
	List(ctx context.Context, tenant domain.TenantID, after string, limit int) ([]domain.GroupStatus, error)
	Delete(ctx context.Context, tenant domain.TenantID, name string) error
	Pause(ctx context.Context, tenant domain.TenantID, name string, paused bool) (domain.GroupStatus, error)
	Seek(ctx context.Context, tenant domain.TenantID, name string, to domain.From) (domain.GroupStatus, error)

	Receive(ctx context.Context, tenant domain.TenantID, name string, wanted group.Receive) ([]domain.Delivery, error)
	// Poll is Receive, and also reports whether it is known that nothing is due.
	Poll(ctx context.Context, tenant domain.TenantID, name string, wanted group.Receive) (group.Received, error)
	Peek(ctx context.Context, tenant domain.TenantID, name string, wanted group.Peek) (group.Peeked, error)
	Ack(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt) ([]domain.Outcome, error)
	Nack(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt, nack domain.Nack) ([]domain.Outcome, error)
	Extend(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt, by time.Duration) ([]domain.Outcome, error)
	// GiveBack makes events due again at once that no consumer has started to process. Their attempts do not count.
	GiveBack(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt) ([]domain.Outcome, error)

	DeadLetters(ctx context.Context, tenant domain.TenantID, name string, after int64, limit int) ([]group.DeadLetter, error)
	Replay(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error)
	Discard(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error)

	Join(ctx context.Context, tenant domain.TenantID, name, label string) (domain.GroupMember, error)
	Heartbeat(ctx context.Context, tenant domain.TenantID, name string, id domain.GroupMemberID) (domain.GroupMember, error)
	Leave(ctx context.Context, tenant domain.TenantID, name string, id domain.GroupMemberID) error
	Members(ctx context.Context, tenant domain.TenantID, name string) ([]domain.GroupMember, error)
}

// The scopes that allow a look at a group. Each counts for the categories for which the key has it.
var groupReaders = []domain.Scope{domain.ScopeEventsRead, domain.ScopeEventsConsume, domain.ScopeSubscriptionsWrite}

func (s generated) ListSubscriptions(ctx context.Context, request openapi.ListSubscriptionsRequestObject) (openapi.ListSubscriptionsResponseObject, error) {
	caller := callerOf(ctx)
	after, err := pageToken(request.Params.PageToken)
	if err != nil {
		return nil, err
	}
	size := pageSizeOf(request.Params.PageSize)
	groups, err := s.config.Groups.List(ctx, caller.tenant, after, size+1)
	if err != nil {
		return nil, err
	}
	answer := groupsAnswer{Body: openapi.SubscriptionList{Subscriptions: []openapi.Subscription{}}}
	if len(groups) > size {
		groups = groups[:size]
		answer.Headers.Link = pageLink("/v1/subscriptions", url.Values{"pageSize": {strconv.Itoa(size)}}, tokenOf(groups[size-1].Name))
	}
	for _, group := range groups {
		if caller.allowSelection(group.Selection, groupReaders...) == nil {
			answer.Body.Subscriptions = append(answer.Body.Subscriptions, groupOf(group))
		}
	}
	return answer, nil
}

func (s generated) GetSubscription(ctx context.Context, request openapi.GetSubscriptionRequestObject) (openapi.GetSubscriptionResponseObject, error) {
	group, err := s.group(ctx, request.Name)
	if err != nil {
		return nil, err
	}
	return groupAnswer{200, groupOf(group)}, nil
}

// group returns a group that the caller may see.
func (s generated) group(ctx context.Context, name string) (domain.GroupStatus, error) {
	caller := callerOf(ctx)
	group, err := s.config.Groups.Get(ctx, caller.tenant, name)
	if err == nil {
		err = caller.allowSelection(group.Selection, groupReaders...)
	}
	return group, err
}

func (s generated) PutSubscription(ctx context.Context, request openapi.PutSubscriptionRequestObject) (openapi.PutSubscriptionResponseObject, error) {
	caller := callerOf(ctx)
	if err := domain.CheckGroupName("path name", request.Name); err != nil {
		return nil, err
	}
	definition := groupDefinition(*request.Body)
	if err := caller.allowSelection(definition.Selection, domain.ScopeSubscriptionsWrite); err != nil {
		return nil, inPlace("source", err)
	}
	// If the group exists, the caller must also be allowed to change it in its current form.
	if err := s.allowGroup(ctx, caller, request.Name, domain.ScopeSubscriptionsWrite); err != nil && !domain.IsCode(err, domain.CodeNotFound) {
		return nil, err
	}
	if err := refuseServiceGroup("name", request.Name); err != nil {
		return nil, err
	}
	group, created, err := s.config.Groups.Put(ctx, caller.tenant, request.Name, definition)
	if err != nil {
		return nil, err
	}
	if created {
		return groupAnswer{201, groupOf(group)}, nil
	}
	return groupAnswer{200, groupOf(group)}, nil
}

func (s generated) DeleteSubscription(ctx context.Context, request openapi.DeleteSubscriptionRequestObject) (openapi.DeleteSubscriptionResponseObject, error) {
	caller := callerOf(ctx)
	if err := s.allowOwnGroup(ctx, caller, request.Name, domain.ScopeSubscriptionsWrite); err != nil {
		return nil, err
	}
	if err := s.config.Groups.Delete(ctx, caller.tenant, request.Name); err != nil {
		return nil, err
	}
	return openapi.DeleteSubscription204Response{}, nil
}

func (s generated) SeekSubscription(ctx context.Context, request openapi.SeekSubscriptionRequestObject) (openapi.SeekSubscriptionResponseObject, error) {
	caller := callerOf(ctx)
	if err := s.allowOwnGroup(ctx, caller, request.Name, domain.ScopeSubscriptionsWrite); err != nil {
		return nil, err
	}
	var to domain.From
	switch position, at := request.Body.Position, request.Body.Timestamp; {
	case position != nil && at != nil:
		return nil, domain.Errorf(domain.CodeInvalidRequest, "timestamp", "position is there as well; give one of them")
	case position != nil:
		to.Position = *position
	case at != nil:
		to.Time = at.UTC()
	default:
		return nil, domain.Errorf(domain.CodeInvalidRequest, "body", "no target: give position or timestamp")
	}
	group, err := s.config.Groups.Seek(ctx, caller.tenant, request.Name, to)
	if err != nil {
		return nil, err
	}
	return groupAnswer{200, groupOf(group)}, nil
}

func (s generated) PauseSubscription(ctx context.Context, request openapi.PauseSubscriptionRequestObject) (openapi.PauseSubscriptionResponseObject, error) {
	return s.pause(ctx, request.Name, true)
}

func (s generated) ResumeSubscription(ctx context.Context, request openapi.ResumeSubscriptionRequestObject) (openapi.ResumeSubscriptionResponseObject, error) {
	return s.pause(ctx, request.Name, false)
}

func (s generated) pause(ctx context.Context, name string, paused bool) (groupAnswer, error) {
	caller := callerOf(ctx)
	if err := s.allowOwnGroup(ctx, caller, name, domain.ScopeSubscriptionsWrite); err != nil {
		return groupAnswer{}, err
	}
	group, err := s.config.Groups.Pause(ctx, caller.tenant, name, paused)
	return groupAnswer{200, groupOf(group)}, err
}

// allowSelection returns nil if the caller has one of scopes for all events of a selection: for its stream's category,
// each of its categories, or the whole log.
func (c caller) allowSelection(of domain.Selection, scopes ...domain.Scope) error {
	if of.Stream != "" {
		return c.allow(domain.Category(of.Stream), scopes...)
	}
	return c.allowEach(of.Categories, scopes...)
}

// allowGroup returns nil if the caller has one of scopes for the events of a group. A key with the scope for the whole
// log always has it, so only other keys require a look at the group.
func (s *Server) allowGroup(ctx context.Context, caller caller, name string, scopes ...domain.Scope) error {
	if caller.allow("", scopes...) == nil {
		return nil
	}
	selection, err := s.config.Groups.Selection(ctx, caller.tenant, name)
	if err != nil {
		return err
	}
	if caller.allowSelection(selection, scopes...) == nil {
		return nil
	}
	// The group's selection may have changed, without this process knowing it yet.
	group, err := s.config.Groups.Get(ctx, caller.tenant, name)
	if err != nil {
		return err
	}
	return caller.allowSelection(group.Selection, scopes...)
}

// groupDefinition converts a definition from a request, and applies defaults. Without from, an existing group keeps its
// own.
func groupDefinition(body openapi.NewSubscription) domain.GroupDefinition {
	d := domain.GroupDefinition{
		Selection: domain.Selection{Types: body.Types, Filter: body.Filter},
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
		d.AckTimeout = seconds(*body.AckTimeout)
	}
	if b := body.Backoff; b != nil {
		if b.Min != nil {
			d.BackoffMin = seconds(*b.Min)
		}
		if b.Max != nil {
			d.BackoffMax = seconds(*b.Max)
		} else {
			d.BackoffMax = max(d.BackoffMin, d.BackoffMax)
		}
	}
	return d
}

// seconds converts a number of seconds, already checked against the contract, with microsecond precision.
func seconds(given float64) time.Duration {
	return time.Duration(math.Round(given*1e6)) * time.Microsecond
}

// groupOf converts a group for the answer.
func groupOf(group domain.GroupStatus) openapi.Subscription {
	answer := openapi.Subscription{
		Name:   group.Name,
		Source: openapi.SubscriptionSource{Stream: group.Stream, Categories: group.Categories},
		Types:  group.Types, Filter: group.Filter, From: group.From, BatchSize: group.BatchSize, MaxInFlight: group.MaxInFlight,
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
