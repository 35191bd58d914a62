package consume_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/domain"
)

// failingSource is a source whose first calls fail.
type failingSource struct {
	fails atomic.Int64 // number of failures
	list  []consume.Consumer
}

func (s *failingSource) Consumers(context.Context, domain.TenantID) ([]consume.Consumer, error) {
	if s.fails.Add(-1) >= 0 {
		return nil, errors.New("the database is away")
	}
	return s.list, nil
}

func TestFailedSourcesAreAskedAgain(t *testing.T) {
	t.Parallel()
	for range 20 { // pauses have jitter
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(1)
			a, b := &consumer{}, &consumer{}
			long, short := &failingSource{list: []consume.Consumer{a.as("webhook.a", "1")}}, &failingSource{list: []consume.Consumer{b.as("reactor.b", "1")}}
			long.fails.Store(4)
			short.fails.Store(1)
			start(t, w, consume.Config{Sources: []consume.Source{long, short}})
			pass(time.Minute) // without any wake-up
			expectRuns(t, b, max(1, b.runs()))
			expectRuns(t, a, max(1, a.runs()))
		})
	}
}
