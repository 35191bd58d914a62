// Package service wires all parts of Manifold together and runs them.
//
// Start turns a configuration, and the Extensions of a program, into a running Process. It listens (listeners.go),
// opens the log and the databases of documents (start.go, database_open.go), and connects the parts with each other
// (wire.go). Then the process answers requests, and works in the background (background.go) until Stop.
package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/audit"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/auth/oidc"
	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/delivery/egress"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/delivery/reactor"
	"github.com/manifold-es/manifold/delivery/report"
	"github.com/manifold-es/manifold/delivery/tail"
	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/erasure/subjects"
	"github.com/manifold-es/manifold/limits"
	"github.com/manifold-es/manifold/members"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/totals"
	"github.com/manifold-es/manifold/rebuild"
	"github.com/manifold-es/manifold/retention"
	"github.com/manifold-es/manifold/schema"
	"github.com/manifold-es/manifold/seal"
	"github.com/manifold-es/manifold/tables"
	"github.com/manifold-es/manifold/telemetry"
	"github.com/manifold-es/manifold/telemetry/tracing"
	"github.com/manifold-es/manifold/upcasting"
	"github.com/manifold-es/manifold/usage"
)

// Process is one running process of the service, wired together from a configuration. Any number of processes may run
// on one database, even in one program.
type Process struct {
	config  config.Config
	log     *slog.Logger
	metrics *telemetry.Metrics
	traces  *telemetry.Traces // nil: the process exports none
	tracer  *tracing.Tracer   // nil: it records none

	store       *tables.Tables
	databases   map[string]*database      // of documents, by their names in definitions
	drivers     map[string]drivers.Driver // the same databases, as plain drivers
	logDatabase string                    // the name of the log's own database; empty: none
	ownWatch    atomic.Pointer[database]  // the log's own database; nil: none, or not open yet
	keys        *auth.Keys
	tokens      *oidc.Verifier   // nil: no issuer is configured
	limits      *limits.Settings // of all tenants
	limiter     *limits.Limiter
	meter       *usage.Meter
	audit       *audit.Recorder
	budget      *budget.Requests // limits the cost of requests that fold
	upcasters   *upcasting.Upcasters
	schemas     *schema.Schemas
	states      *aggregate.States
	inline      *projection.Inline
	catalog     *projection.Catalog
	runner      *projection.Runner
	id          domain.MemberID
	members     *members.Members
	rebuilds    *rebuild.Rebuilds
	retention   *retention.Retention
	sealer      *seal.Sealer
	subjects    *subjects.Subjects
	tails       *tail.Tails
	groups      *group.Groups
	webhooks    *webhook.Webhooks
	reactors    *reactor.Reactors
	changes     *reactor.Changes
	reports     *report.Reporter
	totals      *totals.Totals
	egresses    []*egress.Egress
	consumers   *consume.Dispatcher // of the groups that the service itself consumes

	public     *listener
	admin      *listener // nil: none
	handlers   atomic.Pointer[handlers]
	waiting    atomic.Pointer[string] // why the process waits for its database; nil when it does not
	api        *api.Server
	requests   context.Context // parent of every request's context; ended, with a cause, when waiting is over
	endWaiting context.CancelCauseFunc

	answering     tasks // requests under way
	background    tasks
	endBackground context.CancelFunc
	overdue       context.Context // ends at the deadline of Stop: from then on, background work waits for nothing
	endOverdue    context.CancelFunc
	outages       *telemetry.Outages
	serving       sync.WaitGroup
	failed        chan error // at most one error: why the process cannot continue
	stopping      atomic.Bool
	readiness     readiness
	deployLater   []domain.Definition
	undo          []func() // closes what Start has opened; run in reverse order
	stopOnce      sync.Once
	stopErr       error
}

// Start starts a process, and returns when it answers requests. ctx bounds only the start. The process runs until
// Stop, which the caller must call. If the process cannot continue, Failed reports that.
//
// Start returns an error for what cannot work: a wrong configuration or definition, or a login that the database
// refuses while it accepts another. While Manifold's own database is unreachable, or lacks what `manifold migrate up`
// creates, Start waits for it until ctx ends. Meanwhile the process listens: /livez answers 200, /readyz answers 503
// with the reason, and everything else answers 503. Start does not wait for a database of documents that does not
// answer, unless it is the log's own. The process retries such a database until it answers.
func Start(ctx context.Context, c config.Config, log *slog.Logger, extensions Extensions) (*Process, error) {
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("invalid configuration:\n%w", err)
	}
	p := &Process{config: c, outages: telemetry.NewOutages(causeOfOutage), id: domain.NewMemberID(), failed: make(chan error, 1)}
	p.log = p.outages.Logger(log)
	p.requests, p.endWaiting = context.WithCancelCause(context.Background())
	background, endBackground := context.WithCancel(context.Background())
	p.endBackground = endBackground
	p.overdue, p.endOverdue = context.WithCancel(context.Background())
	p.openTraces(extensions)
	err := p.checkSettings(extensions)
	if err == nil {
		err = p.listen(background)
	}
	if err == nil {
		err = p.assemble(ctx, extensions)
	}
	if err != nil {
		p.endWaiting(err)
		endBackground()
		p.closeListeners()
		p.serving.Wait()
		ending, cancel := context.WithTimeout(context.Background(), stopMargin)
		defer cancel()
		p.background.wait(ending)
		p.close()
		p.closeTraces(ending)
		p.outages.End()
		return nil, err
	}
	p.startBackground(background)
	p.answer()
	listening := []any{"address", p.Address(), "role", string(c.Role), "version", Version()}
	if p.admin != nil {
		listening = append(listening, "admin", p.AdminAddress())
	}
	log.Info("listening", listening...)
	return p, nil
}

// causeOfOutage reports whether an error means that a database does not answer. During such an outage, every loop and
// every request fails with that error.
func causeOfOutage(err error) (cause string, outage bool) {
	if failure, ok := errors.AsType[*domain.Error](err); ok && failure.Code == domain.CodeOutcomeUnknown {
		return string(failure.Code), true
	}
	cause = pg.Absence(err)
	return cause, cause != ""
}

// Address returns the address where the process answers requests, as host:port.
func (p *Process) Address() string { return p.public.Addr().String() }

// AdminAddress returns the address where the process answers the operator, as host:port. It is empty if there is no
// admin listener, and only Address answers.
func (p *Process) AdminAddress() string {
	if p.admin == nil {
		return ""
	}
	return p.admin.Addr().String()
}

// Failed returns a channel that receives an error when the process cannot continue. The caller should then call Stop.
func (p *Process) Failed() <-chan error { return p.failed }

func (p *Process) fail(err error) {
	select {
	case p.failed <- err:
	default: // the first error says why
	}
}
