package api

import (
	"context"
	"math"

	"github.com/manifold-es/manifold/delivery/tail"
	"github.com/manifold-es/manifold/domain"
)

// gatewayFeed follows a part of the log for a connection.
type gatewayFeed struct {
	g       *gatewayConnection
	name    string
	feed    *tail.Feed
	opening []byte // the start of each event message
	cloud   bool   // events are structured CloudEvents
}

// feedOf reads the fields of a SUBSCRIBE to a part of the log.
func (g *gatewayConnection) feedOf(m *gatewayMessage, name string) (func(context.Context) (gatewaySource, *gatewayAnswer, error), error) {
	f := &m.fields
	var wanted domain.Follow
	if source, there := f.object("source"); there {
		wanted.Stream = source.text("stream", 0, math.MaxInt)
		wanted.Categories = source.texts("categories", maxSelected, domain.CheckCategory)
		if wanted.Stream != "" {
			if len(wanted.Categories) > 0 {
				source.fail("categories", "stream is there as well; give one of them")
			} else if err := domain.CheckStream("source.stream", wanted.Stream); err != nil && source.err == nil {
				source.err = err
			}
		}
		f.within(&source)
	}
	wanted.Types = f.texts("types", maxSelected, domain.CheckType)
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
	if err := g.caller.allowSelection(wanted.Selection, domain.ScopeEventsRead); err != nil {
		return nil, inPlace("source", err)
	}
	return func(ctx context.Context) (gatewaySource, *gatewayAnswer, error) {
		feed, err := g.server.config.Follower.Follow(ctx, g.caller.tenant, wanted)
		if err != nil {
			return nil, nil, err
		}
		source := &gatewayFeed{g: g, name: name, feed: feed, opening: answerTo(opEvent, "").text("subscription", name).b, cloud: cloud}
		return source, answerTo(opOK, m.id).text("subscription", name).number("position", feed.Position()), nil
	}, nil
}

// deliver sends events, a message when the feed has caught up, and the feed's position when it skipped events or has
// nothing to send.
func (f *gatewayFeed) deliver(ctx context.Context) error {
	for {
		window, cancel := context.WithTimeout(ctx, f.g.server.heartbeat)
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
func (f *gatewayFeed) send(slice tail.Slice) error {
	if slice.Gap != nil {
		// appendGap begins the object to which the message adds its fields.
		gap := appendGap(nil, slice.Gap)
		message := append(answerTo(opGap, "").text("subscription", f.name).b, ',')
		if err := f.g.sendQueue.send(f.g.alive, append(message, gap[1:]...)); err != nil {
			return err
		}
	}
	for _, entry := range slice.Entries {
		message := append(make([]byte, 0, len(f.opening)+320+len(entry.Event.Data)+len(entry.Event.Metadata)), f.opening...)
		message = append(message, `,"event":`...)
		if f.cloud {
			message = appendEntryCloudEvent(message, entry)
		} else {
			message = appendEntryEvent(message, entry)
		}
		if err := f.g.sendQueue.send(f.g.alive, append(message, '}')); err != nil {
			return err
		}
	}
	if observe := f.g.server.config.Observer.Followed; observe != nil && len(slice.Entries) > 0 {
		observe(byWebSocket, len(slice.Entries))
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
func (f *gatewayFeed) place(op string, position int64) error {
	return f.g.sendQueue.send(f.g.alive, answerTo(op, "").text("subscription", f.name).number("position", position).end())
}

func (f *gatewayFeed) close(context.Context) { f.feed.Close() }
