package service

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// answering is a driver whose answers the test determines.
type answering struct {
	drivers.Driver
	pings  atomic.Int64
	down   atomic.Bool // it refuses
	hangs  atomic.Bool // it answers nothing
	closed bool
}

func (a *answering) answer(ctx context.Context) error {
	if a.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if a.down.Load() {
		return domain.Errorf(domain.CodeUnavailable, "", "connection refused")
	}
	return nil
}

func (a *answering) Ping(ctx context.Context) error {
	a.pings.Add(1)
	return a.answer(ctx)
}

func (a *answering) Save(ctx context.Context, _ domain.Build, _ domain.TenantID, _ drivers.Batch) error {
	return a.answer(ctx)
}

func (a *answering) IndexTable(ctx context.Context, _ domain.Build) error { return a.answer(ctx) }

func (a *answering) Close() { a.closed = true }

func save(ctx context.Context, d *database) error {
	return d.Save(ctx, domain.Build{}, domain.TenantID{}, drivers.Batch{})
}

// A database that does not answer is retried until it does. Meanwhile everything fails with the reason.
func TestDatabaseThatComesLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var attempts int
		var driver answering
		late := newDatabase("reports", func(context.Context) (drivers.Driver, error) {
			if attempts++; attempts < 8 {
				return nil, errors.New("no route to host")
			}
			return &driver, nil
		}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		opened, ended := make(chan struct{}), make(chan struct{})
		begin := time.Now()
		go func() {
			late.run(ctx, func() { close(opened) })
			close(ended)
		}()
		synctest.Wait()
		for what, err := range map[string]error{
			"Ping": late.Ping(ctx),
			"Save": save(ctx, late),
			"Checkpoints": func() error {
				for _, err := range late.Checkpoints(ctx, domain.Build{}) {
					return err
				}
				return nil
			}(),
		} {
			if !domain.IsCode(err, domain.CodeUnavailable) || !strings.Contains(err.Error(), "no route to host") || !strings.Contains(err.Error(), "reports") {
				t.Errorf("%s before it is open: %v", what, err)
			}
		}
		outage, out := late.Outage()
		if !out || !outage.Since.Equal(begin) || !outage.NextTry.After(begin) || outage.Error != "no route to host" {
			t.Errorf("the outage is %+v, %v", outage, out)
		}
		<-opened
		// 0.25 + 0.5 + 1 + 1 + ... s, less up to a half.
		if took := time.Since(begin); attempts != 8 || took < 2500*time.Millisecond || took > 6*time.Second {
			t.Errorf("it was open after %d attempts and %s", attempts, took)
		}
		if err := late.Ping(ctx); err != nil {
			t.Error(err)
		}
		if _, out := late.Outage(); out {
			t.Error("it is still said to be out")
		}
		cancel()
		<-ended
		if late.Close(); !driver.closed {
			t.Error("it was not closed")
		}
	})
}

func TestDatabaseThatNeverComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := newDatabase("reports", func(context.Context) (drivers.Driver, error) {
			return nil, errors.New("no route to host")
		}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			late.run(ctx, func() { t.Error("it is said to be open") })
			close(ended)
		}()
		synctest.Wait()
		cancel()
		<-ended
		late.Close()
	})
}

// A database that accepts the connection but answers nothing blocks no caller for long, and its outage is reported.
func TestDatabaseThatAnswersNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		late := newDatabase("reports", func(ctx context.Context) (drivers.Driver, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, slog.New(slog.NewTextHandler(&said, nil)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begin := time.Now()
		if err := late.try(ctx); err == nil || time.Since(begin) != openTimeout || !strings.Contains(said.String(), "database=reports") {
			t.Errorf("after %s it is %v; it said %s", time.Since(begin), err, said.String())
		}
	})
}

// watched returns an open, monitored database. The channel receives a value each time the database answers.
func watched(t *testing.T, driver *answering) (d *database, answers chan struct{}) {
	d = newDatabase("reports", func(context.Context) (drivers.Driver, error) { return driver, nil }, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	answers = make(chan struct{}, 10)
	ended := make(chan struct{})
	go func() {
		d.run(ctx, func() { answers <- struct{}{} })
		close(ended)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	<-answers
	return d, answers
}

// The first call detects that a database has gone down after the start. From then on, the process only pings it until
// it is back.
func TestDatabaseOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var driver answering
		d, answers := watched(t, &driver)
		driver.down.Store(true)
		if err := save(t.Context(), d); !domain.IsCode(err, domain.CodeUnavailable) {
			t.Errorf("the first save: %v", err)
		}
		synctest.Wait()
		outage, out := d.Outage()
		if !out || outage.Error == "" {
			t.Fatalf("the outage is %+v, %v", outage, out)
		}
		before := driver.pings.Load()
		if err := save(t.Context(), d); !domain.IsCode(err, domain.CodeUnavailable) || !strings.Contains(err.Error(), "has not answered since") {
			t.Errorf("a save while it is down: %v", err)
		}
		if err := d.Ping(t.Context()); !domain.IsCode(err, domain.CodeUnavailable) || driver.pings.Load() != before {
			t.Errorf("a ping while it is down: %v", err)
		}
		<-time.After(5 * time.Minute) // of the bubble
		if tries := driver.pings.Load() - before; tries < 300 || tries > 610 {
			t.Errorf("in five minutes it was asked %d times", tries)
		}
		driver.down.Store(false)
		<-answers
		if err := save(t.Context(), d); err != nil {
			t.Errorf("a save when it is back: %v", err)
		}
	})
}

// However long a database was out, and whether it refused or hung, calls succeed again within a second of its return.
// When a login of the log connects, the log's own database of documents is pinged at once.
func TestOutageEndsWithTheDatabases(t *testing.T) {
	t.Parallel()
	for name, broken := range map[string]func(*answering) *atomic.Bool{
		"refused": func(a *answering) *atomic.Bool { return &a.down },
		"hung":    func(a *answering) *atomic.Bool { return &a.hangs },
	} {
		for _, connected := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				var driver answering
				d, answers := watched(t, &driver)
				broken(&driver).Store(true)
				if err := save(t.Context(), d); !domain.IsCode(err, domain.CodeUnavailable) {
					t.Errorf("%s: the first save: %v", name, err)
				}
				<-time.After(45 * time.Second) // of the bubble
				if _, out := d.Outage(); !out {
					t.Errorf("%s: it is not known to be out", name)
				}
				broken(&driver).Store(false)
				back := time.Now()
				if connected {
					d.serverAnswers()
				}
				<-answers
				most := time.Second
				if connected {
					most = 0
				}
				if took := time.Since(back); took > most {
					t.Errorf("%s, connected %t: it took %s until it was asked again", name, connected, took)
				}
				if err := save(t.Context(), d); err != nil {
					t.Errorf("%s: a save when it is back: %v", name, err)
				}
			})
		}
	}
}

// A dead network blocks no caller for long: hanging calls are ended if the database does not answer others either.
func TestDatabaseThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var driver answering
		d, answers := watched(t, &driver)
		driver.hangs.Store(true)
		begin := time.Now()
		indexed := make(chan error, 1)
		go func() { indexed <- d.IndexTable(t.Context(), domain.Build{}) }()
		if err := save(t.Context(), d); !domain.IsCode(err, domain.CodeUnavailable) || time.Since(begin) > callTimeout {
			t.Errorf("after %s the save is %v", time.Since(begin), err)
		}
		if err := <-indexed; !domain.IsCode(err, domain.CodeUnavailable) || time.Since(begin) > callTimeout {
			t.Errorf("after %s the index is %v", time.Since(begin), err)
		}
		driver.hangs.Store(false)
		<-answers
		if err := save(t.Context(), d); err != nil {
			t.Error(err)
		}
	})
}

// stuck is a driver on which only a save gets stuck.
type stuck struct {
	*answering
}

func (s stuck) Save(ctx context.Context, _ domain.Build, _ domain.TenantID, _ drivers.Batch) error {
	<-ctx.Done()
	return ctx.Err()
}

// A single call that gets stuck ends at its own timeout, and the database is not considered down.
func TestCallThatGetsStuck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var driver answering
		d := newDatabase("reports", func(context.Context) (drivers.Driver, error) { return stuck{&driver}, nil }, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		answers := make(chan struct{}, 10)
		go func() {
			d.run(ctx, func() { answers <- struct{}{} })
			close(ended)
		}()
		<-answers
		begin := time.Now()
		if err := save(ctx, d); !domain.IsCode(err, domain.CodeUnavailable) || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, drivers.ErrTimedOut) || time.Since(begin) != callTimeout {
			t.Errorf("after %s the save is %v", time.Since(begin), err)
		}
		synctest.Wait()
		if outage, out := d.Outage(); out || driver.pings.Load() == 0 {
			t.Errorf("after %d pings it is taken for dead: %+v", driver.pings.Load(), outage)
		}
		// A caller that gives up says nothing about the database.
		short, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		if err := save(short, d); domain.IsCode(err, domain.CodeUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("for a caller who goes the save is %v", err)
		}
		cancel()
		<-ended
	})
}

// busy is a driver whose connections are all in use. A save waits long for a connection but succeeds, and a ping
// waits longer than its timeout.
type busy struct {
	*answering
}

func (b busy) Save(ctx context.Context, _ domain.Build, _ domain.TenantID, _ drivers.Batch) error {
	select {
	case <-time.After(8 * time.Second):
		return drivers.ErrStale
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A database with more work than connections is not considered down as long as it completes any work.
func TestDatabaseThatIsBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var driver answering
		driver.hangs.Store(true)
		d := newDatabase("reports", func(context.Context) (drivers.Driver, error) { return busy{&driver}, nil }, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		answers, ended := make(chan struct{}, 10), make(chan struct{})
		go func() {
			d.run(ctx, func() { answers <- struct{}{} })
			close(ended)
		}()
		<-answers
		for range 20 {
			if err := save(ctx, d); !errors.Is(err, drivers.ErrStale) {
				t.Fatalf("the save is %v", err)
			}
		}
		if outage, out := d.Outage(); out || driver.pings.Load() == 0 {
			t.Errorf("after %d pings it is taken for dead: %+v", driver.pings.Load(), outage)
		}
		cancel()
		<-ended
	})
}
