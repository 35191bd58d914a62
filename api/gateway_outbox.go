package api

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// outboxBytes is how much may wait to be sent over one connection, beside what is being written.
	outboxBytes = 1 << 20
	// outboxMessages is how many messages may.
	outboxMessages = 256
	// writeBytes is from how many on no further messages are put into one write.
	writeBytes = 64 << 10
)

// gatewayOutbox is the messages that wait to be sent over a connection, in their order. Whoever sends waits while there is no room:
// a client that reads slowly is sent to slowly, and holds no more memory than this.
type gatewayOutbox struct {
	messages chan outboxMessage
	room     *semaphore.Weighted // in bytes
}

type outboxMessage struct {
	text    []byte
	expires time.Time // it is not sent from then on; zero: it is sent in any case
}

func (m *outboxMessage) expired() bool { return !m.expires.IsZero() && !time.Now().Before(m.expires) }

func newGatewayOutbox() *gatewayOutbox {
	return &gatewayOutbox{messages: make(chan outboxMessage, outboxMessages), room: semaphore.NewWeighted(outboxBytes)}
}

// send has a message sent behind those that wait. It fails when ctx ends before there is room.
func (o *gatewayOutbox) send(ctx context.Context, message []byte) error {
	return o.sendBefore(ctx, time.Time{}, message)
}

// sendBefore is send for a message that is dropped when it still waits at a time.
func (o *gatewayOutbox) sendBefore(ctx context.Context, expires time.Time, message []byte) error {
	if err := o.room.Acquire(ctx, weight(message)); err != nil {
		return err
	}
	select {
	case o.messages <- outboxMessage{message, expires}:
		return nil
	case <-ctx.Done():
		o.room.Release(weight(message))
		return ctx.Err()
	}
}

// run gives write the frames of messages, of as many as there are at a time, until write fails, or flush is closed and nothing
// waits any more. It is called once.
func (o *gatewayOutbox) run(flush <-chan struct{}, write func(frames []byte) error) error {
	var frames []byte
	for {
		var message outboxMessage
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
				frames = appendMessage(frames, message.text)
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
			frames = nil // a large message must not be remembered for as long as the connection lasts
		}
	}
}

// weight is what a message takes of the room: one that is larger than all of it waits until it has it to itself.
func weight(message []byte) int64 { return int64(min(len(message), outboxBytes)) }
