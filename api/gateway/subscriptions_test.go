package gateway

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// A message that is handled while the connection ends begins no subscription, and leaves those alone that end. It shows
// with the race detector.
func TestAnEndingConnectionTakesNoSubscription(t *testing.T) {
	t.Parallel()
	g := newConnection(Config{}, nil, "")
	g.ended = true
	var reading sync.WaitGroup
	reading.Go(func() {
		for i := range maxSubscriptions {
			if err := g.onQueue(&clientMessage{}, strconv.Itoa(i), true, nil); err != nil {
				t.Error(err)
			}
		}
	})
	g.leaveAll(false)
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

// A message that is cut off anywhere is answered with where it ends.
func TestMessagesThatAreCutOffAreInvalidJSON(t *testing.T) {
	t.Parallel()
	const whole = `{"op":"PUBLISH","id":"1","message":{"topic":"order","headers":{"a":"b"},"payload":{"a":[1.5e3,"\u00e9",true]}}}`
	if _, err := readMessage([]byte(whole)); err != nil {
		t.Fatal(err)
	}
	for end := 1; end < len(whole); end++ {
		_, err := readMessage([]byte(whole[:end]))
		if e, ok := errors.AsType[*domain.Error](err); !ok || e.Code != domain.CodeInvalidJSON || !strings.Contains(e.Message, "ends in the middle of") {
			t.Fatalf("%s is answered %v", whole[:end], err)
		}
	}
}
