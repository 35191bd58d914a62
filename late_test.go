package manifold

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// answering is a driver that is asked for nothing but whether it is there.
type answering struct {
	drivers.Driver
	closed bool
}

func (*answering) Ping(context.Context) error { return nil }
func (a *answering) Close()                   { a.closed = true }

// A database that does not answer is asked again until it does, and everything fails with the reason meanwhile.
func TestLateDriver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var attempts int
		var driver answering
		late := &lateDriver{name: "reports", log: slog.New(slog.DiscardHandler), open: func(context.Context) (drivers.Driver, error) {
			if attempts++; attempts < 3 {
				return nil, errors.New("no route to host")
			}
			return &driver, nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		opened := make(chan struct{})
		go late.run(ctx, func() { close(opened) })
		synctest.Wait()
		for what, err := range map[string]error{
			"Ping": late.Ping(ctx),
			"Save": late.Save(ctx, domain.Build{}, domain.TenantID{}, drivers.Batch{}),
			"Checkpoints": func() error {
				for _, err := range late.Checkpoints(ctx, domain.Build{}) {
					return err
				}
				return nil
			}(),
		} {
			if !isCode(err, domain.CodeUnavailable) || !strings.Contains(err.Error(), "no route to host") || !strings.Contains(err.Error(), "reports") {
				t.Errorf("%s before it is open: %v", what, err)
			}
		}
		begin := time.Now()
		<-opened
		if took := time.Since(begin); attempts != 3 || took != 2*retryDriver {
			t.Errorf("it was open after %d attempts and %s", attempts, took)
		}
		if err := late.Ping(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		if late.Close(); !driver.closed {
			t.Error("it was not closed")
		}
	})
}

func TestLateDriverThatNeverComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := &lateDriver{name: "reports", log: slog.New(slog.DiscardHandler), open: func(context.Context) (drivers.Driver, error) {
			return nil, errors.New("no route to host")
		}}
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

// A database that takes the connection and answers nothing holds up nobody for long, and it is told.
func TestLateDriverThatAnswersNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var said strings.Builder
		late := &lateDriver{name: "reports", log: slog.New(slog.NewTextHandler(&said, nil)), open: func(ctx context.Context) (drivers.Driver, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begin := time.Now()
		if err := late.try(ctx); err == nil || time.Since(begin) != openTimeout || !strings.Contains(said.String(), "database=reports") {
			t.Errorf("after %s it is %v; it said %s", time.Since(begin), err, said.String())
		}
	})
}
