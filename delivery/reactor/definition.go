package reactor

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

// Definition says which events a reactor handles, and how it is called. Name is required. The zero value of every other
// field means its default.
type Definition struct {
	// Name is valid according to domain.CheckName. The group reactor.NAME keeps each tenant's progress, so a reactor
	// with another name starts over.
	Name string

	// Projection makes the reactor follow a projection: it is called for the events that belong to a document, once the
	// document is stored. Each tenant's own projection of this name takes precedence over the shared one. If there is
	// none, nothing happens. A live projection stores nothing, so it cannot be named.
	Projection string
	// AsOfEvent gives the documents as of their own event, instead of the current ones, which may include later events.
	// It needs a projection in expressions whose key is the stream's name, as it is without a key. If a document cannot
	// be folded again because events of its stream were removed, or because the stream is too long for one request, the
	// event is retried, and becomes a dead letter with the reason.
	AsOfEvent  bool
	Categories []string     // only without Projection; none: all
	Types      []string     // none: all
	Query      domain.Query // only events that it matches; none: all
	Filter     string       // a CEL expression of the event, true for wanted events; empty: all

	// Delay is the shortest time between an event's recording and its call. Later events wait for it, too.
	Delay time.Duration
	// DedupeID is an expression event -> string (CEL). Of a tenant's events with the same id that were recorded within
	// DedupeWindow, the reactor is called only for the first. Events for which it fails, or is not a string, are all
	// called for. Empty: none are left out.
	DedupeID     string
	DedupeWindow time.Duration // from a second to webhook.MaxDedupeWindow

	// From is where each tenant's events begin. Empty means when any process first declared the reactor, and "start"
	// means the beginning of each log.
	From string

	Concurrency int             // concurrent calls for one tenant in a process; 0: DefaultConcurrency
	Timeout     time.Duration   // of a call, ending its context; 0: DefaultTimeout
	Ordering    domain.Ordering // OrderingStream delivers a stream's events in order; empty: OrderingNone
	MaxAttempts int             // before an event becomes a dead letter; 0: domain.DefaultMaxAttempts
	BackoffMin  time.Duration   // before the second attempt; doubles with each further one
	BackoffMax  time.Duration   // both 0: the defaults of groups
}

// Defaults and limits of a Definition.
const (
	DefaultConcurrency = 8
	MaxConcurrency     = 256
	DefaultTimeout     = 30 * time.Second
	MaxTimeout         = 30 * time.Minute
)

// Event is an event passed to a reactor.
type Event struct {
	domain.Event        // as in the log
	Attempt      int    // 1, 2, 3 ...: the calls that count, with this one; elsewhere it is called attempts
	MaxAttempts  int    // if the call of this attempt fails, the event becomes a dead letter
	Group        string // of the reactor, such as reactor.mail, in the API
	Cursor       int64  // of the group, at the delivery: no event up to this position was in flight
	// Documents are all of the event's documents, in the order of its keys. There are none without
	// Definition.Projection.
	Documents []projection.EventDocument
	// DocumentID is the id of the event's only document. It is empty if there are several, or none.
	DocumentID string
	// Document is that document as it is stored now, by this event or a later one, or with Definition.AsOfEvent by this
	// event. It is nil if the document was removed or never created.
	Document *domain.Document
}

// Handler handles one event. It is called again for an event if a call failed or the process died, so it must tolerate
// repeated event ids. It must return soon after ctx ends. A panic counts as an error.
type Handler func(ctx context.Context, tenant domain.TenantID, event Event) error

// Reactor is a definition with its handler.
type Reactor struct {
	Definition
	Handler Handler
}

// group returns the definition of the reactor's group, with defaults.
func (d Definition) group() (domain.GroupDefinition, error) {
	return group.Complete(domain.GroupDefinition{
		Selection: domain.Selection{Categories: d.Categories, Types: d.Types, Query: d.Query, Filter: d.Filter},
		From:      d.From, Delay: d.Delay,
		// A call may end just before its timeout, and its answer must still be in time.
		AckTimeout:  d.timeout() + settleTimeout,
		MaxAttempts: d.MaxAttempts, BackoffMin: d.BackoffMin, BackoffMax: d.BackoffMax, Ordering: d.Ordering,
	})
}

func (d Definition) timeout() time.Duration { return cmp.Or(d.Timeout, DefaultTimeout) }
func (d Definition) concurrency() int       { return cmp.Or(d.Concurrency, DefaultConcurrency) }

// check returns what is wrong with a reactor as a *domain.Error.
func (r Reactor) check() error {
	refuse := func(where, format string, args ...any) error {
		return domain.Errorf(domain.CodeInvalidRequest, where, format, args...)
	}
	if err := domain.CheckName("name", r.Name); err != nil {
		return err
	}
	if r.Handler == nil {
		return refuse("handler", "the reactor has no handler")
	}
	if r.Projection != "" {
		if len(r.Categories) > 0 {
			return refuse("categories", "the projection determines the categories; leave them out, or leave the projection out")
		}
		if err := domain.CheckProjectionName("projection", r.Projection); err != nil {
			return err
		}
	}
	if r.AsOfEvent && r.Projection == "" {
		return refuse("asOfEvent", "the reactor has no projection; name one, or leave it out")
	}
	if r.From != "" && r.From != "start" {
		return refuse("from", "%q is not supported; leave it out, or use start", r.From)
	}
	if r.Concurrency < 0 || r.Concurrency > MaxConcurrency {
		return refuse("concurrency", "it is %d; it must be from 1 to %d", r.Concurrency, MaxConcurrency)
	}
	if r.Timeout < 0 || r.Timeout > MaxTimeout {
		return refuse("timeout", "it is %s; it must be from 0 to %s", r.Timeout, MaxTimeout)
	}
	if err := webhook.CheckDedupe(r.DedupeID, r.DedupeWindow); err != nil {
		return err
	}
	_, err := r.group()
	return err
}

// narrow returns the types that are in both lists. An empty list means all types. ok is false if no type is left.
func narrow(types, among []string) (both []string, ok bool) {
	switch {
	case len(types) == 0:
		return among, true
	case len(among) == 0:
		return types, true
	}
	for _, t := range types {
		if slices.Contains(among, t) {
			both = append(both, t)
		}
	}
	return both, len(both) > 0
}
