package egress

import (
	"context"
	"errors"
)

// Broker is where messages are published. Its methods may be called concurrently.
type Broker interface {
	// Publish publishes messages, and returns for each nil when the broker has acknowledged it. An error that wraps ErrUnreachable
	// concerns whatever is published, one that wraps ErrRefused this message for ever, and any other one this message for now. Of messages
	// with the same key none is stored that stands behind one that was not, but for those that are refused. One whose outcome is
	// not known is an error, and may be stored all the same. Publish returns soon after ctx ends.
	Publish(ctx context.Context, messages []Message) []error
	// Close lets go of the broker.
	Close()
}

var (
	// ErrUnreachable is that of a broker that does not answer.
	ErrUnreachable = errors.New("the broker does not answer")
	// ErrRefused is that of a message that the broker will never take: one that is too large, say.
	ErrRefused = errors.New("the broker refuses the message")
	// ErrHeldBack is that of a message that was not published since one before it was not.
	ErrHeldBack = errors.New("it stands behind a message that was not published")
)
