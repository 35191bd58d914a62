// Package api is Manifold over HTTP: what openapi.yaml promises, and nothing beside it.
//
// There is a file for each tag of the contract. What it generates (package openapi) decodes and answers most
// operations; requests are held to it before (contract.go). Append, import, export and the reading of events are written
// by hand: they must not decode or gather what goes through them.
//
// The tenant comes from the request's key alone. Each handler gets it with the caller and hands it on as the argument
// right after ctx.
package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
)

// Config is what a Server needs. Everything but what is marked optional must be there.
type Config struct {
	Log         Log
	Streams     Streams
	Keys        Keys
	Tenants     Tenants
	Members     Members
	Aggregates  Aggregates
	Projections Projections
	Rebuilds    Rebuilds
	Upcasters   Upcasters
	Tickets     Tickets
	Follower    Follower
	Groups      Groups
	Webhooks    Webhooks
	Retention   Retention

	// Ready says what the service depends on, for /readyz.
	Ready func(ctx context.Context) []Check
	// Metrics answers /metrics; optional.
	Metrics http.Handler
	// AdminMetrics has AdminHandler alone answer /metrics.
	AdminMetrics bool
	// AdminOperator has AdminHandler alone take the operator's keys.
	AdminOperator bool
	// TenantRequests is how many requests and WebSockets of one tenant may be under way; 0: no bound.
	TenantRequests int
	// Known is called for each request, and each WebSocket, when its key was found to work; optional.
	Known func(ctx context.Context)
	// Observer is told of what happens; its functions are optional.
	Observer Observer
	// Logger gets faults, and at debug level each request.
	Logger *slog.Logger
	// Timeout is how long a request may take that is no stream; 0: 40 s, which is above the longest wait that a client can ask for.
	Timeout time.Duration
	// StallTimeout is how long a client may leave a stream without reading or sending anything; 0: 30 s.
	StallTimeout time.Duration
	// Recheck is how often the key of a request that lasts, a stream or an import, is looked at again; 0: 1 s.
	Recheck time.Duration
	// Heartbeat is how often those who follow something hear from the service at least; 0: 15 s.
	Heartbeat time.Duration
	// BodyBytes bounds what requests hold that come in or are being worked on, of all tenants together (0: 256 MiB), and
	// TenantBodyBytes of one tenant (0: 32 MiB). Above it they are refused.
	BodyBytes, TenantBodyBytes int64
	// AnswerBytes bounds what large answers hold, of all tenants together (0: 256 MiB), and TenantAnswerBytes of one tenant
	// (0: 64 MiB). Above it they wait, and are refused where that takes too long.
	AnswerBytes, TenantAnswerBytes int64
	// AuthTimeout is how long a connection of the gateway may be open before its client has sent a key; 0: 10 s.
	AuthTimeout time.Duration
}

// Observer has functions that are called as things happen, from many goroutines, and must not block. Each is optional.
type Observer struct {
	// Request is told of each answered request: the route as /v1/streams/:streamId, never a path that a client made up.
	Request func(method, route string, status int, duration time.Duration)
	// Read is told how many events went out with one answer.
	Read func(events int)
	// Published is told how many events were published with one request, by http or websocket; not of those that were there already.
	Published func(transport string, events int)
	// Imported is told how many events an import has appended.
	Imported func(events int)
	// Followed is told how many events went to somebody who follows, by websocket, sse or ndjson.
	Followed func(transport string, events int)
	// Delivered is told how many events went to a consumer of a group, by http or websocket.
	Delivered func(transport string, events int)
}

// Server answers requests. It keeps nothing between them but buffers.
type Server struct {
	log          *slog.Logger
	config       Config
	echo         *echo.Echo
	contract     *contract
	problems     map[domain.Code]problem
	decoders     decoders
	compressors  compressors
	budgets      budgets
	refusals     refusals
	timeout      time.Duration
	stallTimeout time.Duration
	recheck      time.Duration
	heartbeat    time.Duration
	authTimeout  time.Duration
	ending       *ending
	known        func(ctx context.Context)
	requestIDs   requestIDs
	docsPage     func() ([]byte, error)
	errorPage    []byte
}

// New makes a server. It fails only where the contract itself is wrong.
func New(config Config) (*Server, error) {
	contract, err := loadContract()
	if err != nil {
		return nil, fmt.Errorf("make the API: %w", err)
	}
	s := &Server{
		log: config.Logger, config: config, contract: contract, echo: echo.New(),
		problems: problemsByCode(), budgets: newBudgets(config),
		timeout: config.Timeout, stallTimeout: config.StallTimeout, recheck: config.Recheck, heartbeat: config.Heartbeat, authTimeout: config.AuthTimeout, ending: newEnding(),
		requestIDs: newRequestIDs(), docsPage: newDocsPage(contract),
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
	if s.errorPage, err = renderErrorPage(problems()); err != nil {
		return nil, fmt.Errorf("make the API: %w", err)
	}
	s.echo.HideBanner, s.echo.HidePort = true, true
	s.echo.HTTPErrorHandler = func(err error, c echo.Context) { s.fail(c, err) }
	if err := s.routes(); err != nil {
		return nil, fmt.Errorf("make the API: %w", err)
	}
	return s, nil
}

// routes registers every operation of the contract, and fails where one of them has no handler.
func (s *Server) routes() error {
	var problems []error
	add := func(method, path string, kind routeKind, handler handler) {
		if err := s.route(method, path, kind, handler); err != nil {
			problems = append(problems, err)
		}
	}
	add("POST", "/v1/streams/{streamId}/events", hot, s.appendToStream)
	add("POST", "/v1/append", hot, s.append)
	add("POST", "/v1/publish", hot, s.publish)
	add("GET", "/v1/streams/{streamId}", streaming, s.readStream)
	add("GET", "/v1/streams/$all", streaming, s.readAll)
	add("GET", "/v1/categories/{category}/events", streaming, s.readCategory)
	add("GET", "/v1/categories/{category}/latest", streaming, s.readLatest)
	add("GET", "/v1/events/{eventId}", plain, s.readEvent)
	add("GET", "/v1/snap/{projection}/{key}", plain, s.snap)
	add("POST", "/v1/import", upload, s.importEvents)
	add("GET", "/v1/export", streaming, s.exportEvents)
	add("GET", "/v1/projections/{name}/rebuilds/{rebuildId}/progress", streaming, s.watchRebuild)
	add("GET", "/v1/subscribe/$all", following, s.followAll)
	add("GET", "/v1/subscribe/streams/{streamId}", following, s.followStream)
	add("GET", "/v1/subscribe/categories/{category}", following, s.followCategory)
	add("GET", "/v1/ws", following, s.gateway)
	add("POST", "/v1/subscriptions/{name}/receive", plain, s.receive)
	add("GET", "/v1/subscriptions/{name}/peek", plain, s.peekSubscription)
	add("GET", "/v1/subscriptions/{name}/dead-letters", plain, s.listDeadLetters)
	add("GET", "/asyncapi.yaml", plain, s.serveAsyncContract)
	add("GET", "/livez", plain, s.livez)
	add("GET", "/readyz", plain, s.readyz)
	add("GET", "/metrics", plain, s.metrics)
	add("GET", "/openapi.yaml", plain, s.serveContract)
	add("GET", "/docs", plain, s.docs)
	add("GET", "/docs/errors", plain, s.docsErrors)

	strict := openapi.NewStrictHandler(generated{s}, nil)
	openapi.RegisterHandlers(registrar{add}, strict)

	for name := range s.contract.operations {
		found := false
		for _, route := range s.echo.Routes() {
			found = found || route.Method+" "+route.Path == name
		}
		if !found {
			problems = append(problems, fmt.Errorf("%s is in openapi.yaml, but has no handler", name))
		}
	}
	problems = append(problems, s.docsAssets())
	return errors.Join(problems...)
}

// Handler is the whole API. Whoever serves it sets ReadHeaderTimeout and IdleTimeout of the http.Server; the time to read
// a body and to write an answer is bounded here.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }
