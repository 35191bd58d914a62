package manifold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/dispatch"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/egress"
	"github.com/manifold-es/manifold/erasure"
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

// defaultDatabase is the name that definitions have for the log's own database.
const defaultDatabase = "default"

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

// openDatabases opens every database of documents, at the same time.
func (p *Process) openDatabases(ctx context.Context, o settings, own string) error {
	var configured map[string]config.DocumentsDatabase
	configured, p.logIn = documentsDatabases(p.config, own)
	p.databases, p.drivers = make(map[string]*database), make(map[string]drivers.Driver)
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		open, err := opener(o, name, configured[name], p.log)
		if err != nil {
			return err
		}
		d := newDatabase(name, open, p.log)
		p.undo = append(p.undo, d.Close)
		p.databases[name], p.drivers[name] = d, d
	}
	var tries sync.WaitGroup
	var ownErr error
	for name, d := range p.databases {
		tries.Go(func() {
			if err := d.try(ctx); name == p.logIn {
				ownErr = err
			}
		})
	}
	tries.Wait()
	if ownErr != nil {
		return fmt.Errorf("open the log's own database for documents: %w", ownErr)
	}
	return nil
}

// documentsDatabases are the databases of documents: those of the configuration, and the log's own, at own, by the name
// logIn, unless the configuration has another one of its name.
func documentsDatabases(c config.Config, own string) (all map[string]config.DocumentsDatabase, logIn string) {
	all = make(map[string]config.DocumentsDatabase)
	maps.Copy(all, c.Databases)
	if _, elsewhere := all[defaultDatabase]; !elsewhere {
		all[defaultDatabase] = config.DocumentsDatabase{Driver: "postgres", URL: own}
		logIn = defaultDatabase
	}
	return all, logIn
}

// opener returns what opens one of the configuration's databases of documents. Its errors show no password.
func opener(o settings, name string, of config.DocumentsDatabase, log *slog.Logger) (func(context.Context) (drivers.Driver, error), error) {
	open, ok := o.drivers[of.Driver]
	if !ok {
		return nil, fmt.Errorf("databases.%s.driver: there is no driver %q; there is %s", name, of.Driver, strings.Join(slices.Sorted(maps.Keys(o.drivers)), ", "))
	}
	url, err := of.Address()
	if err != nil {
		return nil, fmt.Errorf("databases.%s.url: %w", name, err)
	}
	return func(ctx context.Context) (drivers.Driver, error) {
		driver, err := open(ctx, DriverConfig{URL: url, MaxConns: of.MaxConns, Log: log.With("database", name)})
		if err != nil {
			return nil, config.WithoutSecrets(err, url)
		}
		return driver, nil
	}, nil
}

// outage tells whether a database of documents is known not to answer.
func (p *Process) outage(database string) (projection.Outage, bool) {
	if d := p.databases[database]; d != nil {
		return d.Outage()
	}
	return projection.Outage{}, false
}

// appendLog is the store's log, and tells of each append, so that the snapshots that it brings due are taken.
type appendLog struct {
	*store.Store
	states *aggregate.States
}

func (l appendLog) Append(ctx context.Context, tenant domain.TenantID, request domain.Append) (domain.Appended, error) {
	appended, err := l.Store.Append(ctx, tenant, request)
	if err == nil {
		l.states.Appended(tenant, appended)
	}
	return appended, err
}

// wire makes the parts and gives them to one another.
func (p *Process) wire(o settings) error {
	operators := make([]auth.OperatorKey, len(p.config.OperatorKeys))
	var err error
	for i, text := range p.config.OperatorKeys {
		if operators[i], err = auth.ParseOperatorKey(text); err != nil {
			return fmt.Errorf("operatorKey: %w", err)
		}
	}
	if p.keys, err = auth.NewKeys(auth.Config{Store: p.store, Operators: operators}); err != nil {
		return err
	}
	if p.upcasters, err = upcasting.New(p.store); err != nil {
		return err
	}
	inlineUpcasters, err := upcasting.New(store.BySystem{Store: p.store})
	if err != nil {
		return err
	}
	if p.states, err = aggregate.New(aggregate.Config{Store: p.store, Upcasters: p.upcasters, Log: p.log}); err != nil {
		return err
	}
	// No time at all is a setting; a zero there asks for the default.
	keep := max(p.config.RebuildKeep, time.Nanosecond)
	progress := projection.NewProgress()
	lost := func(id domain.ProjectionID, build int64) { p.rebuilds.Lost(id, build) }
	if !p.config.Role.Worker() {
		lost = nil // nobody here would start the rebuild
	}
	p.inline = projection.NewInline(projection.InlineConfig{
		Store: p.store, Drivers: p.drivers, Handlers: o.handlers, Upcasters: inlineUpcasters, Log: p.log,
	})
	p.catalog = projection.NewCatalog(projection.CatalogConfig{
		Lost:  lost,
		Store: p.store, Drivers: p.drivers, Handlers: o.handlers, Progress: progress, Keep: keep, Log: p.log,
		Outages: p.outage, LogIn: p.logIn, Upcasters: p.upcasters,
	})
	p.members = members.New(members.Config{
		Store: p.store, Name: p.memberName, Version: Version(), Changed: p.rebalance, Log: p.log,
	})
	p.runner = projection.NewRunner(projection.RunnerConfig{
		Owns: p.members.Owns, Ceiling: p.config.Limits.ProjectionCeiling,
		Store: p.store, Drivers: p.drivers, Handlers: o.handlers, Progress: progress, Outages: p.outage,
		Workers: p.config.Limits.ProjectionWorkers, Upcasters: p.upcasters, Inline: p.inline, Log: p.log,
		Observer: projection.Observer{
			Turn: func(id domain.ProjectionID) { p.metrics.Turned(id.Name, id.Shared()) },
			Batch: func(b projection.BatchInfo) {
				p.metrics.Projected(b.Projection.Name, b.Projection.Shared(), b.Events)
				p.metrics.Lag(b.Projection.Name, b.Projection.Shared(), b.Lag)
			},
			Fault: func(f domain.Fault) { p.metrics.Faulted(f.Name, f.Shared()) },
			Lost:  lost,
		},
	})
	p.metrics.CollectBehind(func(yield func(projection string, positions int64, faulted int)) {
		for _, lag := range p.runner.Lags() {
			yield(lag.Projection, lag.Positions, lag.Faulted)
		}
	})
	if p.config.Role.Worker() {
		p.metrics.CollectMembers(func() (alive, tenants int) { return len(p.members.Alive()), p.runner.Owned() })
	}
	p.metrics.CollectDatabases(func(yield func(database string, up bool)) {
		for name, d := range p.databases {
			_, out := d.Outage()
			yield(name, !out)
		}
	})
	p.rebuilds = rebuild.New(rebuild.Config{
		Store: p.store, Drivers: p.drivers, Handlers: o.handlers, Catalog: p.catalog, Outages: p.outage,
		Tenants: p.config.Limits.RebuildWorkers, Keep: keep, Upcasters: p.upcasters, Log: p.log,
		Yield: func(ctx context.Context, database string) error {
			p.runner.Yield(ctx, database)
			return ctx.Err()
		},
		Observer: rebuild.Observer{
			Progress: func(r domain.Rebuild) {
				p.metrics.Rebuilding(r.Name, r.Shared(), r.EventsDone, r.EventsTotal)
			},
			Ended: func(r domain.Rebuild) { p.metrics.Rebuilt(r.Name, r.Shared(), string(r.State)) },
		},
	})
	p.tails = subscription.NewTails(subscription.TailsConfig{
		Store: p.store, Bytes: int(p.config.Limits.TailBytes), Followers: p.config.Limits.TenantFollowers, Reads: max(1, p.config.Database.MaxConns/4), Log: p.log,
		Observer: subscription.TailsObserver{Followers: p.metrics.Followers, Tails: p.metrics.Tails, Read: p.metrics.Polled},
	})
	p.groups = subscription.NewGroups(subscription.GroupsConfig{
		Store: p.store, Bytes: int(p.config.Limits.GroupBytes), Log: p.log, Changed: p.groupChanged,
		Observer: subscription.GroupObserver{
			Acked: p.metrics.Acked, Expired: p.metrics.Expired, Parked: p.metrics.DeadLettered, Received: p.metrics.Received,
			Nacked: func(action domain.NackAction, events int) { p.metrics.Nacked(string(action), events) },
		},
	})
	p.metrics.CollectEventsInFlight(p.groups.InFlight)
	p.wireRetention(o)
	if err := p.wireWebhooks(); err != nil {
		return err
	}
	if err := p.wireReactors(o); err != nil {
		return err
	}
	sources, err := p.wireEgress()
	if err != nil {
		return err
	}
	sources = append(sources, p.webhooks, p.reactors, p.changes) // of the consumers that the service is
	p.consumers = dispatch.New(dispatch.Config{Store: p.store, Sources: sources, Owns: p.members.Owns, Log: p.log})
	p.api, err = api.New(api.Config{
		Log: appendLog{p.store, p.states}, Streams: p.store, Keys: p.keys, Tenants: p.store, Members: memberList{p.store}, Aggregates: p.states,
		Projections: p.catalog, Rebuilds: p.rebuilds, Upcasters: p.upcasters,
		Tickets: p.store, Follower: p.tails, Groups: p.groups, Webhooks: p.webhooks, Retention: p.retention,
		Ready: p.checks, Metrics: p.metrics.Handler(), Logger: p.log,
		Observer: api.Observer{
			Request: p.metrics.Request, Read: p.metrics.Read, Imported: p.metrics.Imported, Published: p.metrics.Published, Followed: p.metrics.Followed, Delivered: p.metrics.Delivered,
		},
	})
	if err != nil {
		return err
	}
	p.server = &http.Server{
		Handler:           p.metrics.CountInFlight(p.api.Handler()),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(p.log.Handler(), slog.LevelDebug), // clients that break off: no fault of ours
		BaseContext:       func(net.Listener) context.Context { return p.requests },
	}
	if !p.config.Role.Web() {
		p.server.Handler = onlyHealth(p.server.Handler)
	}
	return nil
}

// onlyHealth answers what is asked of a process that has no other requests to answer.
func onlyHealth(all http.Handler) http.Handler {
	mux := http.NewServeMux()
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		mux.Handle(path, all)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "this process has the role worker; ask one with the role web", http.StatusNotFound)
	})
	return mux
}

// checkTimeout bounds the look at one dependency for /readyz.
const checkTimeout = 2 * time.Second

// checks says what the process depends on, and how that is.
func (p *Process) checks(ctx context.Context) []api.Check {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	names := slices.Sorted(maps.Keys(p.databases))
	all := make([]api.Check, 1+len(names))
	var done sync.WaitGroup
	done.Go(func() { all[0] = api.Check{Name: "database", Err: forAnybody(p.store.Ping(ctx))} })
	for i, name := range names {
		done.Go(func() {
			all[1+i] = api.Check{Name: "documents: " + name, Err: forAnybody(p.databases[name].Ping(ctx)), Optional: true}
		})
	}
	done.Wait()
	if p.stopping.Load() {
		all = append(all, api.Check{Name: "stopping", Err: errors.New("the process is about to end")})
	}
	return all
}

// forAnybody is what whoever asks is told of a ping's error. The log says more, and so does manifold doctor.
func forAnybody(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("it did not answer within %s", checkTimeout)
	}
	return errors.New(domain.ClientMessage(err))
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

// run starts what works in the background.
func (p *Process) run(ctx context.Context) {
	start := func(what string, run func(context.Context) error) {
		p.background.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				p.fail(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	start("follow changes of keys", func(ctx context.Context) error {
		return p.store.ListenKeys(ctx, p.keys.Forget)
	})
	// Wherever events are appended, snapshots become due.
	start("take snapshots", p.states.Run)
	for name, d := range p.databases {
		p.background.Go(func() {
			d.run(ctx, func() {
				p.runner.Answers(name)
				p.rebuilds.Answers(name)
			})
		})
	}
	start("follow logs", func(ctx context.Context) error {
		return p.store.Listen(ctx, p.wake)
	})
	start("look after webhooks", p.webhooks.Run)
	start("follow changes of webhooks", func(ctx context.Context) error {
		return p.store.ListenWebhooks(ctx, p.noticeWebhooks)
	})
	consumed := make(chan struct{}) // closed when nothing here receives from a group by itself any more
	start("look after groups", func(ctx context.Context) error {
		longer, end := context.WithCancel(context.WithoutCancel(ctx))
		defer end()
		defer context.AfterFunc(ctx, func() {
			<-consumed // what the consumers have done is still answered for
			end()
		})()
		return p.groups.Run(longer)
	})
	start("follow changes of groups", func(ctx context.Context) error {
		return p.store.ListenGroups(ctx, p.noticeGroup)
	})
	if !p.config.Role.Worker() {
		close(consumed)
		return
	}
	start("run consumers", func(ctx context.Context) error {
		defer close(consumed)
		return p.consumers.Run(ctx)
	})
	start("follow changes of projections", func(ctx context.Context) error {
		return p.store.ListenProjections(ctx, func() {
			p.runner.Refresh()
			p.rebuilds.Wake()
			p.changes.Refresh()
		})
	})
	start("follow what publishes changes", p.changes.Run)
	start("follow what is to be tried again", func(ctx context.Context) error {
		return p.store.ListenRetries(ctx, p.runner.Retry)
	})
	start("follow projections", p.runner.Run)
	start("announce the process", p.members.Run)
	start("work on rebuilds", p.rebuilds.Run)
	start("remove events", p.retention.Run)
	start("follow changes of retention policies", p.listenRetention)
	start("erase tenants", erasure.New(erasure.Options{Store: p.store, Drivers: p.drivers, Log: p.log}).Run)
	p.background.Go(func() { p.deployRest(ctx) })
}

// wake tells all who follow logs that one has moved.
func (p *Process) wake(head domain.Head) {
	p.groups.Wake(head)
	if p.config.Role.Worker() {
		p.runner.Wake(head)
		p.consumers.Wake(head)
	}
	if p.config.Role.Web() {
		p.tails.Wake(head)
	}
}

// rebalance tells all who work for the tenants that this process owns that these may be others.
func (p *Process) rebalance() {
	p.runner.Rebalance()
	p.consumers.Rebalance()
	p.retention.Rebalance()
}

// noticeGroup tells that another process has changed a group, or, without a name, may have changed some.
func (p *Process) noticeGroup(tenant domain.TenantID, name string) {
	p.groups.Notice(tenant, name)
	p.groupChanged(tenant, name)
}

// groupChanged tells the consumers of a group that it was changed.
func (p *Process) groupChanged(tenant domain.TenantID, name string) {
	if _, _, ours := domain.ParseServiceGroup(name); ours || name == "" {
		p.consumers.Notice(tenant)
	}
}

func (p *Process) fail(err error) {
	select {
	case p.failed <- err:
	default: // the first one says why
	}
}
