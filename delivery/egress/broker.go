package egress

import (
	"context"
	"errors"
)

// Broker is a message broker that messages are published to. Its methods may be called concurrently.
type Broker interface {
	// Publish publishes messages and returns one error per message, nil if the broker has acknowledged it. An error
	// that wraps ErrUnreachable concerns everything that is published. One that wraps ErrRefused concerns this message
	// and is permanent. Any other error concerns this message for now. For each key, Publish stores no message after
	// one that was not stored, except after refused ones. If the outcome of a message is unknown, Publish returns an
	// error, but the message may be stored. Publish returns soon after ctx ends.
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
	ErrHeldBack = errors.New("an earlier message was not published")
)
