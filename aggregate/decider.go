package aggregate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Decider decides a command in Go instead of by expressions. It returns the events to append, none if there is nothing
// to do, or a *Rejection as the error. An event without a stream is for the command's. It may be called several times
// for one command, and by many goroutines at once, so it must depend on the decision alone and have no effects. ctx
// ends with the request. With WithBoundary it may depend on events of other streams.
type Decider func(ctx context.Context, decision Decision) ([]NewEvent, error)

// Decision is what a Decider decides on.
type Decision struct {
	Tenant   domain.TenantID
	Stream   string
	Version  int64                      // of the stream; 0: it has no event yet, or the decider is WithoutState
	State    json.RawMessage            // by the category's definition: a JSON object; nil if the decider is WithoutState
	Boundary map[string]json.RawMessage // the values of the decider's boundaries, by name
	Data     json.RawMessage            // the command's, a JSON object
	Metadata json.RawMessage            // the request's, a JSON object, or nil
	Now      time.Time                  // of the request
	UUID     string                     // of the request: the same in a repetition with the same key
}

// Error returns the rejection's message, or else its code.
func (r *Rejection) Error() string {
	if r.Message != "" {
		return r.Message
	}
	return "the command was rejected: " + r.Code
}

// deciderKey names a command.
type deciderKey struct{ category, command string }

// Register makes a Decider decide a command of a category, for all tenants whose definition of the category has no
// command of that name. It must be called before the first Send.
func (c *Commands) Register(category, name string, decider Decider, options ...DeciderOption) error {
	if err := errors.Join(domain.CheckCategory("category", category), CheckCommand("command", name)); err != nil {
		return err
	}
	if c.deciders == nil {
		c.deciders = make(map[deciderKey]*command)
	}
	key := deciderKey{category, name}
	if c.deciders[key] != nil {
		return fmt.Errorf("the command %s of category %s has two deciders", name, category)
	}
	program, err := newDecider(key, decider, options)
	if err != nil {
		return fmt.Errorf("the decider of %s of category %s: %w", name, category, err)
	}
	c.deciders[key] = program
	return nil
}

// decideInGo calls a Decider.
func (s *sending) decideInGo(ctx context.Context, on known) (d decision, err error) {
	in, err := s.decisionOn(&on)
	if err != nil {
		return decision{}, err
	}
	events, err := on.program.inGo(ctx, in)
	if rejected, ok := errors.AsType[*Rejection](err); ok {
		return decision{rejected: rejected}, nil
	}
	if err != nil {
		return decision{}, err
	}
	for i, event := range events {
		if event.Stream == "" {
			event.Stream = s.command.Stream
		}
		where := fmt.Sprintf("event %d of the decider", i)
		err := errors.Join(domain.CheckStream(where, event.Stream), domain.CheckType(where, event.Type), domain.CheckJSON(event.Data))
		if event.Metadata == nil {
			event.Metadata = s.command.Metadata
		} else {
			err = errors.Join(err, domain.CheckJSON(event.Metadata))
		}
		var problem error
		event.Tags, problem = domain.CheckTags(where, slices.Clone(event.Tags))
		if err = errors.Join(err, problem); err != nil {
			return decision{}, fmt.Errorf("the decider of %s gave an invalid event: %w", s.command.Name, err)
		}
		if err := d.add(where, event); err != nil {
			return decision{}, err
		}
	}
	return d, nil
}
