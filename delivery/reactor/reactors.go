package reactor

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// Config configures Reactors. Births, Groups and Projections are required.
type Config struct {
	Births      *group.Postgres   // records since when each reactor exists
	Claims      *webhook.Postgres // finds duplicates; required if a reactor has a DedupeID
	Groups      *group.Groups
	Projections *projection.Catalog
	Reactors    []Reactor
	Log         *slog.Logger    // nil: none
	Tracer      *tracing.Tracer // records a span of each call; nil: none
	// Called is called after each call of a reactor, whether it failed or not. It must return at once. Nil means that
	// nothing is called.
	Called func(reactor string, failed bool, took time.Duration)
}

// Reactors calls Go functions for events. It is a source of a consume.Dispatcher. All methods may be called
// concurrently.
type Reactors struct {
	config Config
	all    []declared
	groups knownGroups
}

// declared is a reactor with the definition of its group.
type declared struct {
	Reactor
	definition domain.GroupDefinition
	dedupe     *webhook.Dedupe // nil: none
}

var _ consume.Source = (*Reactors)(nil)

// New checks the reactors. Its error wraps a *domain.Error whose place is in the reactor's definition.
func New(config Config) (*Reactors, error) {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Called == nil {
		config.Called = func(string, bool, time.Duration) {}
	}
	r := &Reactors{config: config, groups: knownGroups{groups: config.Groups}}
	for _, reactor := range config.Reactors {
		if err := reactor.check(); err != nil {
			return nil, fmt.Errorf("reactor %q: %w", reactor.Name, err)
		}
		if slices.ContainsFunc(r.all, func(d declared) bool { return d.Name == reactor.Name }) {
			return nil, fmt.Errorf("two reactors are named %q", reactor.Name)
		}
		definition, err := reactor.group()
		if err != nil {
			return nil, fmt.Errorf("reactor %q: %w", reactor.Name, err)
		}
		if reactor.DedupeID != "" && config.Claims == nil {
			return nil, fmt.Errorf("reactor %q has a DedupeID, which needs Config.Claims", reactor.Name)
		}
		dedupe, err := webhook.NewDedupe(config.Claims, reactor.DedupeID, reactor.DedupeWindow)
		if err != nil {
			return nil, fmt.Errorf("reactor %q: %w", reactor.Name, err)
		}
		r.all = append(r.all, declared{reactor, definition, dedupe})
	}
	return r, nil
}

// Declare records since when these reactors exist. It must be called before the dispatcher runs and before this process
// accepts events. Then a reactor is called for all events appended from then on.
func (r *Reactors) Declare(ctx context.Context) error {
	for i := range r.all {
		if r.all[i].From == "start" {
			continue
		}
		since, err := r.config.Births.Declare(ctx, domain.Everyone, domain.ServiceReactor, r.all[i].Name, time.Time{})
		if err != nil {
			return err
		}
		r.all[i].definition.From = domain.From{Time: since}.String()
	}
	return nil
}

// Watches reports whether a projection of this name is the source of a reactor.
func (r *Reactors) Watches(projection string) bool {
	return slices.ContainsFunc(r.all, func(d declared) bool { return d.Projection == projection })
}

// Consumers returns one consumer for each reactor, and none for an audit log. It implements consume.Source.
func (r *Reactors) Consumers(_ context.Context, tenant domain.TenantID) ([]consume.Consumer, error) {
	if tenant.IsAuditLog() {
		return nil, nil
	}
	consumers := make([]consume.Consumer, len(r.all))
	for i := range r.all {
		consumers[i] = consume.Consumer{
			Name: domain.ServiceGroup(domain.ServiceReactor, r.all[i].Name), // its revision is the program's
			Run: func(ctx context.Context) (time.Time, error) {
				return r.run(ctx, tenant, &r.all[i])
			},
		}
	}
	return consumers, nil
}

// run calls a reactor for what is due.
func (r *Reactors) run(ctx context.Context, tenant domain.TenantID, d *declared) (nextRun time.Time, err error) {
	source := consume.Group{
		Groups: r.config.Groups, Tenant: tenant, Name: domain.ServiceGroup(domain.ServiceReactor, d.Name),
		Projection: d.Projection, Projections: r.config.Projections, AsOfEvent: d.AsOfEvent, Stalls: &r.groups.stalls,
	}
	source.Follow = func(ctx context.Context) error { return r.follow(ctx, tenant, d, source.Name) }
	if err := source.Follow(ctx); err != nil {
		return time.Time{}, ignoreNoSource(err) // a new projection notifies its tenants' consumers
	}
	nextRun, err = rerunWithoutSource(newRound(r, d, source).Run(ctx))
	if domain.IsCode(err, domain.CodeNotFound) {
		r.groups.forget(tenant, source.Name) // the group or the projection was removed
	}
	if err == nil && d.dedupe != nil {
		r.sweep(ctx, tenant, d, source.Name)
	}
	return nextRun, err
}

// sweepEvery is how often the outdated claims of a tenant's reactor are removed.
const sweepEvery = 10 * time.Minute

// sweep removes outdated claims of a reactor, if that was not done lately.
func (r *Reactors) sweep(ctx context.Context, tenant domain.TenantID, d *declared, group string) {
	if !r.groups.sweepDue(tenant, group, time.Now()) {
		return
	}
	for more := true; more && ctx.Err() == nil; {
		var err error
		if more, err = d.dedupe.Sweep(ctx, tenant, group); err != nil && ctx.Err() == nil {
			r.config.Log.Warn("old claims of a reactor were not removed; trying again later", "reactor", d.Name, "tenant", tenant.String(), "error", err)
			return
		}
	}
}

// follow creates a reactor's group, or updates it to what its projection selects now. The error is errNoSource if the
// tenant has no such projection, or if the projection selects none of the reactor's types.
func (r *Reactors) follow(ctx context.Context, tenant domain.TenantID, d *declared, group string) error {
	definition := d.definition
	if d.Projection != "" {
		p, err := r.config.Projections.Live(ctx, tenant, d.Projection)
		if domain.IsCode(err, domain.CodeNotFound) {
			return errNoSource
		}
		if err != nil {
			return err
		}
		var types []string
		definition.Categories, types = r.config.Projections.Selects(p)
		types, ok := narrow(d.Types, types)
		if !ok {
			return errNoSource
		}
		definition.Types = typesOf(types)
	}
	return r.groups.ensure(ctx, tenant, group, definition, false)
}
