package gateway

import (
	"context"
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/delivery/tail"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// feedSource follows a part of the log for a connection.
type feedSource struct {
	g       *connection
	name    string
	feed    *tail.Feed
	opening []byte // the start of each event message
	cloud   bool   // events are structured CloudEvents
}

// feedOf reads the fields of a SUBSCRIBE to a part of the log.
func (g *connection) feedOf(m *clientMessage, name string) (func(context.Context) (eventSource, *reply, error), error) {
	f := &m.fields
	var wanted domain.Follow
	if source, there := f.object("source"); there {
		wanted.Stream = source.text("stream", 0, math.MaxInt)
		wanted.Categories = source.texts("categories", maxSelected, domain.CheckCategory)
		if wanted.Stream != "" {
			if len(wanted.Categories) > 0 {
				source.fail("categories", "stream and categories cannot be combined; give one of them")
			} else if err := domain.CheckStream("source.stream", wanted.Stream); err != nil && source.err == nil {
				source.err = err
			}
		}
		f.addErrorOf(&source)
	}
	wanted.Types = f.texts("types", maxSelected, domain.CheckType)
	if raw := f.field("query"); raw != nil {
		var err error
		if wanted.Query, err = wire.DecodeSourceQuery("query", raw); err != nil && f.err == nil {
			f.err = err
		}
	}
	wanted.Filter = f.text("filter", 0, maxFilterCharacters)
	if from := f.text("from", 0, math.MaxInt); from != "" {
		var err error
		if wanted.From, err = domain.ParseFrom("from", from); err != nil && f.err == nil {
			f.err = err
		}
	}
	cloud := f.cloudFormat()
	if err := f.end(); err != nil {
		return nil, err
	}
	if err := g.caller.AllowSelection(wanted.Selection, auth.ScopeEventsRead); err != nil {
		return nil, problem.At("source", err)
	}
	return func(ctx context.Context) (eventSource, *reply, error) {
		feed, err := g.config.Tails.Follow(ctx, g.caller.Tenant, wanted)
		if err != nil {
			return nil, nil, err
		}
		source := &feedSource{g: g, name: name, feed: feed, opening: replyTo(opEvent, "").text("subscription", name).b, cloud: cloud}
		return source, replyTo(opOK, m.id).text("subscription", name).number("position", feed.Position()), nil
	}, nil
}

// deliver sends events, a message when the feed has caught up, and the feed's position when it skipped events or has
// nothing to send.
func (f *feedSource) deliver(ctx context.Context) error {
	for {
		window, cancel := context.WithTimeout(ctx, f.g.config.Heartbeat)
		slice, err := f.feed.Next(window)
		quiet := window.Err() != nil
		cancel()
		switch {
		case err == nil:
			err = f.send(slice)
		case ctx.Err() != nil:
			return nil
		case quiet:
			err = f.place(opCheckpoint, f.feed.Position())
		}
		if err != nil {
			return err
		}
	}
}

// send sends a whole slice. If the subscription is paused meanwhile, it continues after this slice.
func (f *feedSource) send(slice tail.Slice) error {
	began := time.Now()
	if slice.Gap != nil {
		// appendGap begins the object to which the message adds its fields.
		gap := wire.AppendGap(nil, slice.Gap)
		message := append(replyTo(opGap, "").text("subscription", f.name).b, ',')
		if err := f.g.sendQueue.send(f.g.alive, append(message, gap[1:]...)); err != nil {
			return err
		}
	}
	for _, entry := range slice.Entries {
		message := append(make([]byte, 0, len(f.opening)+320+len(entry.Event.Data)+len(entry.Event.Metadata)), f.opening...)
		message = append(message, `,"event":`...)
		if f.cloud {
			message = wire.AppendEntryCloudEvent(message, entry)
		} else {
			message = wire.AppendEntryEvent(message, entry)
		}
		if err := f.g.sendQueue.send(f.g.alive, append(message, '}')); err != nil {
			return err
		}
	}
	if n := len(slice.Entries); n > 0 {
		f.g.config.Followed(n)
		if spans := f.g.config.Deliveries; spans != nil {
			spans.Record(f.g.caller.Tenant, n, slice.Metadata, began, tracing.Transport(wire.ByWebSocket), attribute.String("manifold.subscription", f.name))
		}
	}
	switch {
	case slice.CaughtUp:
		return f.place(opCaughtUp, slice.Position)
	case len(slice.Entries) == 0:
		return f.place(opCheckpoint, slice.Position)
	}
	return nil
}

// place sends the feed's position.
func (f *feedSource) place(op string, position int64) error {
	return f.g.sendQueue.send(f.g.alive, replyTo(op, "").text("subscription", f.name).number("position", position).end())
}

func (f *feedSource) close(context.Context, ending) { f.feed.Close() }
