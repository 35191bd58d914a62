package limits

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
)

const (
	// patience is how long a request waits for its process to lease tokens.
	patience = 2 * time.Second
	// pauseDry is the shortest pause before a process asks again for what the last round did not give.
	pauseDry = 50 * time.Millisecond
	// storedAge is how old the count of stored events may be on which a quota is checked.
	storedAge = time.Second
)

// Config configures a Limiter. All fields are required.
type Config struct {
	Store    *Postgres
	Settings *Settings
	Process  string // identifies this process among all that use the database
	Log      *slog.Logger
}

// Limiter holds the callers of one process to their limits. All methods may be called concurrently. A nil Limiter has
// no limits.
type Limiter struct {
	config Config
	settle func(ctx context.Context, process string, questions []*question) error // Postgres.settle

	mu      sync.Mutex
	ledgers map[ledgerName]*share
	dirty   map[*share]struct{} // to ask for in the next rounds
	wake    chan struct{}       // has an element if dirty is not empty
	rounds  int64
	active  int // shares with limits that requests have used recently
	warned  time.Time

	// node is a tenant's node of a cluster. Each node has separate rounds, so one without answers does not delay
	// others.
	node func(domain.TenantID) int32
	busy map[int32]struct{} // the nodes with a round under way

	unreported map[*share]struct{} // those that may have to report
}

// share is this process's share of a ledger: what it has leased and what it needs.
type share struct {
	ledgerName
	limits domain.Limits
	quotas domain.Quotas // of a tenant's ledger

	until  time.Time // when the lease ends
	asked  time.Time // when the last answered round began
	usedAt time.Time // when a request last needed it
	tokens [rateCount]tokens
	slots  [slotCount]slots
	stored stored
	readAt time.Time // when stored was read; zero: never
	added  stored    // what was appended here since then
	next   *round    // the next round that includes the share; nil: nothing waits for one

	waiting map[*need]struct{} // what requests need that have not resumed since their round
}

type tokens struct {
	left  float64
	spent float64   // since the last round began
	free  float64   // in the bucket after the last round, for any process
	dryAt time.Time // when a round last gave less than was asked; zero: the last one did not
}

type slots struct {
	held  int64
	used  int64
	peak  int64 // the most in use since the last round
	dryAt time.Time
}

// round is one exchange with the database. done is closed when it has ended.
type round struct {
	done    chan struct{}
	settled bool // the ledger was not locked
	err     error
}

// NewLimiter returns a Limiter. Its caller must run Run.
func NewLimiter(config Config) *Limiter {
	return &Limiter{
		config: config, settle: config.Store.settle, ledgers: make(map[ledgerName]*share), dirty: make(map[*share]struct{}), wake: make(chan struct{}, 1),
		unreported: make(map[*share]struct{}), node: config.Store.node, busy: make(map[int32]struct{}),
	}
}

// Kind is a kind of request.
type Kind int

const (
	// Request is in flight until it is answered.
	Request Kind = iota
	// Append is a Request that appends events. It is refused early if the caller has no tokens for events.
	Append
	// Connection stays open: a WebSocket, a stream of events, or a long poll.
	Connection
)

// Caller is a tenant, and the key with its limits if it has any.
type Caller struct {
	Tenant domain.TenantID
	Key    domain.UUID
	Limits *domain.Limits // of the key; nil: none
}

// Pass is a request that was let in. Nil is one without limits. It must be closed.
type Pass struct {
	limiter *Limiter
	shares  atomic.Pointer[[]*share] // the tenant's first, then the key's if it has limits; changed with the limiter's lock
	slot    int
	closed  bool // with the limiter's lock
}

// need is what a request needs of each of its shares.
type need struct {
	tokens [rateCount]float64
	peek   [rateCount]float64 // must not be dry, and is not taken
	slots  [slotCount]int64
}

// Enter lets a request of the caller in, and counts it. The error is domain.CodeTooManyRequests for a request above a
// limit, and domain.CodeUnavailable if the database does not answer and this process has nothing leased.
func (l *Limiter) Enter(ctx context.Context, caller Caller, kind Kind) (*Pass, error) {
	if l == nil {
		return nil, nil
	}
	limited := l.config.Settings.of(caller.Tenant).any()
	if caller.Limits == nil && !limited && kind != Connection { // connections count for limits that are set later
		return nil, nil
	}
	p := &Pass{limiter: l, slot: inFlight}
	n := need{}
	n.tokens[requests] = 1
	switch kind {
	case Append:
		n.peek[events], n.peek[bytes] = 1, 1
	case Connection:
		p.slot = connections
	}
	n.slots[p.slot] = 1
	shares := l.sharesOf(caller)
	if err := l.take(ctx, shares, n); err != nil {
		return nil, err
	}
	p.shares.Store(&shares)
	return p, nil
}

// sharesOf returns this process's shares of a caller's ledgers, the tenant's first.
func (l *Limiter) sharesOf(caller Caller) []*share {
	l.mu.Lock()
	defer l.mu.Unlock()
	shares := []*share{l.share(ledgerName{tenant: caller.Tenant})}
	if caller.Limits != nil {
		of := l.share(ledgerName{caller.Tenant, caller.Key})
		of.limits = *caller.Limits
		shares = append(shares, of)
	}
	return shares
}

// Close ends the request.
func (p *Pass) Close() {
	if p == nil {
		return
	}
	p.limiter.mu.Lock()
	defer p.limiter.mu.Unlock()
	if p.closed {
		return
	}
	p.closed = true
	for _, s := range *p.shares.Load() {
		p.leave(s)
	}
}

// leave ends the request's use of a share. The lock is held.
func (p *Pass) leave(s *share) {
	s.slots[p.slot].used--
	if s.mustReport(time.Now()) {
		p.limiter.unreported[s] = struct{}{}
	}
}

// SetKeyLimits gives an open request the limits that its key has now; nil: none. The request stays open even if it is
// one too many.
func (p *Pass) SetKeyLimits(key domain.UUID, to *domain.Limits) {
	if p == nil {
		return
	}
	p.limiter.mu.Lock()
	defer p.limiter.mu.Unlock()
	shares := *p.shares.Load()
	switch {
	case p.closed:
	case to == nil && len(shares) > 1:
		p.leave(shares[1])
		shares = shares[:1:1]
		p.shares.Store(&shares)
	case to != nil && len(shares) > 1:
		shares[1].limits = *to
	case to != nil:
		of := p.limiter.share(ledgerName{shares[0].tenant, key})
		of.limits = *to
		of.use(p.slot, 1)
		shares = []*share{shares[0], of}
		p.shares.Store(&shares)
	}
}

// unlimited reports, without the lock, whether nothing limits the pass now.
func (p *Pass) unlimited() bool {
	if p == nil {
		return true
	}
	shares := *p.shares.Load()
	return len(shares) == 1 && !p.limiter.config.Settings.of(shares[0].tenant).any()
}

// Message counts one more request over the same connection.
func (p *Pass) Message(ctx context.Context) error {
	if p.unlimited() {
		return nil
	}
	n := need{}
	n.tokens[requests] = 1
	return p.limiter.take(ctx, *p.shares.Load(), n)
}

// Append counts events that are about to be appended, and their bytes. In addition to the errors of Enter, it returns
// domain.CodeTooLarge for more than the caller may ever append at once, and domain.CodeQuotaExceeded if the tenant has
// stored as much as it may.
func (p *Pass) Append(ctx context.Context, count, size int64) error {
	if p.unlimited() {
		return nil
	}
	shares := *p.shares.Load()
	if err := p.limiter.checkStored(ctx, shares[0], count, size); err != nil {
		return err
	}
	n := need{}
	n.tokens[events], n.tokens[bytes] = float64(count), float64(size)
	if err := p.limiter.take(ctx, shares, n); err != nil {
		return err
	}
	p.limiter.mu.Lock()
	defer p.limiter.mu.Unlock()
	shares[0].added.events += count
	shares[0].added.bytes += size
	return nil
}

// share returns this process's share of a ledger. The lock is held.
func (l *Limiter) share(name ledgerName) *share {
	s := l.ledgers[name]
	if s == nil {
		s = &share{ledgerName: name, waiting: make(map[*need]struct{})}
		l.ledgers[name] = s
	}
	s.usedAt = time.Now() // so it is not forgotten before the caller uses it
	l.refresh(s)
	return s
}

// refresh gives a tenant's share the limits that hold now; a key's come with its caller. The lock is held.
func (l *Limiter) refresh(s *share) {
	if s.ofTenant() {
		of := l.config.Settings.of(s.tenant)
		s.limits, s.quotas = of.limits, of.quotas
	}
}

// ofTenant reports whether the share is one of a tenant's ledger, and not of a key's.
func (s *share) ofTenant() bool { return s.key == domain.UUID{} }

// whose names the share's owner in messages.
func (s *share) whose() string {
	if s.ofTenant() {
		return "the tenant"
	}
	return "this key"
}

// take takes what a request needs from all of its shares, or from none. It waits for a round if this process has too
// little, but not if the last round has just shown that there is no more.
func (l *Limiter) take(ctx context.Context, shares []*share, n need) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errNoAnswer)
	defer cancel()
	l.mu.Lock()
	defer l.mu.Unlock()
	for settled := 0; ; {
		now := time.Now()
		var short []*share
		for _, s := range shares {
			s.usedAt = now
			l.refresh(s)
			missing, err := s.check(now, n, l.pace(), settled >= 3)
			if err != nil {
				return err
			}
			if missing {
				short = append(short, s)
			}
		}
		if len(short) == 0 {
			for _, s := range shares {
				s.spend(n)
				if s.mustReport(now) {
					l.unreported[s] = struct{}{}
				}
			}
			return nil
		}
		if err := l.await(ctx, shares, short, &n); err == nil {
			settled++
		} else if err != errLocked {
			return err
		}
	}
}

// await waits for a round of the shares that are short. Meanwhile and until it has the lock again, all shares keep what
// is needed of them. The lock is held before and after.
func (l *Limiter) await(ctx context.Context, shares, short []*share, n *need) error {
	for _, s := range shares {
		s.waiting[n] = struct{}{}
	}
	var rounds []*round
	for _, s := range short {
		rounds = append(rounds, l.nextRound(s))
	}
	l.mu.Unlock()
	var err error
	for _, r := range rounds {
		if err = r.wait(ctx); err != nil && err != errLocked {
			break
		}
	}
	l.mu.Lock()
	for _, s := range shares {
		delete(s.waiting, n)
	}
	return err
}

// errLocked reports a round in which another process had the ledger locked.
var errLocked = errors.New("the ledger is locked")

var errNoAnswer = domain.Errorf(domain.CodeUnavailable, "",
	"the limits were not leased within %s: the database is slow or down, or other requests were quicker; try again", patience)

// wait waits until the round has ended, and returns its error, or errLocked.
func (r *round) wait(ctx context.Context) error {
	select {
	case <-r.done:
		if r.err == nil && !r.settled {
			return errLocked
		}
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// check reports whether a round is needed to get what is missing. If the last round showed that there is no more, it
// returns the refusal: at once while another round would be of no use, and on the last try in any case. What a round
// gave may be gone without a refusal, because another request was quicker.
func (s *share) check(now time.Time, n need, pace time.Duration, last bool) (missing bool, err error) {
	if !now.Before(s.until) { // the lease has ended; others may use it
		for i := range s.tokens {
			s.tokens[i].left = 0
		}
		for i := range s.slots {
			s.slots[i].held = 0
		}
	}
	for i := range rateCount {
		rate := rateOf(&s.limits, i)
		wanted := max(n.tokens[i], n.peek[i])
		t := &s.tokens[i]
		if rate == nil || wanted == 0 || t.left >= wanted {
			continue
		}
		if wanted > float64(rate.Burst) {
			return false, domain.Errorf(domain.CodeTooLarge, "", "the request has %.0f %s; %s may send at most %d at once; split it", wanted, rateNames[i], s.whose(), rate.Burst)
		}
		wait := untilTokens(wanted-t.left-t.free, rate)
		dry := !t.dryAt.IsZero() && wanted > t.left+t.free
		if dry && (now.Sub(t.dryAt) < max(pace, min(wait, time.Second)) || last && n.tokens[i] > 0) {
			return false, s.tooMany(i, rate, max(wait-now.Sub(t.dryAt), pace))
		}
		if n.tokens[i] > 0 {
			missing = true
		}
	}
	for i := range slotCount {
		limit := slotsOf(&s.limits, i)
		q := &s.slots[i]
		if limit == nil || n.slots[i] == 0 || q.used < q.held {
			continue
		}
		if !q.dryAt.IsZero() && (last || now.Sub(q.dryAt) < pace) {
			what := [slotCount]string{"connections", "requests in flight"}[i]
			e := domain.Errorf(domain.CodeTooManyRequests, "", "%s may have %d %s at a time, in all processes together; end one first", s.whose(), *limit, what)
			e.RetryAfter = time.Second
			return false, e
		}
		missing = true
	}
	return missing, nil
}

// rateNames are the resources with rates in messages.
var rateNames = [rateCount]string{"requests", "events", "bytes of events"}

// tooMany returns the refusal of a request above a rate.
func (s *share) tooMany(resource int, rate *domain.Rate, wait time.Duration) error {
	e := domain.Errorf(domain.CodeTooManyRequests, "", "%s may send %d %s a second, and %d at once after a pause; try again in %d s",
		s.whose(), rate.PerSecond, rateNames[resource], rate.Burst, max(ceilSeconds(wait), 1))
	e.RetryAfter = wait
	return e
}

func (s *share) spend(n need) {
	for i := range rateCount {
		if n.tokens[i] > 0 && rateOf(&s.limits, i) != nil {
			s.tokens[i].left -= n.tokens[i]
			s.tokens[i].spent += n.tokens[i]
		}
	}
	for i := range slotCount {
		s.use(i, n.slots[i])
	}
}

func (s *share) use(slot int, count int64) {
	q := &s.slots[slot]
	q.used += count
	q.peak = max(q.peak, q.used)
}

// mustReport reports whether the share has used something since its last round, or holds what it does not use.
func (s *share) mustReport(now time.Time) bool {
	if !now.Before(s.until) {
		return false
	}
	for i := range s.tokens {
		if t := &s.tokens[i]; rateOf(&s.limits, i) != nil && (t.spent > 0 || t.left > 0) {
			return true
		}
	}
	for i := range s.slots {
		if q := &s.slots[i]; slotsOf(&s.limits, i) != nil && q.held > q.used {
			return true
		}
	}
	return false
}

// ask includes a share in the next round. The lock is held.
func (l *Limiter) ask(s *share) {
	l.dirty[s] = struct{}{}
	l.wakeUp()
}

// nextRound includes a share in the next round, and returns that. The lock is held.
func (l *Limiter) nextRound(s *share) *round {
	if s.next == nil {
		s.next = &round{done: make(chan struct{})}
	}
	l.ask(s)
	return s.next
}

func (l *Limiter) wakeUp() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// pace is the time between two rounds for a share that nothing waits for. It limits the rows that a process writes to
// about 1,000 a second, whatever the number of tenants. The lock is held.
func (l *Limiter) pace() time.Duration {
	return max(pauseDry, time.Duration(l.active)*time.Millisecond)
}

// checkStored returns domain.CodeQuotaExceeded if the tenant would have stored more than its quotas with an append.
func (l *Limiter) checkStored(ctx context.Context, s *share, count, size int64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errNoAnswer)
	defer cancel()
	for {
		l.mu.Lock()
		if !s.countsStored() {
			l.mu.Unlock()
			return nil
		}
		if time.Since(s.readAt) < storedAge {
			err := s.overQuota(count, size)
			l.mu.Unlock()
			return err
		}
		s.usedAt = time.Now()
		next := l.nextRound(s)
		l.mu.Unlock()
		if err := next.wait(ctx); err != nil && err != errLocked { // what is stored was read anyway
			return err
		}
	}
}

// countsStored reports whether the tenant has a quota for stored events.
func (s *share) countsStored() bool { return s.quotas.Events != nil || s.quotas.Bytes != nil }

// overQuota is checkStored for what was read last. The lock is held.
func (s *share) overQuota(count, size int64) error {
	if !s.stored.complete {
		return nil // the events from before there was a quota are still being counted
	}
	has := s.stored.total()
	for _, q := range []struct {
		name       domain.Quota
		limit      *int64
		used, more int64
	}{
		{domain.QuotaEvents, s.quotas.Events, has.events + s.added.events, count},
		{domain.QuotaBytes, s.quotas.Bytes, has.bytes + s.added.bytes, size},
	} {
		if q.limit != nil && q.used+q.more > *q.limit {
			e := domain.Errorf(domain.CodeQuotaExceeded, "", "the tenant has stored %d %s of the %d that it may store; retention removes events, and the operator can assign another plan", q.used, q.name, *q.limit)
			e.Quota = &domain.QuotaUse{Quota: q.name, Used: q.used, Limit: *q.limit}
			return e
		}
	}
	return nil
}

// total adds the events that are not counted yet, with the mean size of the others.
func (s stored) total() stored {
	size := s.bytes
	if s.events > 0 {
		size += s.uncounted * (s.bytes / s.events)
	}
	return stored{events: s.events + s.uncounted, bytes: size, complete: s.complete}
}

// passKey is the context's key of a Pass.
type passKey struct{}

// With returns a context that carries a request's pass to where it appends.
func With(ctx context.Context, p *Pass) context.Context {
	if p == nil {
		return ctx
	}
	return context.WithValue(ctx, passKey{}, p)
}

// From returns the pass that a context carries; nil: none.
func From(ctx context.Context) *Pass {
	p, _ := ctx.Value(passKey{}).(*Pass)
	return p
}
