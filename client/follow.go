package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"time"
)

// FollowOptions select the events of a follower.
type FollowOptions struct {
	Stream   string   // only one stream, which need not exist yet
	Category string   // only one category; without it and Stream, the whole log
	From     string   // start (the default), end, a position or an event's id, included, or a time of recording
	Types    []string // only events of these types
	Query    *Query   // only events that this query matches
	Filter   string   // only events for which this expression is true
	Retry    Retry    // the pauses before new connections; Attempts has no effect

	OnPosition  func(position int64) // called when no event is left up to a position: a new follower may begin after it
	OnCaughtUp  func(position int64) // called when all events up to the head have been sent, each time
	OnGap       func(Gap)            // called when retention has removed events that the follower might have received
	OnReconnect func(reason error)   // called before each new connection; nil: the service ended the last one
}

// silence is how long a follower waits for a frame. The service sends one every 15 s.
const silence = 45 * time.Second

// errSilent ends a connection without frames.
var errSilent = errors.New("no frame has come for 45 s")

// errLeft ends a connection whose loop was left.
var errLeft = errors.New("the loop was left")

// Follow iterates over the events of a log in order, each once, and continues with new ones as they are appended. A
// connection that breaks is opened again after the last event that was yielded. The iteration ends with an error: that
// of ctx, or a *ProblemError if the service refuses the request. Leaving the loop closes the connection.
//
// Store the Position of an event with its effect, and give it, plus one, as From the next time.
func (c *Client) Follow(ctx context.Context, options FollowOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f := &follower{client: c, options: options, yield: yield}
		for failures := 1; ; failures++ {
			before := f.position
			err := f.connect(ctx)
			var problem *ProblemError
			switch {
			case errors.Is(err, errLeft):
				return
			case ctx.Err() != nil:
				yield(Event{}, context.Cause(ctx))
				return
			case errors.As(err, &problem) && problem.permanent():
				yield(Event{}, err)
				return
			case f.position > before:
				failures = 1
			}
			if err := sleep(ctx, options.Retry.pause(failures)); err != nil {
				yield(Event{}, err)
				return
			}
			if options.OnReconnect != nil {
				options.OnReconnect(err)
			}
		}
	}
}

// frame is one line of a connection. One of its fields is set.
type frame struct {
	Event      *Event `json:"event"`
	CaughtUp   *place `json:"caughtUp"`
	Checkpoint *place `json:"checkpoint"`
	Gap        *Gap   `json:"gap"`
}

type place struct {
	Position int64 `json:"position"`
}

// follower is one iteration of Follow.
type follower struct {
	client   *Client
	options  FollowOptions
	yield    func(Event, error) bool
	position int64 // up to which everything was yielded or passed over; 0: unknown
}

// connect opens a connection, and yields its events until it ends.
func (f *follower) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer quiet.Stop()
	response, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		return refusal(response.StatusCode, body)
	}
	for lines := bufio.NewReaderSize(response.Body, 64<<10); ; {
		line, err := lines.ReadBytes('\n')
		switch {
		case err == io.EOF:
			return nil // a line without its end does not count
		case err != nil && context.Cause(ctx) == errSilent:
			return errSilent
		case err != nil:
			return err
		}
		var frame frame
		if err := json.Unmarshal(line, &frame); err != nil {
			return fmt.Errorf("read a frame: %w", err)
		}
		quiet.Stop() // the consumer may take its time
		if !f.handle(frame) {
			return errLeft
		}
		quiet.Reset(silence)
	}
}

// handle passes a frame on. It returns false if the loop was left.
func (f *follower) handle(frame frame) bool {
	switch {
	case frame.Event != nil:
		f.position = frame.Event.Position
		return f.yield(*frame.Event, nil)
	case frame.CaughtUp != nil:
		f.pass(frame.CaughtUp.Position)
		if f.options.OnCaughtUp != nil {
			f.options.OnCaughtUp(frame.CaughtUp.Position)
		}
	case frame.Checkpoint != nil:
		f.pass(frame.Checkpoint.Position)
	case frame.Gap != nil && f.options.OnGap != nil:
		f.options.OnGap(*frame.Gap)
	}
	return true
}

func (f *follower) pass(position int64) {
	f.position = position
	if f.options.OnPosition != nil {
		f.options.OnPosition(position)
	}
}

// open sends the request for a connection from the follower's place on.
func (f *follower) open(ctx context.Context) (*http.Response, error) {
	o := f.options
	var params FollowAllParams
	if o.From != "" {
		params.From = &o.From
	}
	if f.position > 0 {
		next := strconv.FormatInt(f.position+1, 10)
		params.From = &next
	}
	if len(o.Types) > 0 {
		params.Types = &o.Types
	}
	if o.Filter != "" {
		params.Filter = &o.Filter
	}
	if o.Query != nil {
		text, err := json.Marshal(o.Query)
		if err != nil {
			return nil, err
		}
		query := string(text)
		params.Query = &query
	}
	lines := func(_ context.Context, request *http.Request) error {
		request.Header.Set("Accept", "application/x-ndjson")
		return nil
	}
	switch {
	case o.Stream != "":
		of := FollowStreamParams(params)
		return f.client.FollowStream(ctx, o.Stream, &of, lines)
	case o.Category != "":
		of := FollowCategoryParams(params)
		return f.client.FollowCategory(ctx, o.Category, &of, lines)
	}
	return f.client.FollowAll(ctx, &params, lines)
}
