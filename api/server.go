// Package api serves Manifold over HTTP, exactly as openapi.yaml specifies it.
//
// Config names the dependencies, New creates a Server from them, and Server.Handler serves the API. There is one file
// for each tag of the contract. Requests are first checked against the contract (contract.go). Code generated from it
// (package openapi) then decodes and answers most operations. Append, import, export and reading events do not use the
// generated code, so that they neither decode nor buffer the events that pass through (package wire). The WebSocket is
// in package gateway.
//
// The tenant comes only from the request's key. Each handler gets it with the caller, and passes it on as the argument
// right after ctx.
package api

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/docs"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/socket"
	"github.com/manifold-es/manifold/api/transfer"
	"github.com/manifold-es/manifold/audit"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/auth/oidc"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/delivery/report"
	"github.com/manifold-es/manifold/delivery/tail"
	"github.com/manifold-es/manifold/delivery/webhook"
	"github.com/manifold-es/manifold/erasure/subjects"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/limits"
	"github.com/manifold-es/manifold/members"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/totals"
	"github.com/manifold-es/manifold/rebuild"
	"github.com/manifold-es/manifold/retention"
	"github.com/manifold-es/manifold/schema"
	"github.com/manifold-es/manifold/seal"
	"github.com/manifold-es/manifold/signing"
	"github.com/manifold-es/manifold/telemetry/tracing"
	"github.com/manifold-es/manifold/tenant"
	"github.com/manifold-es/manifold/upcasting"
	"github.com/manifold-es/manifold/usage"
)

// Config holds a Server's dependencies and limits. A field without the word optional and without a default is required.
type Config struct {
	Log         *eventlog.Log
	Appends     Appender
	Keys        *auth.Keys
	Tokens      *oidc.Verifier // optional: verifies the tokens that Keys accepts
	SignIns     []SignIn       // optional: how people get such a token
	KeyTables   *auth.Postgres
	LimitTables *limits.Postgres
	UsageTables *usage.Postgres
	Tenants     *tenant.Tenants
	Members     *members.Postgres
	Births      *group.Postgres // knows which egresses were declared
	Aggregates  *aggregate.States
	Commands    *aggregate.Commands
	Projections *projection.Catalog
	Rebuilds    *rebuild.Rebuilds
	Upcasters   *upcasting.Upcasters
	Schemas     *schema.Schemas
	Follower    *tail.Tails
	Groups      *group.Groups
	Webhooks    *webhook.Webhooks
	Retention   *retention.Retention
	Subjects    *subjects.Subjects
	Reports     *report.Reporter
	Totals      *totals.Totals
	Seals       *seal.Postgres
	Signing     *signing.Keys
	Audit       *audit.Recorder

	// Docs has the repository's pages, for /docs. If it is nil, only the contract and the error codes are there.
	Docs fs.FS
	// Ready checks the service's dependencies, for /readyz.
	Ready func(ctx context.Context) []Check
	// Metrics serves /metrics; optional.
	Metrics http.Handler
	// AdminMetrics makes AdminHandler the only one that serves /metrics.
	AdminMetrics bool
	// AdminOperator makes AdminHandler the only one that accepts operator keys.
	AdminOperator bool
	// Address returns the address of the client of ctx's request, for audit logs; optional.
	Address func(ctx context.Context) netip.Addr
	// Limits holds callers to the limits of their tenant and key; optional.
	Limits *limits.Limiter
	// TenantRequests limits the concurrent requests and WebSockets of one tenant; 0: no limit.
	TenantRequests int
	// Known is called for each request and each WebSocket after its key was found to be valid; optional.
	Known func(ctx context.Context)
	// Observer is notified of events, for metrics; its functions are optional.
	Observer Observer
	// Tracer records a span of each request; optional.
	Tracer *tracing.Tracer
	// Logger receives faults and, at debug level, each request.
	Logger *slog.Logger
	// Timeout limits requests that are not streams; 0: 40 s, which exceeds the longest wait that a client can ask for.
	Timeout time.Duration
	// StallTimeout is how long a client may leave a stream without reading or sending anything; 0: 30 s.
	StallTimeout time.Duration
	// Recheck is how often the key of a long-lived request (a stream or an import) is checked again; 0: 1 s.
	Recheck time.Duration
	// Heartbeat is the longest time without a message to a follower; 0: 15 s.
	Heartbeat time.Duration
	// BodyBytes limits the memory of incoming requests and of those being handled, for all tenants together (0: 256
	// MiB). TenantBodyBytes limits that of one tenant (0: 32 MiB). Requests above a limit are refused.
	BodyBytes, TenantBodyBytes int64
	// AnswerBytes limits the memory of large answers, for all tenants together (0: 256 MiB). TenantAnswerBytes limits
	// that of one tenant (0: 64 MiB). Requests above a limit wait, and are refused if that takes too long.
	AnswerBytes, TenantAnswerBytes int64
	// AuthTimeout is how long a gateway connection may be open before its client has sent a key; 0: 10 s.
	AuthTimeout time.Duration
}

// Observer has callbacks, which many goroutines call and which must not block. Each is optional.
type Observer struct {
	// Request reports an answered request. The route has the form /v1/streams/:streamId, never a client's path.
	Request func(method, route string, status int, duration time.Duration)
	// Read reports how many events one answer contained.
	Read func(events int)
	// Published reports how many events one request published, by http or websocket. It does not count events that
	// already existed.
	Published func(transport string, events int)
	// Imported reports how many events an import has appended.
	Imported func(events int)
	// Followed reports how many events were sent to a follower, by websocket, sse or ndjson.
	Followed func(transport string, events int)
	// Delivered reports how many events were delivered to a consumer of a group, by http or websocket.
	Delivered func(transport string, events int)
}

// Server answers requests. Between requests it keeps only buffers.
type Server struct {
	log          *slog.Logger
	config       Config
	echo         *echo.Echo
	contract     *contract
	decoders     transfer.Decoders
	compressor   transfer.Compressor
	budgets      budgets
	refusals     refusals
	endpoints    map[string]*endpoint // by the id of the operation
	timeout      time.Duration
	stallTimeout time.Duration
	recheck      time.Duration
	heartbeat    time.Duration
	authTimeout  time.Duration
	ending       *socket.Ending
	deliveries   *tracing.Deliveries // nil: they are not recorded
	known        func(ctx context.Context)
	requestIDs   problem.RequestIDs
	site         func() (*docs.Site, error) // made at the first request for it
}

// New creates a Server. It fails only if the contract itself is wrong.
func New(config Config) (*Server, error) {
	contract, err := sharedContract()
	if err != nil {
		return nil, fmt.Errorf("make the API: %w", err)
	}
	budgets := newBudgets(config)
	compressor, err := transfer.NewCompressor(budgets.answers, budgets.work)
	if err != nil {
		return nil, fmt.Errorf("make the API: %w", err)
	}
	s := &Server{
		log: config.Logger, config: config, contract: contract, compressor: compressor, echo: echo.New(),
		budgets: budgets, endpoints: make(map[string]*endpoint),
		timeout: config.Timeout, stallTimeout: config.StallTimeout, recheck: config.Recheck, heartbeat: config.Heartbeat, authTimeout: config.AuthTimeout, ending: socket.NewEnding(), deliveries: tracing.NewDeliveries(config.Tracer),
		requestIDs: problem.NewRequestIDs(),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.timeout == 0 {
		s.timeout = 40 * time.Second
	}
	if s.stallTimeout == 0 {
		s.stallTimeout = 30 * time.Second
	}
	if s.recheck == 0 {
		s.recheck = time.Second
	}
	if s.heartbeat == 0 {
		s.heartbeat = 15 * time.Second
	}
	if s.authTimeout == 0 {
		s.authTimeout = 10 * time.Second
	}
	if s.known = config.Known; s.known == nil {
		s.known = func(context.Context) {}
	}
	s.site = sync.OnceValues(func() (*docs.Site, error) { return docs.New(config.Docs, docs.Served) })
	s.echo.HideBanner, s.echo.HidePort = true, true
	s.echo.HTTPErrorHandler = func(err error, c echo.Context) { s.fail(c, err) }
	if err := s.routes(); err != nil {
		return nil, fmt.Errorf("make the API: %w", err)
	}
	return s, nil
}

// routes registers every operation of the contract, and fails if one of them has no handler.
func (s *Server) routes() error {
	var problems []error
	add := func(method, path string, kind routeKind, handler handler) {
		if err := s.register(method, path, kind, handler); err != nil {
			problems = append(problems, err)
		}
	}
	add("POST", "/v1/streams/{streamId}/events", hot, s.appendToStream)
	add("POST", "/v1/append", hot, s.append)
	add("POST", "/v1/publish", hot, s.publish)
	add("POST", "/v1/aggregates/{category}/{id}/commands/{command}", hot, s.sendCommand)
	add("POST", "/v1/commands", hot, s.sendCommands)
	add("POST", "/v1/query", streaming, s.readByQuery)
	add("GET", "/v1/streams/{streamId}", streaming, s.readStream)
	add("GET", "/v1/streams/$all", streaming, s.readAll)
	add("GET", "/v1/categories/{category}/events", streaming, s.readCategory)
	add("GET", "/v1/categories/{category}/latest", streaming, s.readLatest)
	add("GET", "/v1/events/{eventId}", plain, s.readEvent)
	add("GET", "/v1/snap/{projection}/{key}", plain, s.snap)
	add("POST", "/v1/import", upload, s.importEvents)
	add("GET", "/v1/export", streaming, s.exportEvents)
	add("GET", "/v1/log/checkpoint", plain, s.getCheckpoint)
	add("GET", "/v1/subjects/{subjectId}/export", streaming, s.exportSubject)
	add("GET", "/v1/admin/usage", streaming, s.exportUsage)
	add("GET", "/v1/projections/{name}/rebuilds/{rebuildId}/progress", streaming, s.watchRebuild)
	add("GET", "/v1/projections/{name}/rebuilds/{rebuildId}/difference", streaming, s.exportDifference)
	add("GET", "/v1/subscribe/$all", following, s.followAll)
	add("GET", "/v1/subscribe/streams/{streamId}", following, s.followStream)
	add("GET", "/v1/subscribe/categories/{category}", following, s.followCategory)
	add("GET", "/v1/ws", following, s.gateway)
	add("POST", "/v1/subscriptions/{name}/receive", plain, s.receive)
	add("POST", "/v1/subscriptions/{name}/ack", plain, s.ackEvents)
	add("GET", "/v1/subscriptions/{name}/peek", plain, s.peekSubscription)
	add("GET", "/v1/subscriptions/{name}/dead-letters", plain, s.listDeadLetters)
	add("GET", "/asyncapi.yaml", plain, s.serveAsyncContract)
	add("GET", "/v1/asyncapi.json", plain, s.eventContract)
	add("GET", "/livez", plain, s.livez)
	add("GET", "/readyz", plain, s.readyz)
	add("GET", "/metrics", plain, s.metrics)
	add("GET", "/openapi.yaml", plain, s.serveContract)
	add("GET", "/docs", plain, s.docs)
	add("GET", "/docs/errors", plain, s.docs)

	openapi.Register(operations{s}, func(method, path string, handle func(echo.Context, access.Caller) error) {
		add(method, path, plain, handle)
	})

	for name := range s.contract.operations {
		found := false
		for _, route := range s.echo.Routes() {
			found = found || route.Method+" "+route.Path == name
		}
		if !found {
			problems = append(problems, fmt.Errorf("%s is in openapi.yaml, but has no handler", name))
		}
	}
	s.docsRoutes()
	problems = append(problems, s.consoleRoutes())
	return errors.Join(problems...)
}

// Handler returns the whole API. The caller must set ReadHeaderTimeout and IdleTimeout of the http.Server; the handler
// limits the time to read a body and to write an answer.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// Stop ends followers' requests, and closes WebSockets with 1001, so that the clients continue on another process.
// Later followers are ended at once. Stop returns at once and does not affect other requests.
func (s *Server) Stop() { s.ending.Stop() }

// Wait waits until no WebSocket is open. If ctx ends first, Wait returns its cause. http.Server.Shutdown does not wait
// for WebSockets.
func (s *Server) Wait(ctx context.Context) error { return s.ending.Wait(ctx) }
