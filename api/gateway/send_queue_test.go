package gateway

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/manifold-es/manifold/api/socket"
)

// Messages are sent in order, and the waiting bytes are limited even if none are taken.
func TestSendQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newSendQueue()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		large := bytes.Repeat([]byte("x"), sendQueueBytes/4)
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
			want = socket.AppendMessage(want, large)
		}
		for i := range 200 {
			message := []byte{byte(i)}
			want = socket.AppendMessage(want, message)
			if err := o.send(t.Context(), message); err != nil {
				t.Fatal(err)
			}
		}
		huge := bytes.Repeat([]byte("y"), 2*sendQueueBytes)
		want = socket.AppendMessage(want, huge)
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

// A failed write ends the sending.
func TestOutboxEndsWithAFailedWrite(t *testing.T) {
	t.Parallel()
	o := newSendQueue()
	broken := errors.New("broken")
	if err := o.send(t.Context(), []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := o.run(nil, func([]byte) error { return broken }); !errors.Is(err, broken) {
		t.Error(err)
	}
}

// A message whose lease has expired before its turn is not sent.
func TestOutboxDropsWhatHasExpired(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newSendQueue()
		begin := time.Now()
		large := bytes.Repeat([]byte("x"), sendQueueBytes/2)
		for _, message := range []queuedMessage{
			{text: []byte("first")}, {text: large, expires: begin.Add(time.Second)}, {text: []byte("later"), expires: begin.Add(time.Hour)},
			{text: []byte("gone"), expires: begin.Add(time.Second)}, {text: []byte("last")},
		} {
			if err := o.sendBefore(t.Context(), message.expires, message.text); err != nil {
				t.Fatal(err)
			}
		}
		<-time.After(time.Minute) // while the client reads nothing
		var out, want []byte
		for _, text := range []string{"first", "later", "last"} {
			want = socket.AppendMessage(want, []byte(text))
		}
		flush := make(chan struct{})
		close(flush)
		if err := o.run(flush, func(frames []byte) error {
			out = append(out, frames...)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(out, want) {
			t.Errorf("sent is %q, want %q", out, want)
		}
		if !o.room.TryAcquire(sendQueueBytes) {
			t.Error("what was dropped takes room")
		}
	})
}
