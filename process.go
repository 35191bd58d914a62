package manifold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/dispatch"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/egress"
	"github.com/manifold-es/manifold/members"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/reactor"
	"github.com/manifold-es/manifold/rebuild"
	"github.com/manifold-es/manifold/retention"
	"github.com/manifold-es/manifold/store"
	"github.com/manifold-es/manifold/subscription"
	"github.com/manifold-es/manifold/telemetry"
	"github.com/manifold-es/manifold/upcasting"
	"github.com/manifold-es/manifold/webhook"
)

// Process is one running process of the service: everything that a configuration asks for, wired together. Any number of
// them may run on one database, in one program too.
type Process struct {
	config  config.Config
	log     *slog.Logger
	metrics *telemetry.Metrics

	store     *store.Store
	databases map[string]*database      // of documents, by the names that definitions use
	drivers   map[string]drivers.Driver // the same, for those who need not know more
	logIn     string                    // the name of the one that is the log's own; empty: none
	keys      *auth.Keys
	upcasters *upcasting.Upcasters
	states    *aggregate.States
	inline    *projection.Inline
	catalog   *projection.Catalog
	runner    *projection.Runner
	members   *members.Members
	rebuilds  *rebuild.Rebuilds
	retention *retention.Retention
	tails     *subscription.Tails
	groups    *subscription.Groups
	webhooks  *webhook.Webhooks
	reactors  *reactor.Reactors
	changes   *reactor.Changes
	egresses  []*egress.Egress
	consumers *dispatch.Dispatcher // of the groups whose consumer is the service

	listener   net.Listener
	api        *api.Server
	server     *http.Server
	requests   context.Context // every request's; ended, with a cause, when there is no more waiting
	endWaiting context.CancelCauseFunc

	background    sync.WaitGroup
	endBackground context.CancelFunc
	serving       sync.WaitGroup
	failed        chan error // one error at most: why the process cannot go on
	stopping      atomic.Bool
	deployLater   []domain.Definition
	undo          []func() // what Start has opened, to be closed in the opposite order
	stopOnce      sync.Once
	stopErr       error
}

// Start starts a process and returns when it answers requests. ctx bounds the starting only. The process runs until Stop,
// which must be called; should it not be able to go on before, Failed tells.
//
// What cannot work is refused: a schema that is too old, a login that cannot connect, a definition that is wrong. A
// database of documents that does not answer is no obstacle, unless it is the log's own: it is asked again and again.
func Start(ctx context.Context, c config.Config, log *slog.Logger, options ...Option) (*Process, error) {
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("the configuration cannot work:\n%w", err)
	}
	o := newSettings(options)
	p := &Process{config: c, log: log, metrics: telemetry.NewMetrics(Version()), failed: make(chan error, 1)}
	p.requests, p.endWaiting = context.WithCancelCause(context.Background())
	background, endBackground := context.WithCancel(context.Background())
	p.endBackground = endBackground
	err := p.open(ctx, o)
	if err == nil {
		err = p.wire(o)
	}
	if err == nil {
		err = p.reactors.Declare(ctx)
	}
	if err == nil {
		err = p.declareEgress(ctx)
	}
	if err == nil && c.Role.Worker() {
		err = p.deploy(ctx, o)
	}
	if err == nil {
		err = p.serve()
	}
	if err != nil {
		p.endWaiting(err)
		endBackground()
		p.close()
		return nil, err
	}
	p.run(background)
	log.Info("listening", "address", p.Address(), "role", string(c.Role), "version", Version())
	return p, nil
}

// Address is where the process answers requests, as host:port.
func (p *Process) Address() string { return p.listener.Addr().String() }

// Failed gives an error when the process cannot go on; it is to be stopped then.
func (p *Process) Failed() <-chan error { return p.failed }

// storeConfig is how the store connects.
func storeConfig(c config.Config, log *slog.Logger) (store.Config, error) {
	s := store.Config{
		MaxConns: c.Database.MaxConns, Log: log,
		QueueBytes: int64(c.Limits.TenantQueueBytes), TotalQueueBytes: int64(c.Limits.QueueBytes),
	}
	for _, login := range []struct {
		url *string
		of  config.Login
	}{{&s.AppURL, c.Database.App}, {&s.SystemURL, c.Database.System}, {&s.RetentionURL, c.Database.Retention}} {
		url, err := c.Database.URLFor(login.of)
		if err != nil {
			return store.Config{}, err
		}
		*login.url = url
	}
	return s, nil
}

// open connects with everything that keeps data.
func (p *Process) open(ctx context.Context, o settings) error {
	c, err := storeConfig(p.config, p.log)
	if err != nil {
		return err
	}
	own, err := p.config.Database.URLFor(p.config.Database.Documents)
	if err != nil {
		return err
	}
	c.Observer = store.Observer{Appended: p.metrics.Appended}
	c.Inline = inlineFolds{&p.inline}
	p.store, err = store.Open(ctx, c)
	if err != nil {
		return err
	}
	p.undo = append(p.undo, p.store.Close)
	if err := p.store.CheckSchema(ctx); err != nil {
		return err
	}
	synced, err := p.store.Synced(ctx)
	if err != nil {
		return err
	}
	if !synced {
		p.log.Warn("the database does not sync its commits: a crash of its machine can lose what was acknowledged; set fsync and synchronous_commit on")
	}
	return p.openDatabases(ctx, o, own)
}

// serve begins to answer requests.
func (p *Process) serve() error {
	listener, err := net.Listen("tcp", p.config.Listen)
	if err != nil {
		return fmt.Errorf("listen: %w", listenError(p.config.Listen, err))
	}
	p.listener = limitConnections(listener, p.config.Limits.Connections)
	p.serving.Go(func() {
		if err := p.server.Serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
			p.fail(fmt.Errorf("answer requests: %w", err))
		}
	})
	return nil
}

func (p *Process) fail(err error) {
	select {
	case p.failed <- err:
	default: // the first one says why
	}
}
