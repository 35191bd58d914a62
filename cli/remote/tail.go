package remote

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// tailFlags say what to follow, and how to show it.
type tailFlags struct {
	eventFormat
	from, query, filter string
	types               []string
	count               int64 // number of events after which it ends; 0: never
	untilCaughtUp       bool
}

func tailCommand() *cobra.Command {
	to, f := &connection{}, &tailFlags{}
	command := &cobra.Command{
		Use:   "tail [CATEGORY | STREAM | '$all']",
		Short: "Follow a tenant's log, a category or a stream, one event a line",
		Long: `Follow a tenant's log as it grows: the whole log, the streams of a category (order), or one stream, whose name has a hyphen
(order-7). It begins with events appended from now on, unless --from says otherwise, and runs until Ctrl-C.

Each line has an event's position, the time of its recording, its stream, type and data. -o prints events as the service sends
them; -o json prints one after the other, not as a list.

If the connection breaks, the command reconnects with growing pauses, and continues after the last event that it printed. No
event is lost or repeated. The command ends if the service refuses the request.`,
		Example: `  manifold tail order --types OrderPlaced
  manifold tail order-7 --from start --until-caught-up --json
  manifold tail --from 2026-03-01T09:00:00Z --filter 'event.data.customer == "c-17"'`,
		Args: cobra.MaximumNArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			if err := f.check(c); err != nil {
				return err
			}
			source := allStreams
			if len(c.args) == 1 {
				source = c.args[0]
			}
			if source == "" {
				// An unset shell variable is a likely cause, often $all itself.
				return errors.New("the name to follow is empty: give a category, a stream or '$all', in single quotes")
			}
			buffer := bufio.NewWriterSize(c.out, 64<<10)
			t := &tail{service: c.Client, source: source, flags: f, out: buffer, events: f.printer(c, buffer), people: c.people}
			return t.run(ctx)
		}),
	}
	to.bind(command, "MANIFOLD_KEY")
	command.Flags().StringVar(&f.from, "from", "end", "where to begin: start, end (events appended from now on), a position, a time or an event's id")
	command.Flags().StringSliceVar(&f.types, "types", nil, "only events of these types, separated by commas")
	queryFlag(command, &f.query, "")
	command.Flags().StringVar(&f.filter, "filter", "", "an expression of event: only events for which it is true")
	f.bind(command)
	command.Flags().Int64Var(&f.count, "count", 0, "end after this number of events")
	command.Flags().BoolVar(&f.untilCaughtUp, "until-caught-up", false, "end after all events that exist so far")
	return command
}

func (f *tailFlags) check(c *call) error {
	if f.count < 0 || f.count == 0 && c.changed("count") {
		return errors.New("--count must be at least 1")
	}
	return f.eventFormat.check(c)
}

// allStreams is the service's name for the whole log.
const allStreams = "$all"

// tail follows a log until it has shown the requested events.
type tail struct {
	service *client.Client
	source  string // allStreams, a category or a stream
	flags   *tailFlags
	out     *bufio.Writer
	events  eventPrinter // to out
	people  io.Writer    // for everything except events

	next  int64 // the position to continue from; 0: nothing was received yet, so --from applies
	shown int64 // number of events shown
	// answered is set after the service has answered once. Before that, a failed connection is an error, as for other
	// commands. After that, the command reconnects.
	answered bool
	broken   bool // the connection has failed, and a message said so
}

// These are the pauses before a reconnect: doubled from the first to the longest.
const (
	firstPause   = 200 * time.Millisecond
	longestPause = 15 * time.Second
)

// silence is how long a connection may be silent before it counts as broken. The service sends something every 15 s.
const silence = 45 * time.Second

var (
	errShownAll = errors.New("all requested events were shown")
	errEnded    = errors.New("the service closed it")
	errSilent   = fmt.Errorf("nothing was received for %s", silence)
)

// brokenError is the reason why a connection has ended, if the command may reconnect.
type brokenError struct {
	error
	pause time.Duration // the minimum pause that the service requests
}

func (t *tail) run(ctx context.Context) error {
	pause := firstPause
	for {
		seen := t.next
		err := t.follow(ctx)
		if err := t.out.Flush(); err != nil {
			return err
		}
		cut, again := errors.AsType[brokenError](err)
		switch {
		case errors.Is(err, errShownAll):
			return nil
		case ctx.Err() != nil:
			if t.flags.count > 0 || t.flags.untilCaughtUp {
				return fmt.Errorf("%w after %d events", context.Cause(ctx), t.shown)
			}
			return nil
		case !again:
			return err
		case !t.answered:
			return cut.error
		}
		if t.next != seen {
			pause = firstPause
		}
		if !t.broken {
			t.broken = true
			fmt.Fprintf(t.people, "the connection broke (%v); reconnecting ...\n", cut.error)
		}
		// Add a random part of up to a half, so that not all clients reconnect at the same time.
		timer := time.NewTimer(max(pause+rand.N(pause/2), cut.pause))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		pause = min(2*pause, longestPause)
	}
}

// follow shows what one connection receives. Its error is errShownAll, a brokenError, or an error that ends the
// command.
func (t *tail) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer patience.Stop()
	response, err := t.ask(ctx)
	if err != nil {
		if context.Cause(ctx) == errSilent {
			err = errSilent
		}
		return brokenError{error: err}
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(io.LimitReader(response.Body, 1<<20)) // an incomplete error body is good enough
		err := refusal(response.Status, answer)
		if response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= 500 {
			seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
			return brokenError{err, time.Duration(seconds) * time.Second}
		}
		return err
	}
	t.answered = true
	if t.broken {
		t.broken = false
		fmt.Fprintln(t.people, "reconnected")
	}
	saidCaughtUp := false
	lines := bufio.NewReaderSize(&patientReader{response.Body, patience}, 64<<10)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil { // an incomplete line is sent again
			switch {
			case context.Cause(ctx) == errSilent:
				err = errSilent
			case errors.Is(err, io.EOF):
				err = errEnded
			}
			return brokenError{error: err}
		}
		caughtUp, err := t.show(line)
		if err != nil {
			return err
		}
		// Write all lines that were already read together.
		if rest, _ := lines.Peek(lines.Buffered()); bytes.IndexByte(rest, '\n') < 0 || caughtUp {
			if err := t.out.Flush(); err != nil {
				return err
			}
		}
		switch {
		case t.flags.count > 0 && t.shown >= t.flags.count, caughtUp && t.flags.untilCaughtUp:
			return errShownAll
		case caughtUp && !saidCaughtUp:
			saidCaughtUp = true
			if isTerminal(t.people) {
				fmt.Fprintf(t.people, "caught up at position %d\n", t.next-1)
			}
		}
	}
}

// ask starts to follow after the events already seen.
func (t *tail) ask(ctx context.Context) (*http.Response, error) {
	from := t.flags.from
	if t.next > 0 {
		from = strconv.FormatInt(t.next, 10)
	}
	types, query, filter := givenList(t.flags.types), given(t.flags.query), given(t.flags.filter)
	lines := func(_ context.Context, request *http.Request) error {
		request.Header.Set("Accept", "application/x-ndjson")
		return nil
	}
	switch {
	case t.source == allStreams:
		return t.service.FollowAll(ctx, &client.FollowAllParams{From: &from, Types: types, Query: query, Filter: filter}, lines)
	case strings.Contains(t.source, "-"):
		return t.service.FollowStream(ctx, t.source, &client.FollowStreamParams{From: &from, Types: types, Query: query, Filter: filter}, lines)
	default:
		return t.service.FollowCategory(ctx, t.source, &client.FollowCategoryParams{From: &from, Types: types, Query: query, Filter: filter}, lines)
	}
}

// frame is one line of the service's answer: Frame in the contract. A frame with none of these fields comes from a
// newer service.
type frame struct {
	Event      json.RawMessage `json:"event"`
	CaughtUp   *place          `json:"caughtUp"`
	Checkpoint *place          `json:"checkpoint"`
	Gap        *client.Gap     `json:"gap"`
}

// place is the position up to which every event was sent or skipped.
type place struct {
	Position int64 `json:"position"`
}

// show writes the event of a frame, if there is one, and advances the position.
func (t *tail) show(line []byte) (caughtUp bool, err error) {
	var f frame
	if err := json.Unmarshal(line, &f); err != nil {
		return false, fmt.Errorf("unexpected line from the service: %.200q", line)
	}
	if at := cmp.Or(f.CaughtUp, f.Checkpoint); at != nil {
		t.next = max(t.next, at.Position+1)
	}
	if f.Gap != nil {
		if err := t.out.Flush(); err != nil {
			return false, err
		}
		fmt.Fprintln(t.people, gapLine(*f.Gap))
	}
	if f.Event == nil {
		return f.CaughtUp != nil, nil
	}
	event, err := t.events.print(f.Event)
	if err != nil {
		return false, err
	}
	t.next = event.Position + 1
	t.shown++
	return false, nil
}

// gapLine describes what retention has removed.
func gapLine(gap client.Gap) string {
	return fmt.Sprintf("between positions %d and %d, events of %s were removed by retention", gap.From, gap.To, strings.Join(gap.Categories, ", "))
}

// patientReader limits the time of each read, but not the time between reads.
type patientReader struct {
	from     io.Reader
	patience *time.Timer
}

// Read implements io.Reader.
func (r *patientReader) Read(p []byte) (int, error) {
	r.patience.Reset(silence)
	defer r.patience.Stop()
	return r.from.Read(p)
}
