package service

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
	// openTimeout bounds one attempt to open a database. A database may not answer at all, and the start waits for
	// the first attempt.
	openTimeout = 10 * time.Second
	// callTimeout bounds a read or a save, so that a dead network cannot block the caller.
	callTimeout = 30 * time.Second
	// slowAfter is how long a call may take before the process doubts that the database answers at all.
	slowAfter = 5 * time.Second
	// pingTimeout is how long a doubted database has to answer a ping.
	pingTimeout = 5 * time.Second
	// doubtInterval is how long the process trusts a database that has just answered.
	doubtInterval = time.Second
	// probeInterval is the longest time between two pings while a database is out. Callers therefore see an outage
	// for at most that long after the database is back.
	probeInterval = time.Second
	// maxProbes is the largest number of pings under way at the same time.
	maxProbes = 2 * int(pingTimeout/probeInterval)
)

// These errors are the causes with which a call is ended early.
var (
	errTooSlow = fmt.Errorf("it did not answer within %s: %w", callTimeout, drivers.ErrTimedOut)
	errOutage  = errors.New("it no longer answers")
)

// database is a monitored database of documents. It is a driver that may not be open yet, since its database may be
// unreachable when the process starts.
//
// The database may also go down at any time. Then every call fails at once with domain.CodeUnavailable, calls under
// way are ended, and the process pings about every second until the database answers. So callers never wait long for
// a dead database, and the projections of other databases continue.
type database struct {
	name string
	open func(ctx context.Context) (drivers.Driver, error)
	log  *slog.Logger

	documentsRead func(database, source string) // counts reads that a replica may answer; may be nil

	doubted   chan struct{} // a call has failed in a way that makes it uncertain whether the database answers
	connected chan struct{} // another login has connected to the same server

	mu     sync.Mutex
	opened drivers.Driver     // nil until the driver is open
	outage *projection.Outage // set while the database does not answer
	calls  map[*underWay]bool // calls under way
	proven time.Time          // the time of the latest result that only the database can have returned
}

// underWay is a call to a database.
type underWay struct {
	began time.Time
	end   context.CancelCauseFunc
}

func newDatabase(name string, open func(ctx context.Context) (drivers.Driver, error), log *slog.Logger) *database {
	return &database{name: name, open: open, log: log, doubted: make(chan struct{}, 1), connected: make(chan struct{}, 1), calls: make(map[*underWay]bool)}
}

// run opens the database and monitors it until ctx ends. It calls answers whenever the database answers, for the
// first time or after an outage.
func (d *database) run(ctx context.Context, answers func()) {
	if !d.openWithRetries(ctx) {
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
		// Ask again, since all connections may be busy for a while. Calls that end in the meantime prove that the
		// database answers.
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

// openWithRetries opens the database if it is not open yet, however many attempts that takes. It returns false if ctx
// ends first.
func (d *database) openWithRetries(ctx context.Context) bool {
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

// awaitAnswer pings a database that is out until it answers. It returns false if ctx ends first. A ping does not wait
// for the one before it: a ping sent while the network was down may hang until its timeout, although the network is
// back.
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
			if pending < maxProbes {
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

// backoff returns how long to wait after tries attempts in a row: 250 ms, doubled each time up to probeInterval,
// minus a random part of up to a half. The random part keeps many processes from reconnecting at the same time.
func backoff(tries int) time.Duration {
	wait := min(250*time.Millisecond<<min(tries-1, 7), probeInterval)
	return wait - rand.N(wait/2)
}

// serverAnswers reports that another login has connected to the server. If the database is out, it is pinged at once.
func (d *database) serverAnswers() {
	select {
	case d.connected <- struct{}{}:
	default:
	}
}

// try makes one attempt to open the database if it is not open yet.
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
			d.log.Warn("a database of documents cannot be used; trying again", "database", d.name, "error", err)
		}
		return err
	}
	d.mu.Lock()
	d.opened, d.outage = driver, nil
	d.mu.Unlock()
	return nil
}

// ping pings the driver once, whether or not the database is known to be out.
func (d *database) ping(ctx context.Context) error {
	d.mu.Lock()
	opened := d.opened
	d.mu.Unlock()
	asking, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return opened.Ping(asking)
}

// down records that the database does not answer, and ends the calls under way. It reports whether the outage or its
// reason is new.
func (d *database) down(err error) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	isNew := d.outage == nil
	if isNew {
		d.outage = &projection.Outage{Since: time.Now(), NextTry: time.Now()}
	}
	isNew = isNew || d.outage.Error != err.Error()
	d.outage.Error = err.Error()
	for call := range d.calls {
		call.end(errOutage)
	}
	return isNew
}

func (d *database) up() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.outage = nil
}

// Outage returns the current outage, and whether the database is known not to answer.
func (d *database) Outage() (projection.Outage, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.outage == nil {
		return projection.Outage{}, false
	}
	return *d.outage, true
}

// slow reports whether any call is so slow that the database is in doubt.
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

// proves records a result that only the database can have returned, and returns that result.
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

// call calls the driver for at most atMost. With 0, the call may continue for as long as the database answers other
// calls.
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
	switch cause := context.Cause(calling); {
	case err == nil || ctx.Err() != nil:
	case cause != nil:
		d.doubt()
		return fmt.Errorf("%w: %w: %w", domain.Errorf(domain.CodeUnavailable, "", "the database %q cannot be used: %s", d.name, cause), cause, err)
	case domain.IsCode(err, domain.CodeUnavailable):
		d.doubt()
	}
	return err
}

// enter begins a call. It refuses the call while the database does not answer.
func (d *database) enter(one *underWay) (drivers.Driver, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.outage != nil:
		// The reason may contain addresses and logins, which only logs and operators may show.
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

// Close closes the driver if it is open.
func (d *database) Close() {
	d.mu.Lock()
	opened := d.opened
	d.mu.Unlock()
	if opened != nil {
		opened.Close()
	}
}
