// Package audit records who did what to a service, and what the service refused, as events of audit logs. An audit log
// is a log like a tenant's (domain.TenantID.AuditLog), so it is read, followed and delivered with the same code, but
// only this package appends to it.
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
	"net/http"
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
	TypeRefused = "ActionRefused" // the service refused it
	TypeUnknown = "ActionUnknown" // the service failed; the action may have taken effect
	TypeDenied  = "RequestsDenied"
	TypeErased  = "TenantErased"
)

// Config configures a Recorder. Append is required.
type Config struct {
	// Append appends to an audit log: eventlog.Log.Append, because the events count towards no limit or quota.
	Append func(ctx context.Context, log domain.TenantID, events domain.Append) (domain.Appended, error)
	// Ended reports whether a tenant is being deleted or is deleted. What Run would append for it is dropped, because
	// nobody may erase it again. Nil: no tenant is.
	Ended func(ctx context.Context, tenant domain.TenantID) (bool, error)
	Log   *slog.Logger  // nil: none
	Every time.Duration // the pause between two appends of denied requests; 0: 30 s
}

// After actionsBurst actions, a tenant may make actionsASecond, in each process. Each takes two commits, and stays in
// its audit log. bodiesADay bytes of bodies may be recorded in a burst, and then as many a day.
const (
	actionsASecond = 1
	actionsBurst   = 1000
	bodiesADay     = 16 << 20
	limitersKept   = 10_000
)

const (
	// outcomePatience is how long an action waits for its outcome to be appended. Run tries again.
	outcomePatience = time.Second
	// lastFlush limits the last append of Run.
	lastFlush = 5 * time.Second
)

// Recorder records actions and denied requests. All methods may be called concurrently.
type Recorder struct {
	config   Config
	limiters *lru.Cache[domain.TenantID, *limiter]

	mu       sync.Mutex
	denied   map[domain.TenantID]map[Denial]*denials // by the tenant, or domain.Everyone
	outcomes []pending                               // that could not be appended
	counts   []pending                               // likewise, of denied requests
}

// limiter limits what a tenant writes to its audit log.
type limiter struct {
	actions *rate.Limiter
	bodies  *rate.Limiter // in bytes
}

// New returns a Recorder. Its caller must run Run.
func New(config Config) *Recorder {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	config.Every = cmp.Or(config.Every, 30*time.Second)
	limiters, err := lru.New[domain.TenantID, *limiter](limitersKept)
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

// Tag returns the tag of the actor's events: actor:key:ID, actor:token:ISSUER:SUBJECT or actor:operator. A subject that
// no tag can contain is replaced by a UUID that is derived from it.
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
	Targets   map[string]string // the parameters of the request's path
	Query     map[string]string // the parameters of its query
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
	Query   map[string]string `json:"query,omitempty"`
	Context Origin            `json:"context"`
	Status  int               `json:"status,omitempty"`
	Code    string            `json:"code,omitempty"`
	Request json.RawMessage   `json:"request,omitempty"`
	Before  json.RawMessage   `json:"before,omitempty"`
	After   json.RawMessage   `json:"after,omitempty"`
}

// Begin records that an action is about to be tried, in the audit log of each of its owners. If it returns an error,
// the action must not be tried: domain.CodeTooManyRequests after too many of a tenant, and otherwise the append's
// error.
func (r *Recorder) Begin(ctx context.Context, a Action) (*Action, error) {
	if a.Caller != domain.Everyone {
		if err := r.admit(a.Caller); err != nil {
			return nil, err
		}
	}
	a.recorder, a.started = r, domain.NewEventID()
	a.stream = streamOf(a.Category, a.Targets)
	events, err := a.event(a.started, TypeStarted, record{Request: r.bound(a.Caller, a.Request), Before: r.bound(a.Caller, a.Before)})
	if err != nil {
		return nil, err
	}
	for i, owner := range a.Owners {
		if _, err := r.config.Append(ctx, owner.AuditLog(), events); err != nil {
			a.abandon(i, err)
			return nil, fmt.Errorf("record an action before it is tried: %w", err)
		}
	}
	return &a, nil
}

// abandon leaves to Run the outcome of an action that is not tried, because of the error with which the append for an
// owner failed. The owners before have its ActionStarted, and this one may have it.
func (a *Action) abandon(owner int, failed error) {
	if e, ok := errors.AsType[*domain.Error](failed); !ok || e.Code == domain.CodeOutcomeUnknown {
		owner++
	}
	events, err := a.outcome(Outcome{Type: TypeRefused, Status: http.StatusServiceUnavailable, Code: string(domain.CodeUnavailable)})
	if err != nil {
		return // it was logged
	}
	for _, owner := range a.Owners[:owner] {
		a.recorder.keep(&a.recorder.outcomes, pending{owner, events})
	}
}

// End records an action's outcome. It does not end with ctx. What cannot be appended in a second is appended by Run.
func (a *Action) End(ctx context.Context, o Outcome) {
	events, err := a.outcome(o)
	if err != nil {
		return // it was logged
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), outcomePatience)
	defer cancel()
	r := a.recorder
	for _, owner := range a.Owners {
		if err := r.append(ctx, pending{owner, events}); err != nil {
			r.config.Log.Warn("the outcome of an action could not be recorded; trying again", "action", a.Operation, "requestId", a.Origin.RequestID, "error", err)
			r.keep(&r.outcomes, pending{owner, events})
		}
	}
}

// outcome returns the event of an action's outcome. It logs errors.
func (a *Action) outcome(o Outcome) (domain.Append, error) {
	events, err := a.event(domain.NewEventID(), o.Type, record{Status: o.Status, Code: o.Code, After: a.recorder.bound(a.Caller, o.After)})
	if err != nil {
		a.recorder.config.Log.Error("the outcome of an action was not recorded", "action", a.Operation, "requestId", a.Origin.RequestID, "error", err)
	}
	return events, err
}

// event returns an event of the action.
func (a *Action) event(id domain.EventID, eventType string, data record) (domain.Append, error) {
	data.Action, data.Actor, data.Targets, data.Query, data.Context = a.Operation, a.Actor, a.Targets, a.Query, a.Origin
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

// limiterOf returns the limiter of a tenant.
func (r *Recorder) limiterOf(tenant domain.TenantID) *limiter {
	of, ok := r.limiters.Get(tenant)
	if !ok {
		of = &limiter{rate.NewLimiter(actionsASecond, actionsBurst), rate.NewLimiter(rate.Every(24*time.Hour/bodiesADay), bodiesADay)}
		if before, found, _ := r.limiters.PeekOrAdd(tenant, of); found {
			of = before
		}
	}
	return of
}

// admit counts an action of a tenant, or refuses it.
func (r *Recorder) admit(tenant domain.TenantID) error {
	if r.limiterOf(tenant).actions.Allow() {
		return nil
	}
	err := domain.Errorf(domain.CodeTooManyRequests, "", "too many administrative actions: after %d, the tenant may make %d a second; retry later", actionsBurst, actionsASecond)
	err.RetryAfter = time.Second
	return err
}

// bound returns JSON without what makes it too long for an event, or for what its tenant may store a day.
func (r *Recorder) bound(tenant domain.TenantID, text json.RawMessage) json.RawMessage {
	short := shorten(text)
	if tenant == domain.Everyone || r.limiterOf(tenant).bodies.AllowN(time.Now(), len(short)) {
		return short
	}
	return Cut(len(text))
}

// streamOf returns the stream of a thing. A thing without a name yet is "new". A UUID replaces a name that no stream
// can have.
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
	owner  domain.TenantID // of the audit log
	events domain.Append
}

// maxPending is how many outcomes, and how many counts, wait while the database does not answer.
const maxPending = 1000

// append appends to an audit log. It returns an error if that must be tried again.
func (r *Recorder) append(ctx context.Context, p pending) error {
	_, err := r.config.Append(ctx, p.owner.AuditLog(), p.events)
	if e, ok := errors.AsType[*domain.Error](err); ok && e.Code == domain.CodeInvalidRequest {
		first := p.events.Streams[0]
		r.config.Log.Error("an event of an audit log was refused", "stream", first.Stream, "type", first.Events[0].Type, "error", err)
		return nil
	}
	return err
}

// appendLater is append for what has waited: its tenant may have been deleted meanwhile.
func (r *Recorder) appendLater(ctx context.Context, p pending) error {
	if p.owner != domain.Everyone && r.config.Ended != nil {
		if ended, err := r.config.Ended(ctx, p.owner); ended || err != nil {
			return err
		}
	}
	return r.append(ctx, p)
}

// keep leaves appends to Run, in one of its queues.
func (r *Recorder) keep(queue *[]pending, appends ...pending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	room := max(0, maxPending-len(*queue))
	if lost := len(appends) - room; lost > 0 {
		r.config.Log.Error("events of audit logs were lost: too many wait for the database", "appends", lost)
		appends = appends[:room]
	}
	*queue = append(*queue, appends...)
}

// Run appends what was counted and what could not be appended, until ctx ends, then once more, and returns nil.
func (r *Recorder) Run(ctx context.Context) error {
	tick := time.NewTicker(r.config.Every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			now, cancel := context.WithTimeout(ctx, r.config.Every)
			r.Flush(now)
			cancel()
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastFlush)
			defer cancel()
			r.Flush(last)
			return nil
		}
	}
}

// Flush appends what could not be appended before, and then what was counted, until ctx ends.
func (r *Recorder) Flush(ctx context.Context) {
	r.mu.Lock()
	outcomes, counts, denied := r.outcomes, r.counts, r.denied
	r.outcomes, r.counts, r.denied = nil, nil, make(map[domain.TenantID]map[Denial]*denials)
	r.mu.Unlock()
	for owner, of := range denied {
		events, err := deniedEvents(of)
		if err != nil {
			r.config.Log.Error("denied requests were not recorded", "error", err)
			continue
		}
		counts = append(counts, pending{owner, events})
	}
	r.keep(&r.outcomes, r.flush(ctx, "outcomes of actions", outcomes)...)
	r.keep(&r.counts, r.flush(ctx, "counts of denied requests", counts)...)
}

// flush appends what waits, and returns what must wait longer.
func (r *Recorder) flush(ctx context.Context, what string, waiting []pending) (failed []pending) {
	var last error
	for i, p := range waiting {
		if ctx.Err() != nil {
			failed, last = append(failed, waiting[i:]...), ctx.Err()
			break
		}
		if err := r.appendLater(ctx, p); err != nil {
			failed, last = append(failed, p), err
		}
	}
	if len(failed) > 0 {
		r.config.Log.Warn(what+" could not be recorded; trying again while the process runs", "appends", len(failed), "error", last)
	}
	return failed
}
