package api

import (
	"context"
	"math"
	"runtime"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
	"github.com/manifold-es/manifold/limits"
)

// maxBodyBytes limits the body of an operation without x-max-body in the contract.
const maxBodyBytes = 256 << 10

// Limits for concurrent requests, where Config has zeros.
const (
	defaultBodyBytes         = 256 << 20
	defaultTenantBodyBytes   = 32 << 20
	defaultAnswerBytes       = 256 << 20
	defaultTenantAnswerBytes = 64 << 20
)

const (
	// decodedFactor is the memory of a JSON body beyond its text, as a multiple of its size: copies, and the decoded
	// values.
	decodedFactor = 4
	// decodedEvent is the memory of a decoded event beyond its text.
	decodedEvent = 256
	// checkInTurnsBytes is the size from which bodies are parsed and checked against the contract in turns. That
	// briefly takes up to 75 times the body's size, for some milliseconds.
	checkInTurnsBytes = 16 << 10
)

// budgets are the resources that requests share.
type budgets struct {
	requests *fairshare.Budget // requests under way, including followers and WebSockets; nil: no limit
	bodies   *fairshare.Budget // bytes of incoming requests and of those being handled
	answers  *fairshare.Budget // bytes of answers being built or sent
	checking *fairshare.Budget // bytes of bodies being parsed
	work     *fairshare.Budget // processors for compression
	// comparing are streams of differences between documents.
	comparing *fairshare.Budget
}

func newBudgets(c Config) budgets {
	or := func(given, otherwise int64) int64 {
		if given == 0 {
			return otherwise
		}
		return given
	}
	// One processor stays free for short work, above all appends.
	processors := int64(max(1, runtime.GOMAXPROCS(0)-1))
	var requests *fairshare.Budget
	if c.TenantRequests > 0 {
		// Listeners limit the total.
		requests = fairshare.New("requests, followers and WebSockets", math.MaxInt64, int64(c.TenantRequests))
	}
	return budgets{
		requests: requests,
		bodies:   fairshare.New("request bodies", or(c.BodyBytes, defaultBodyBytes), or(c.TenantBodyBytes, defaultTenantBodyBytes)),
		answers:  fairshare.New("large answers", or(c.AnswerBytes, defaultAnswerBytes), or(c.TenantAnswerBytes, defaultTenantAnswerBytes)),
		checking: fairshare.New("large bodies", processors*maxBodyBytes, processors*maxBodyBytes),
		work:     fairshare.New("large answers", processors, processors),
		// The memory that each takes of answers limits the total.
		comparing: fairshare.New("streams of differences", math.MaxInt64, 1),
	}
}

// enter counts a caller's request as under way until the account is closed. The operator has no limit.
func (s *Server) enter(caller access.Caller) (*fairshare.Account, error) {
	if !caller.Known() || caller.Credential.Operator {
		return nil, nil
	}
	underWay := s.budgets.requests.Account(caller.Credential.Tenant)
	return underWay, underWay.Grow(1)
}

// enterAll is enter, and admits the caller within the limits of its tenant and its key.
func (s *Server) enterAll(ctx context.Context, caller access.Caller, kind limits.Kind) (*access.Admission, error) {
	place, err := s.enter(caller)
	if err != nil {
		return nil, err
	}
	pass, err := s.pass(ctx, caller, kind)
	if err != nil {
		place.Close()
		return nil, err
	}
	return &access.Admission{Place: place, Pass: pass}, nil
}

// pass admits a request within the limits of its tenant and its key. The operator has no limits.
func (s *Server) pass(ctx context.Context, caller access.Caller, kind limits.Kind) (*limits.Pass, error) {
	if !caller.Known() || caller.Credential.Operator {
		return nil, nil
	}
	return s.config.Limits.Enter(ctx, limitsCaller(caller), kind)
}

func limitsCaller(caller access.Caller) limits.Caller {
	return limits.Caller{Tenant: caller.Credential.Tenant, Key: domain.UUID(caller.Credential.KeyID), Limits: caller.Credential.Limits}
}

// setRateFields says in the answer's header what the caller's limits leave.
func (s *Server) setRateFields(c echo.Context, caller access.Caller, kind limits.Kind) {
	if !caller.Known() || caller.Credential.Operator {
		return
	}
	if policy, current := s.config.Limits.Fields(limitsCaller(caller), kind); policy != "" {
		header := c.Response().Header()
		header.Set("RateLimit-Policy", policy)
		header.Set("RateLimit", current)
	}
}

// limitedAs returns the kind of the operation's requests. Long polls stay open as followers do.
func (e *endpoint) limitedAs() limits.Kind {
	switch {
	case e.kind == hot:
		return limits.Append
	case e.kind == following || e.op.id == "receive":
		return limits.Connection
	}
	return limits.Request
}

// answerRoom is the memory of large answers while they are built and sent, by operation id. The operations wait for it
// before they start. The configuration's minimum of the budget for answers (config.minAnswerBytes) covers the largest.
var answerRoom = map[string]int64{
	"readEvent":              3 << 20,
	"getState":               8 << 20,
	"takeSnapshot":           8 << 20,
	"getLatestSnapshot":      8 << 20,
	"previewProjection":      16 << 20,
	"previewUpcaster":        16 << 20,
	"previewAggregate":       24 << 20,
	"planProjections":        8 << 20,
	"listAllDocuments":       24 << 20,
	"exportDifference":       24 << 20,
	"getTotals":              4 << 20,
	"listDeadLetters":        24 << 20,
	"listParkedDocuments":    16 << 20,
	"listSkippedEvents":      4 << 20,
	"listProjections":        4 << 20,
	"listProjectionVersions": 8 << 20,
	"listAggregates":         4 << 20,
	"listUpcasters":          4 << 20,
	"listSchemas":            8 << 20,
	"checkSchema":            16 << 20,
	"getProjectionState":     2 << 20,
	"listWebhookAttempts":    4 << 20,
}
