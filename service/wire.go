package service

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/audit"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/delivery/reactor"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/limits"
	"github.com/manifold-es/manifold/listen"
	"github.com/manifold-es/manifold/retention"
	"github.com/manifold-es/manifold/schema"
	"github.com/manifold-es/manifold/seal"
	"github.com/manifold-es/manifold/upcasting"
	"github.com/manifold-es/manifold/usage"
)

// appender appends with append: schema.Schemas.Append for what clients send, and AppendAnyway for changes of
// projections and reports. It notifies the states of each append, which take the snapshots that the append makes due.
type appender struct {
	append func(ctx context.Context, tenant domain.TenantID, request domain.Append) (domain.Appended, error)
	events *eventlog.Log
	states *aggregate.States
	meter  *usage.Meter
}

func (a appender) Append(ctx context.Context, tenant domain.TenantID, request domain.Append) (domain.Appended, error) {
	if pass := limits.From(ctx); pass != nil {
		events, bytes := request.Size()
		if err := pass.Append(ctx, events, bytes); err != nil && !(domain.IsCode(err, domain.CodeQuotaExceeded) && a.repeated(ctx, tenant, request)) {
			return domain.Appended{}, err
		}
	}
	appended, err := a.append(ctx, tenant, request)
	if err == nil {
		a.states.Appended(tenant, appended)
		if !appended.Duplicate {
			a.meter.Of(tenant).Appended(request.Size())
		}
	}
	return appended, err
}

// repeated reports whether the request's first event is in the log already. If so, the request appends nothing: it is a
// repetition, which quotas do not concern, or it will be refused.
func (a appender) repeated(ctx context.Context, tenant domain.TenantID, request domain.Append) bool {
	if len(request.Streams) == 0 || len(request.Streams[0].Events) == 0 || request.Streams[0].Events[0].ID.IsZero() {
		return false
	}
	_, err := a.events.EventPosition(ctx, tenant, request.Streams[0].Events[0].ID)
	return err == nil
}

// operatorKeys parses the operator's keys in the configuration.
func operatorKeys(c config.Config) ([]auth.OperatorKey, error) {
	operators := make([]auth.OperatorKey, len(c.OperatorKeys))
	for i, text := range c.OperatorKeys {
		var err error
		if operators[i], err = auth.ParseOperatorKey(text); err != nil {
			return nil, fmt.Errorf("operatorKey: %w", err)
		}
	}
	return operators, nil
}

// wire creates the parts and connects them with each other.
func (p *Process) wire(e Extensions) error {
	operators, err := operatorKeys(p.config)
	if err != nil {
		return err
	}
	rules, err := TokenRules(p.config)
	if err != nil {
		return err
	}
	if p.config.Role.Web() || p.admin != nil { // workers have the admin listener
		p.tokens = TokenVerifier(p.config, p.log)
	}
	if p.keys, err = auth.NewKeys(auth.Config{Store: p.store.KeyTables, Operators: operators, Tokens: p.tokens, TokenRules: rules, Address: listen.ClientAddress, Log: p.log}); err != nil {
		return err
	}
	p.audit = audit.New(audit.Config{Append: p.store.Append, Ended: p.store.TenantTables.Ended, Log: p.log})
	p.meter = usage.NewMeter(p.store.UsageTables, p.log)
	configured := p.config.Limits
	p.budget = budget.New(budget.Limits{Places: configured.Folds, TenantPlaces: configured.TenantFolds, Steps: configured.FoldSteps, Time: configured.FoldTime, Used: func(tenant domain.TenantID) func(int) { return p.meter.Of(tenant).Steps }})
	if p.upcasters, err = upcasting.New(p.store.Registry, p.store.Log, p.budget); err != nil {
		return err
	}
	p.schemas, err = schema.New(schema.Config{
		Store: p.store.SchemaTables, Events: p.store.Log, Upcasters: p.upcasters, Requests: p.budget, Log: p.log, Violated: p.metrics.SchemasViolated,
		Settle: schema.DefaultSettle + max(0, 4*(configured.FoldTime-budget.DefaultTime)), // requests may take longer by so much
		Owns:   func(tenant domain.TenantID) bool { return p.members.Owns(tenant) }, Retagged: p.metrics.EventsRetagged,
	})
	if err != nil {
		return err
	}
	if p.states, err = aggregate.New(aggregate.Config{Store: p.store.AggregateTables, Events: p.store.Log, Upcasters: p.upcasters, Tagger: p.schemas.Tagger, Requests: p.budget, Log: p.log}); err != nil {
		return err
	}
	p.limiter = limits.NewLimiter(limits.Config{Store: p.store.LimitTables, Settings: p.limits, Process: p.id.String(), Log: p.log})
	if err := p.wireProjections(e); err != nil {
		return err
	}
	p.wireSubscriptions()
	p.wireRetention(e)
	p.sealer = seal.New(seal.Config{
		Store: p.store.SealTables, Events: p.store.Log, Owns: p.members.Owns, Failed: p.metrics.SealFailed, Log: p.log,
	})
	if err := p.wireWebhooks(); err != nil {
		return err
	}
	if err := p.wireReactors(e); err != nil {
		return err
	}
	sources, err := p.wireEgress()
	if err != nil {
		return err
	}
	p.wireReports()
	p.wireSubjects()
	sources = append(sources, p.webhooks, p.reactors, p.changes, p.reports) // what the service itself consumes
	p.consumers = consume.New(consume.Config{Heads: p.store.Heads, Sources: sources, Owns: p.members.Owns, Log: p.log})
	appends := appender{p.schemas.Append, p.store.Log, p.states, p.meter}
	commands := aggregate.NewCommands(p.states, appends, p.metrics.Decided)
	for _, decider := range e.Deciders {
		if err := commands.Register(decider.Category, decider.Command, decider.Decide, decider.Options...); err != nil {
			return fmt.Errorf("the program's decider of a command: %w", err)
		}
	}
	return p.wireAPI(e, appends, commands)
}

// wireAPI creates the API, which answers requests.
func (p *Process) wireAPI(e Extensions, appends appender, commands *aggregate.Commands) error {
	var err error
	p.api, err = api.New(api.Config{
		Log: p.store.Log, Appends: appends, Commands: commands, Keys: p.keys, KeyTables: p.store.KeyTables, LimitTables: p.store.LimitTables, UsageTables: p.store.UsageTables, Tenants: p.store.TenantTables,
		Members: p.store.MemberTables, Births: p.store.GroupTables, Aggregates: p.states, Projections: p.catalog, Rebuilds: p.rebuilds, Upcasters: p.upcasters, Schemas: p.schemas,
		Limits: p.limiter, Follower: p.tails, Groups: p.groups, Webhooks: p.webhooks, Retention: p.retention, Subjects: p.subjects, Reports: p.reports, Totals: p.totals, Seals: p.store.SealTables, Signing: p.store.SigningKeys, Audit: p.audit, Address: listen.ClientAddress,
		Tokens: p.tokens, SignIns: p.signIns(),
		Docs: e.Docs, Ready: p.checks, Metrics: p.metrics.Handler(), AdminMetrics: p.admin != nil, AdminOperator: p.config.Admin.Exclusive, Known: listen.Known, TenantRequests: p.config.Limits.TenantRequests, Logger: p.log, Tracer: p.tracer,
		BodyBytes: int64(p.config.Limits.QueueBytes), TenantBodyBytes: int64(p.config.Limits.TenantQueueBytes),
		AnswerBytes: int64(p.config.Limits.AnswerBytes), TenantAnswerBytes: int64(p.config.Limits.TenantAnswerBytes),
		Observer: api.Observer{
			Request: p.metrics.Request, Read: p.metrics.Read, Imported: p.metrics.Imported, Published: p.metrics.Published, Followed: p.metrics.Followed, Delivered: p.metrics.Delivered,
		},
	})
	return err
}

// wireRetention creates the part that removes events. Before it removes any, it asks groups, projections and
// rebuilds.
func (p *Process) wireRetention(e Extensions) {
	settings := p.config.Retention
	if settings.Grace == 0 {
		settings.Grace = -time.Nanosecond // a configured zero means none at all, but retention's zero means the default
	}
	p.retention = retention.New(retention.Config{
		Store: p.store.RetentionTables, Holders: []retention.Holder{p.store, p.catalog}, Owns: p.members.Owns, Log: p.log,
		Grace: settings.Grace, Every: settings.Every, Share: settings.Share,
		Observer: retention.Observer{Removed: p.metrics.EventsRemoved},
		Service: func(group string) bool {
			switch kind, name, _ := domain.ParseServiceGroup(group); kind {
			case domain.ServiceReactor:
				return slices.ContainsFunc(e.Reactors, func(r reactor.Reactor) bool { return r.Name == name })
			case domain.ServiceEgress:
				of, ok := p.config.Egress[name]
				return ok && !of.Remove
			}
			return false
		},
	})
}
