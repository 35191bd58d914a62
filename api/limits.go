package api

import (
	"math"
	"runtime"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

// maxBodyBytes bounds the body of an operation for which x-max-body of the contract says nothing else.
const maxBodyBytes = 256 << 10

// What requests hold at the same time, where Config has zeros.
const (
	defaultBodyBytes         = 256 << 20
	defaultTenantBodyBytes   = 32 << 20
	defaultAnswerBytes       = 256 << 20
	defaultTenantAnswerBytes = 64 << 20
)

const (
	// decodedFactor is what a JSON body costs beside its text, in its bytes: copies of it, and what is made of it.
	decodedFactor = 4
	// decodedEvent is what an event of a body costs beside its text.
	decodedEvent = 256
	// checkedAtOnce is from how many bytes on bodies are parsed, and held to the contract, in turns. That makes up to 75 times
	// as much of a body for as long as it takes, some milliseconds.
	checkedAtOnce = 16 << 10
	// roomPatience is how long a request waits for its turn before it is refused.
	roomPatience = 10 * time.Second
)

// budgets are what requests share.
type budgets struct {
	requests *fairshare.Budget // requests, those of followers among them, and WebSockets that are under way; nil: no bound
	bodies   *fairshare.Budget // bytes of requests that come in or are being worked on
	answers  *fairshare.Budget // bytes of answers that are being made or sent
	checking *fairshare.Budget // bytes of bodies that are being parsed
	work     *fairshare.Budget // processors that compress
}

func newBudgets(c Config) budgets {
	or := func(given, otherwise int64) int64 {
		if given == 0 {
			return otherwise
		}
		return given
	}
	// One processor is left to those whose work is short: appends, above all.
	processors := int64(max(1, runtime.GOMAXPROCS(0)-1))
	var requests *fairshare.Budget
	if c.TenantRequests > 0 {
		requests = fairshare.New("requests, followers and WebSockets", math.MaxInt64, int64(c.TenantRequests)) // listeners bound the total
	}
	return budgets{
		requests: requests,
		bodies:   fairshare.New("request bodies", or(c.BodyBytes, defaultBodyBytes), or(c.TenantBodyBytes, defaultTenantBodyBytes)),
		answers:  fairshare.New("large answers", or(c.AnswerBytes, defaultAnswerBytes), or(c.TenantAnswerBytes, defaultTenantAnswerBytes)),
		checking: fairshare.New("large bodies", processors*maxBodyBytes, processors*maxBodyBytes),
		work:     fairshare.New("large answers", processors, processors),
	}
}

// nobody is whose budget those use who need no key.
var nobody = domain.TenantID{0xff}

// enter counts what a caller has begun as under way, until the account is closed. The operator has no bound.
func (s *Server) enter(caller caller) (*fairshare.Account, error) {
	if !caller.known() || caller.credential.Operator {
		return nil, nil
	}
	under := s.budgets.requests.Account(caller.tenant)
	return under, under.Grow(1)
}

// answerRoom is what the answers of operations take, while they are made and sent, that may be large: by their ids. They
// wait for it before they begin. The configuration's minimum of the budget for answers (config.minAnswerBytes) covers the largest.
var answerRoom = map[string]int64{
	"readEvent":              3 << 20,
	"getState":               8 << 20,
	"takeSnapshot":           8 << 20,
	"getLatestSnapshot":      8 << 20,
	"previewProjection":      16 << 20,
	"previewUpcaster":        16 << 20,
	"planProjections":        8 << 20,
	"listAllDocuments":       24 << 20,
	"listDeadLetters":        24 << 20,
	"listParkedDocuments":    16 << 20,
	"listSkippedEvents":      4 << 20,
	"listProjections":        4 << 20,
	"listProjectionVersions": 8 << 20,
	"listAggregates":         4 << 20,
	"listUpcasters":          4 << 20,
	"getProjectionState":     2 << 20,
	"listWebhookAttempts":    4 << 20,
}
