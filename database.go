package manifold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
)

const (
	// openTimeout is how long an attempt to open a database may take: one may also answer nothing at all, and the start
	// waits for the first attempt.
	openTimeout = 10 * time.Second
	// callTimeout is how long a read or a save may take: a dead network must not hold anybody for ever.
	callTimeout = 30 * time.Second
	// slowAfter is how long a call takes until it is doubted that the database answers at all.
	slowAfter = 5 * time.Second
	// pingTimeout is how long a database has to prove that it does.
	pingTimeout = 5 * time.Second
	// doubtInterval is how long one that has proven it is not doubted again.
	doubtInterval = time.Second
	// probeInterval is how long after one ping at most the next one follows while a database is out. So an outage lasts no
	// longer for callers than that beyond the database's own.
	probeInterval = time.Second
	// mostProbes is how many of them are under way at most.
	mostProbes = 2 * int(pingTimeout/probeInterval)
)

// Why a call is ended before it has come to its end.
var (
	errTooSlow  = fmt.Errorf("it did not answer within %s: %w", callTimeout, drivers.ErrTimedOut)
	errGoneDown = errors.New("it does not answer any more")
)

// database is a database of documents, watched over. It is a driver that need not be open yet, since its database may not
// answer when the process starts, and that may go down at any time: then every call fails at once with
// domain.CodeUnavailable, those under way are ended, and it is asked about every second until it answers. So nobody waits
// long for what does not come, and the projections of the other databases go on.
type database struct {
	name string
	open func(ctx context.Context) (drivers.Driver, error)
	log  *slog.Logger

	doubted   chan struct{} // a call has failed in a way that makes one ask whether the database is there
	connected chan struct{} // somebody else could connect to the same server

	mu     sync.Mutex
	opened drivers.Driver     // nil until it is
	outage *projection.Outage // while it does not answer
	calls  map[*underWay]bool // that have not come to their end
	proven time.Time          // when a call had a result that only the database can have given
}

// underWay is a call to a database.
type underWay struct {
	began time.Time
	end   context.CancelCauseFunc
}

func newDatabase(name string, open func(ctx context.Context) (drivers.Driver, error), log *slog.Logger) *database {
	return &database{name: name, open: open, log: log, doubted: make(chan struct{}, 1), connected: make(chan struct{}, 1), calls: make(map[*underWay]bool)}
}

// run opens the database and watches over it until ctx ends. answers is called whenever it answers, for the first time
// or again.
func (d *database) run(ctx context.Context, answers func()) {
	if !d.openAtLast(ctx) {
		return
	}
	answers()
	look := time.NewTicker(slowAfter)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.doubted:
		case <-look.C:
			if !d.slow() {
				continue
			}
		}
		// Once more, since all connections may be busy for a while; calls that come to their ends prove that it is only that.
		asked := time.Now()
		err := d.ping(ctx)
		if err != nil {
			err = d.ping(ctx)
		}
		if err != nil && ctx.Err() == nil && !d.provenSince(asked) {
			d.down(err)
			d.log.Warn("a database of documents does not answer; its projections wait", "database", d.name, "error", err)
			if !d.awaitAnswer(ctx) {
				return
			}
			d.log.Info("a database of documents answers again", "database", d.name)
			answers()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(doubtInterval):
		}
	}
}

// openAtLast opens the database, where it is not open yet, however many attempts it takes; false: ctx ended first.
func (d *database) openAtLast(ctx context.Context) bool {
	for tries := 1; ; tries++ {
		err := d.try(ctx)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			d.up()
			return true
		}
		wait := backoff(tries)
		d.down(err)
		d.nextTry(wait)
		select {
		case <-ctx.Done():
			return false
		case <-d.connected:
		case <-time.After(wait):
		}
	}
}

// awaitAnswer asks a database that is out until it answers; false: ctx ended first. A ping does not wait for the one before
// it: one that was sent while the network was gone may hang for its whole time, though the network is back.
func (d *database) awaitAnswer(ctx context.Context) bool {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	answers := make(chan error)
	select {
	case <-d.connected: // before the outage
	default:
	}
	next := time.NewTimer(0)
	defer next.Stop()
	pending := 0
	for tries := 1; ; {
		select {
		case <-ctx.Done():
			return false
		case <-d.connected:
			next.Reset(0)
		case <-next.C:
			if pending < mostProbes {
				pending++
				go func() {
					select {
					case answers <- d.ping(asking):
					case <-asking.Done():
					}
				}()
			}
			wait := backoff(tries)
			tries++
			d.nextTry(wait)
			next.Reset(wait)
		case err := <-answers:
			pending--
			if err == nil {
				d.up()
				return true
			}
			d.down(err)
		}
	}
}

func (d *database) nextTry(in time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outage.NextTry = time.Now().Add(in)
}

// backoff is how long to wait after so many tries in a row: 250 ms, doubled each time up to probeInterval, less up to a
// half by chance, so that many processes do not come back together.
func backoff(tries int) time.Duration {
	wait := min(250*time.Millisecond<<min(tries-1, 7), probeInterval)
	return wait - rand.N(wait/2)
}

// serverAnswers says that somebody else could connect to the server: while the database is out it is asked at once.
func (d *database) serverAnswers() {
	select {
	case d.connected <- struct{}{}:
	default:
	}
}

// try opens the database once, where it is not open yet.
func (d *database) try(ctx context.Context) error {
	d.mu.Lock()
	opened := d.opened
	d.mu.Unlock()
	if opened != nil {
		return nil
	}
	attempt, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	driver, err := d.open(attempt)
	if err != nil {
		if ctx.Err() == nil && d.down(err) {
			d.log.Warn("a database of documents cannot be used; asking it again", "database", d.name, "error", err)
		}
		return err
	}
	d.mu.Lock()
	d.opened, d.outage = driver, nil
	d.mu.Unlock()
	return nil
}

// ping asks the driver once, whatever is known of the database.
func (d *database) ping(ctx context.Context) error {
	d.mu.Lock()
	opened := d.opened
	d.mu.Unlock()
	asking, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return opened.Ping(asking)
}

// down notes that the database does not answer, and ends what waits for it. It reports whether that, or the reason, is
// new.
func (d *database) down(err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	fresh := d.outage == nil
	if fresh {
		d.outage = &projection.Outage{Since: time.Now(), NextTry: time.Now()}
	}
	fresh = fresh || d.outage.Error != err.Error()
	d.outage.Error = err.Error()
	for call := range d.calls {
		call.end(errGoneDown)
	}
	return fresh
}

func (d *database) up() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outage = nil
}

// Outage tells whether the database is known not to answer.
func (d *database) Outage() (projection.Outage, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.outage == nil {
		return projection.Outage{}, false
	}
	return *d.outage, true
}

// slow reports whether a call takes so long that the database is doubted.
func (d *database) slow() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for call := range d.calls {
		if time.Since(call.began) > slowAfter {
			return true
		}
	}
	return false
}

// proves takes note of the result of a call that the database itself must have answered, and returns it.
func (d *database) proves(err error) error {
	if err == nil || errors.Is(err, drivers.ErrStale) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.proven = time.Now()
	}
	return err
}

func (d *database) provenSince(begin time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.proven.After(begin)
}

func (d *database) doubt() {
	select {
	case d.doubted <- struct{}{}:
	default:
	}
}

// call calls the driver, for at most that long; 0: for as long as the database answers others.
func (d *database) call(ctx context.Context, atMost time.Duration, do func(ctx context.Context, driver drivers.Driver) error) error {
	calling, end := context.WithCancelCause(ctx)
	defer end(nil)
	one := &underWay{began: time.Now(), end: end}
	driver, err := d.enter(one)
	if err != nil {
		return err
	}
	defer d.leave(one)
	if atMost > 0 {
		var stop context.CancelFunc
		calling, stop = context.WithTimeoutCause(calling, atMost, errTooSlow)
		defer stop()
	}
	err = do(calling, driver)
	switch why := context.Cause(calling); {
	case err == nil || ctx.Err() != nil:
	case why != nil:
		d.doubt()
		return fmt.Errorf("%w: %w: %w", domain.Errorf(domain.CodeUnavailable, "", "the database %q cannot be used: %s", d.name, why), why, err)
	case domain.IsCode(err, domain.CodeUnavailable):
		d.doubt()
	}
	return err
}

// enter is the begin of a call, refused while the database does not answer.
func (d *database) enter(one *underWay) (drivers.Driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.outage != nil:
		// The reason may name addresses and logins, which are for logs and operators.
		return nil, fmt.Errorf("%w: %s", domain.Errorf(domain.CodeUnavailable, "", "the database %q has not answered since %s, and is asked again at %s",
			d.name, d.outage.Since.UTC().Format(time.RFC3339), d.outage.NextTry.UTC().Format(time.RFC3339)), d.outage.Error)
	case d.opened == nil:
		return nil, domain.Errorf(domain.CodeUnavailable, "", "the database %q cannot be used: it is being opened", d.name)
	}
	d.calls[one] = true
	return d.opened, nil
}

func (d *database) leave(one *underWay) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.calls, one)
}

// Close closes the driver, where it is open.
func (d *database) Close() {
	d.mu.Lock()
	opened := d.opened
	d.mu.Unlock()
	if opened != nil {
		opened.Close()
	}
}
