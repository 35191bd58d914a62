// Package audit records who did what to a service, and what the service refused, as events of audit logs. An audit log is
// a log like a tenant's (domain.TenantID.AuditLog), so it is read, followed and delivered with the same code, but only
// this package appends to it.
//
// Start with Recorder. Begin appends an ActionStarted before an action takes effect, and Action.End its outcome. Denied
// counts refused requests, and Run appends what was counted. docs/decisions/0114-audit-logs.md has the reasons.
package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"github.com/manifold-es/manifold/domain"
)

// The types of events. Every ActionStarted is followed by one of the three outcomes, unless the process died: then the
// outcome is unknown.
const (
	TypeStarted = "ActionStarted"
	TypeDone    = "ActionDone"
	TypeRefused = "ActionRefused" // nothing was changed
	TypeUnknown = "ActionUnknown" // the service failed; the action may have taken effect
	TypeDenied  = "RequestsDenied"
	TypeErased  = "TenantErased"
)

// Config configures a Recorder. Append is required.
type Config struct {
	// Append appends to an audit log: eventlog.Log.Append, because the events count towards no limit or quota.
	Append func(ctx context.Context, log domain.TenantID, events domain.Append) (domain.Appended, error)
	Log    *slog.Logger  // nil: none
	Every  time.Duration // the pause between two appends of denied requests; 0: 30 s
}

// After actionsBurst actions, a tenant may make actionsASecond. Each takes two commits and stays in its audit log.
const (
	actionsASecond = 20
	actionsBurst   = 1000
	limitersKept   = 10_000
)

// appendTimeout limits the append of an outcome, which does not end with its request.
const appendTimeout = 5 * time.Second

// Recorder records actions and denied requests. All methods may be called concurrently.
type Recorder struct {
	config   Config
	limiters *lru.Cache[domain.TenantID, *rate.Limiter]

	mu      sync.Mutex
	denied  map[domain.TenantID]map[Denial]*denials // by audit log
	pending []pending
}

// New returns a Recorder. Its caller must run Run.
func New(config Config) *Recorder {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	config.Every = cmp.Or(config.Every, 30*time.Second)
	limiters, err := lru.New[domain.TenantID, *rate.Limiter](limitersKept)
	if err != nil {
		panic(err) // the size is positive
	}
	return &Recorder{config: config, limiters: limiters, denied: make(map[domain.TenantID]map[Denial]*denials)}
}

// Actor is who acts.
type Actor struct {
	Kind    string `json:"kind"` // key, token or operator
	Key     string `json:"key,omitempty"`
	Name    string `json:"name,omitempty"`
	Issuer  string `json:"issuer,omitempty"`
	Subject string `json:"subject,omitempty"`
	Role    string `json:"role,omitempty"`
}

// Tag returns the tag of the actor's events: actor:key:ID, actor:token:ISSUER:SUBJECT or actor:operator. A subject that no
// tag can contain is replaced by a UUID that is derived from it.
func (a Actor) Tag() string {
	switch {
	case a.Key != "":
		return "actor:key:" + a.Key
	case a.Issuer != "":
		tag := "actor:token:" + a.Issuer + ":" + a.Subject
		if domain.CheckTag("", tag) != nil {
			tag = "actor:token:" + domain.DeriveEventID(a.Issuer, a.Subject).String()
		}
		return tag
	}
	return "actor:" + a.Kind
}

// Origin says where a request came from.
type Origin struct {
	RequestID   string `json:"requestId,omitempty"`
	Address     string `json:"address,omitempty"`
	UserAgent   string `json:"userAgent,omitempty"`
	Traceparent string `json:"traceparent,omitempty"`
}

// Action is an administrative action. Its fields up to Before are set before Begin.
type Action struct {
	Caller    domain.TenantID // whose actions are limited; domain.Everyone: an operator, whose are not
	Owners    []domain.TenantID
	Category  string            // of the thing that is changed
	Operation string            // its operationId in the contract
	Targets   map[string]string // the parameters of the request's path, and what names a created thing
	Actor     Actor
	Origin    Origin
	Request   json.RawMessage // the body; nil: there is none
	Before    json.RawMessage // nil: there was nothing, or it is not known

	recorder *Recorder
	stream   string
	started  domain.EventID
}

// Outcome is how an action ended.
type Outcome struct {
	Type   string // TypeDone, TypeRefused or TypeUnknown
	Status int    // of the answer
	Code   string // of the problem; empty: there is none
	After  json.RawMessage
}

// record is the data of an action's events.
type record struct {
	Action  string            `json:"action"`
	Actor   Actor             `json:"actor"`
	Targets map[string]string `json:"targets,omitempty"`
	Context Origin            `json:"context"`
	Status  int               `json:"status,omitempty"`
	Code    string            `json:"code,omitempty"`
	Request json.RawMessage   `json:"request,omitempty"`
	Before  json.RawMessage   `json:"before,omitempty"`
	After   json.RawMessage   `json:"after,omitempty"`
}

// Begin records that an action is about to be tried, in the audit log of each of its owners. If it returns an error, the
// action must not be tried: domain.CodeTooManyRequests after too many of a tenant, and otherwise the append's error.
func (r *Recorder) Begin(ctx context.Context, a Action) (*Action, error) {
	if a.Caller != domain.Everyone {
		if err := r.admit(a.Caller); err != nil {
			return nil, err
		}
	}
	a.recorder, a.started = r, domain.NewEventID()
	a.stream = streamOf(a.Category, a.Targets)
	a.Request, a.Before = bound(a.Request), bound(a.Before)
	events, err := a.event(a.started, TypeStarted, record{Request: a.Request, Before: a.Before})
	if err != nil {
		return nil, err
	}
	for _, owner := range a.Owners {
		if _, err := r.config.Append(ctx, owner.AuditLog(), events); err != nil {
			return nil, fmt.Errorf("record an action before it is tried: %w", err)
		}
	}
	return &a, nil
}

// End records an action's outcome. It does not end with ctx. What cannot be appended now is appended by Run.
func (a *Action) End(ctx context.Context, o Outcome) {
	events, err := a.event(domain.NewEventID(), o.Type, record{Status: o.Status, Code: o.Code, Before: a.Before, After: bound(o.After)})
	if err != nil {
		a.recorder.config.Log.Error("the outcome of an action was not recorded", "action", a.Operation, "requestId", a.Origin.RequestID, "error", err)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), appendTimeout)
	defer cancel()
	for _, owner := range a.Owners {
		a.recorder.append(ctx, pending{owner.AuditLog(), events})
	}
}

// event returns an event of the action.
func (a *Action) event(id domain.EventID, eventType string, data record) (domain.Append, error) {
	data.Action, data.Actor, data.Targets, data.Context = a.Operation, a.Actor, a.Targets, a.Origin
	tags := []string{"action:" + a.Operation, a.Actor.Tag()}
	if id != a.started {
		tags = append(tags, domain.CauseTag(a.started))
	}
	return newEvent(a.stream, id, eventType, tags, data)
}

// Erased records in the operators' log that all data of a tenant was removed. It may be repeated.
func (r *Recorder) Erased(ctx context.Context, tenant domain.TenantID) error {
	targets := map[string]string{"tenantId": tenant.String()}
	events, err := newEvent(streamOf("tenant", targets), domain.DeriveEventID(TypeErased, tenant.String()), TypeErased, nil, map[string]any{"targets": targets})
	if err != nil {
		return err
	}
	_, err = r.config.Append(ctx, domain.Everyone.AuditLog(), events)
	return err
}

// admit counts an action of a tenant, or refuses it.
func (r *Recorder) admit(tenant domain.TenantID) error {
	limiter, ok := r.limiters.Get(tenant)
	if !ok {
		limiter = rate.NewLimiter(actionsASecond, actionsBurst)
		if before, found, _ := r.limiters.PeekOrAdd(tenant, limiter); found {
			limiter = before
		}
	}
	if limiter.Allow() {
		return nil
	}
	err := domain.Errorf(domain.CodeTooManyRequests, "", "too many administrative actions: after %d, the tenant may make %d a second; retry later", actionsBurst, actionsASecond)
	err.RetryAfter = time.Second
	return err
}

// streamOf returns the stream of a thing. A thing without a name yet is "new". A UUID replaces a name that no stream can
// have.
func streamOf(category string, targets map[string]string) string {
	id := cmp.Or(targets["name"], targets["keyId"], targets["plan"], targets["category"], targets["type"], targets["tenantId"], "new")
	if stream := category + "-" + id; domain.CheckStream("", stream) == nil {
		return stream
	}
	return category + "-" + domain.DeriveEventID(id).String()
}

// newEvent returns an append of one event.
func newEvent(stream string, id domain.EventID, eventType string, tags []string, data any) (domain.Append, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return domain.Append{}, fmt.Errorf("encode an event of an audit log: %w", err)
	}
	if tags, err = domain.CheckTags("tags", tags); err != nil {
		return domain.Append{}, err
	}
	return domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: domain.Any, Events: []domain.NewEvent{{ID: id, Type: eventType, Data: text, Tags: tags}}}}}, nil
}

// pending is an append that may have to be repeated. Its events have ids, so it takes effect once.
type pending struct {
	log    domain.TenantID
	events domain.Append
}

// maxPending is how many appends wait while the database does not answer.
const maxPending = 1000

// append appends to an audit log, or leaves it to Run.
func (r *Recorder) append(ctx context.Context, p pending) {
	_, err := r.config.Append(ctx, p.log, p.events)
	if err == nil {
		return
	}
	first := p.events.Streams[0].Events[0]
	log := r.config.Log.With("stream", p.events.Streams[0].Stream, "type", first.Type, "event", first.ID.String(), "error", err)
	if e, ok := errors.AsType[*domain.Error](err); ok && e.Code == domain.CodeInvalidRequest {
		log.Error("an event of an audit log was refused")
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.pending) >= maxPending {
		log.Error("an event of an audit log was lost: too many wait for the database")
		return
	}
	log.Warn("an event of an audit log could not be appended; trying again")
	r.pending = append(r.pending, p)
}

// Run appends what was counted and what could not be appended, until ctx ends, then once more, and returns nil.
func (r *Recorder) Run(ctx context.Context) error {
	tick := time.NewTicker(r.config.Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.Flush(ctx)
		case <-ctx.Done():
			r.Flush(context.WithoutCancel(ctx))
			return nil
		}
	}
}

// Flush appends what was counted, and what could not be appended before.
func (r *Recorder) Flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, appendTimeout)
	defer cancel()
	r.mu.Lock()
	due, denied := r.pending, r.denied
	r.pending, r.denied = nil, make(map[domain.TenantID]map[Denial]*denials)
	r.mu.Unlock()
	for log, of := range denied {
		events, err := deniedEvents(of)
		if err != nil {
			r.config.Log.Error("denied requests were not recorded", "error", err)
			continue
		}
		due = append(due, pending{log, events})
	}
	for _, p := range due {
		r.append(ctx, p)
	}
}
