package gateway

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/manifold-es/manifold/api/socket"
)

const (
	// sendQueueBytes is how many bytes may wait for one connection, in addition to those being written.
	sendQueueBytes = 1 << 20
	// sendQueueMessages is how many messages may wait.
	sendQueueMessages = 256
	// writeBytes is the size from which a write takes no further messages.
	writeBytes = 64 << 10
)

// sendQueue queues the outgoing messages of a connection in order. Senders wait while it has no room, so a slow
// client receives messages slowly and uses no more memory than this.
type sendQueue struct {
	messages chan queuedMessage
	room     *semaphore.Weighted // in bytes
}

type queuedMessage struct {
	text    []byte
	expires time.Time // dropped if still unsent at this time; zero: always sent
}

func (m *queuedMessage) expired() bool { return !m.expires.IsZero() && !time.Now().Before(m.expires) }

func newSendQueue() *sendQueue {
	return &sendQueue{messages: make(chan queuedMessage, sendQueueMessages), room: semaphore.NewWeighted(sendQueueBytes)}
}

// send queues a message after those that wait. It fails if ctx ends before there is room.
func (o *sendQueue) send(ctx context.Context, message []byte) error {
	return o.sendBefore(ctx, time.Time{}, message)
}

// sendBefore is send for a message that is dropped if it still waits when it expires.
func (o *sendQueue) sendBefore(ctx context.Context, expires time.Time, message []byte) error {
	if err := o.room.Acquire(ctx, weight(message)); err != nil {
		return err
	}
	select {
	case o.messages <- queuedMessage{message, expires}:
		return nil
	case <-ctx.Done():
		o.room.Release(weight(message))
		return ctx.Err()
	}
}

// run passes the frames of waiting messages to write, as many as there are at a time. It returns when write fails, or
// when flush is closed and no message waits. It may be called only once.
func (o *sendQueue) run(flush <-chan struct{}, write func(frames []byte) error) error {
	var frames []byte
	for {
		var message queuedMessage
		select {
		case message = <-o.messages:
		case <-flush:
			select {
			case message = <-o.messages:
			default:
				return nil
			}
		}
		frames = frames[:0]
		taken := int64(0)
		for more := true; more; {
			if !message.expired() {
				frames = socket.AppendMessage(frames, message.text)
			}
			taken += weight(message.text)
			if len(frames) >= writeBytes {
				break
			}
			select {
			case message = <-o.messages:
			default:
				more = false
			}
		}
		var err error
		if len(frames) > 0 {
			err = write(frames)
		}
		o.room.Release(taken)
		if err != nil {
			return err
		}
		if cap(frames) > 4*writeBytes {
			frames = nil // do not keep a large buffer as long as the connection lasts
		}
	}
}

// weight is the room that a message takes. A message larger than the whole queue takes all of it.
func weight(message []byte) int64 { return int64(min(len(message), sendQueueBytes)) }
