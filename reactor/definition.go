package reactor

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/subscription"
)

// Definition says of which events a reactor is, and how it is called. Name must be set; the zero value of all else is a default.
type Definition struct {
	// Name is as domain.CheckName wants it. The group reactor.NAME keeps each tenant's place: another name is another reactor.
	Name string

	// Projection makes it a reactor to what a projection stores: it is called for the events that have a document there, when
	// that is stored. The name is meant as each tenant means it: its own projection, or the shared one; where there is none,
	// nothing happens. A live projection stores nothing and cannot be named.
	Projection string
	Categories []string // without Projection: whose events; none: all
	Types      []string // of these types; none: all
	Filter     string   // an expression of the event (CEL), true for those that are wanted; empty: all

	// From is where a tenant's first event is: empty is when the reactor was declared for the first time, on whatever process;
	// "start" is the beginning of each log.
	From string

	Concurrency int             // calls at the same time for one tenant, in a process; 0: DefaultConcurrency
	Timeout     time.Duration   // of a call, whose context ends then; 0: DefaultTimeout
	Ordering    domain.Ordering // with OrderingStream a stream's events come one after another; empty: OrderingNone
	MaxAttempts int             // before an event becomes a dead letter; 0: domain.DefaultMaxAttempts
	BackoffMin  time.Duration   // before the second attempt, doubled with each further one
	BackoffMax  time.Duration   // both 0: the defaults of groups
}

// Defaults and limits of a Definition.
const (
	DefaultConcurrency = 8
	MaxConcurrency     = 256
	DefaultTimeout     = 30 * time.Second
	MaxTimeout         = 30 * time.Minute
)

// Event is what a reactor is called with.
type Event struct {
	domain.Event     // as the log has it
	Attempt      int // 1, 2, 3 ...: more than 1 where an earlier call failed, or its process did
	// DocumentID is the id of the event's document; empty without Definition.Projection.
	DocumentID string
	// Document is that document as it is stored now: by this event, or by a later one. nil: it was removed, or never made.
	Document *domain.Document
}

// Handler is what a reactor does. It is called once for each event, or again where it failed or its process died: what it does
// must bear that, by the event's id. It must return soon after ctx ends. A panic is an error.
type Handler func(ctx context.Context, tenant domain.TenantID, event Event) error

// Reactor is a definition with its handler.
type Reactor struct {
	Definition
	Handler Handler
}

// group is the group that the definition asks for, with its defaults.
func (d Definition) group() (domain.GroupDefinition, error) {
	return subscription.Complete(domain.GroupDefinition{
		Selection: domain.Selection{Categories: d.Categories, Types: d.Types, Filter: d.Filter},
		From:      d.From,
		// A call may end just before its timeout, and its answer has to be in time, too.
		AckTimeout:  d.timeout() + answerTimeout,
		MaxAttempts: d.MaxAttempts, BackoffMin: d.BackoffMin, BackoffMax: d.BackoffMax, Ordering: d.Ordering,
	})
}

func (d Definition) timeout() time.Duration { return cmp.Or(d.Timeout, DefaultTimeout) }
func (d Definition) concurrency() int       { return cmp.Or(d.Concurrency, DefaultConcurrency) }

// check reports what is wrong with a reactor, as a *domain.Error.
func (r Reactor) check() error {
	refuse := func(where, format string, args ...any) error {
		return domain.Errorf(domain.CodeInvalidRequest, where, format, args...)
	}
	if err := domain.CheckName("name", r.Name); err != nil {
		return err
	}
	if r.Handler == nil {
		return refuse("handler", "a reactor is called: give it a function")
	}
	if r.Projection != "" {
		if len(r.Categories) > 0 {
			return refuse("categories", "the projection says of which categories the events are; leave them out, or leave the projection out")
		}
		if err := domain.CheckProjectionName("projection", r.Projection); err != nil {
			return err
		}
	}
	if r.From != "" && r.From != "start" {
		return refuse("from", "%q is no place; leave it out, or write start", r.From)
	}
	if r.Concurrency < 0 || r.Concurrency > MaxConcurrency {
		return refuse("concurrency", "it is %d; it must be from 1 to %d", r.Concurrency, MaxConcurrency)
	}
	if r.Timeout < 0 || r.Timeout > MaxTimeout {
		return refuse("timeout", "it is %s; it must be from 0 to %s", r.Timeout, MaxTimeout)
	}
	_, err := r.group()
	return err
}

// narrow is those of some types that are among others; none stands for all of them, and ok is false where nothing is left.
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
