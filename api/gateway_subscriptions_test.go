package api

import (
	"strconv"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// A message that is handled while the connection ends begins no subscription, and leaves those alone that end. It shows
// with the race detector.
func TestAnEndingConnectionTakesNoSubscription(t *testing.T) {
	t.Parallel()
	g := newGatewayConnection(nil, nil, "")
	g.ended = true
	var reading sync.WaitGroup
	reading.Go(func() {
		for i := range gatewaySubscriptions {
			if err := g.onQueue(&gatewayMessage{}, strconv.Itoa(i), true, nil); err != nil {
				t.Error(err)
			}
		}
	})
	g.leaveAll()
	reading.Wait()
	if len(g.subscriptions) > 0 {
		t.Errorf("it has %d subscriptions", len(g.subscriptions))
	}
}

// Answers that fail together, since their group was deleted, have the same error. Each connection puts its own place
// into it.
func TestAnErrorOfSeveralAnswersStaysAsItIs(t *testing.T) {
	t.Parallel()
	gone := domain.Errorf(domain.CodeNotFound, "name", "there is no group")
	var answering sync.WaitGroup
	for _, where := range []string{"subscription", "group"} {
		answering.Go(func() {
			if placed, ok := ofGroup(where, gone).(*domain.Error); !ok || placed.Where != where || placed.Message != gone.Message {
				t.Errorf("the client gets %v", placed)
			}
		})
	}
	answering.Wait()
	if gone.Where != "name" {
		t.Errorf("the error's place is %q now", gone.Where)
	}
}
