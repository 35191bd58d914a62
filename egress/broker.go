package egress

import (
	"context"
	"errors"
)

// Broker is a message broker that messages are published to. Its methods may be called concurrently.
type Broker interface {
	// Publish publishes messages, and returns for each nil when the broker has acknowledged it. An error that wraps ErrUnreachable
	// concerns whatever is published, one that wraps ErrRefused this message for ever, and any other one this message for now. Of messages
	// with the same key none is stored that stands behind one that was not, but for those that are refused. One whose outcome is
	// not known is an error, and may be stored all the same. Publish returns soon after ctx ends.
	Publish(ctx context.Context, messages []Message) []error
	// Close releases the broker's resources.
	Close()
}

var (
	// ErrUnreachable means that the broker does not answer.
	ErrUnreachable = errors.New("the broker does not answer")
	// ErrRefused means that the broker will never accept the message, for example because it is too large.
	ErrRefused = errors.New("the broker refuses the message")
	// ErrHeldBack means that the message was not published because an earlier one was not.
	ErrHeldBack = errors.New("it stands behind a message that was not published")
)
