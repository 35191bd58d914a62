package api

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Messages go out in their order, and what waits is bounded in bytes, also where nothing is taken off.
func TestOutbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newGatewayOutbox()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		large := bytes.Repeat([]byte("x"), outboxBytes/4)
		sent := 0
		for o.send(ctx, large) == nil { // until the minute is over
			sent++
		}
		if sent != 4 {
			t.Errorf("%d messages wait, of a quarter of the room each", sent)
		}
		flush := make(chan struct{})
		var out []byte
		var writing sync.WaitGroup
		writing.Go(func() {
			if err := o.run(flush, func(frames []byte) error {
				out = append(out, frames...)
				return nil
			}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		var want []byte
		for range sent {
			want = appendMessage(want, large)
		}
		for i := range 200 {
			message := []byte{byte(i)}
			want = appendMessage(want, message)
			if err := o.send(t.Context(), message); err != nil {
				t.Fatal(err)
			}
		}
		huge := bytes.Repeat([]byte("y"), 2*outboxBytes)
		want = appendMessage(want, huge)
		if err := o.send(t.Context(), huge); err != nil {
			t.Fatal(err)
		}
		close(flush)
		writing.Wait()
		if !bytes.Equal(out, want) {
			t.Errorf("%d bytes went out, want %d", len(out), len(want))
		}
	})
}

// A write that fails ends the sending.
func TestOutboxEndsWithAFailedWrite(t *testing.T) {
	t.Parallel()
	o := newGatewayOutbox()
	broken := errors.New("broken")
	if err := o.send(t.Context(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := o.run(nil, func([]byte) error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}
