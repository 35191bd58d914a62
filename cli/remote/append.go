package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// appendFlags are the parts of an append besides its stream, type and data.
type appendFlags struct {
	id, metadata, occurredAt, expected, key string
	tags                                    []string
	lines                                   bool
}

func appendCommand() *cobra.Command {
	to, f := &connection{}, &appendFlags{}
	command := &cobra.Command{
		Use:   "append STREAM TYPE [DATA|-]",
		Short: "Append an event to a stream, or several at once",
		Long: `Append an event to a stream. DATA is any JSON, by default {}; - reads it from standard input. Without DATA, the command appends nothing if
standard input has data. With --lines, each line of standard input is an event as JSON, with type, data and, if you like, id,
metadata, tags and occurredAt: all are appended, or none.

The command prints each event's position, stream, version and id. Appending an event again with the same --id appends nothing,
and prints the position of the first one.`,
		Example: `  manifold append order-1001 OrderPlaced '{"customer": "c-17"}' --expected-version none
  manifold append order-1001 --lines < events.ndjson`,
		Args: cobra.RangeArgs(1, 3),
		RunE: to.run(func(ctx context.Context, c *call) error {
			events, err := f.events(c)
			if err != nil {
				return err
			}
			return f.append(ctx, c, events)
		}),
	}
	to.bind(command, "MANIFOLD_KEY")
	flags := command.Flags()
	flags.StringVar(&f.expected, "expected-version", "", "the version that the stream must have: a number, none or exists (default: any)")
	flags.StringVar(&f.id, "id", "", "the event's id, a UUID (default: a new one)")
	flags.StringVar(&f.key, "idempotency-key", "", "derives the ids of events without one, so that repeating the command appends nothing")
	flags.StringVar(&f.metadata, "metadata", "", "the event's metadata, as JSON")
	flags.StringArrayVar(&f.tags, "tag", nil, "a tag of the event, such as course:c1; may be repeated")
	flags.StringVar(&f.occurredAt, "occurred-at", "", "when it happened, as RFC 3339")
	flags.BoolVar(&f.lines, "lines", false, "read events from standard input, one a line")
	for _, ofOne := range []string{"id", "metadata", "tag", "occurred-at"} {
		exclusiveFlags(command, "lines", ofOne)
	}
	return withJSON("the events", command)
}

// events returns the events to append.
func (f *appendFlags) events(c *call) ([]json.RawMessage, error) {
	if f.lines {
		if len(c.args) > 1 {
			return nil, errors.New("--lines reads types and data from standard input: give the stream only")
		}
		return eventLines(c.in)
	}
	if len(c.args) == 1 {
		return nil, errors.New("no type: give it after the stream, such as OrderPlaced, or --lines to read events from standard input")
	}
	if len(c.args) == 2 && hasInput(c.in) {
		return nil, errors.New("DATA is missing, although standard input has data: give - to append that, or {} for an event without data")
	}
	event := client.NewEvent{Id: given(f.id), Type: c.args[1], Data: json.RawMessage("{}"), Tags: f.tags}
	if len(c.args) == 3 {
		event.Data = json.RawMessage(c.args[2])
		if c.args[2] == "-" {
			text, err := io.ReadAll(io.LimitReader(c.in, publishLine))
			if err != nil {
				return nil, err
			}
			if len(text) == publishLine {
				return nil, errors.New("the data is too large: at most 1 MiB is allowed")
			}
			event.Data = text
		}
	}
	if !json.Valid(event.Data) {
		return nil, errors.New(`the data is not JSON; a text needs quotes: '"text"'`)
	}
	if f.metadata != "" {
		if event.Metadata = json.RawMessage(f.metadata); !json.Valid(event.Metadata) {
			return nil, errors.New("--metadata is not JSON")
		}
	}
	if f.occurredAt != "" {
		at, err := time.Parse(time.RFC3339Nano, f.occurredAt)
		if err != nil {
			return nil, fmt.Errorf("--occurred-at: %q is not a time such as 2026-03-01T09:30:00Z", f.occurredAt)
		}
		event.OccurredAt = &at
	}
	text, err := json.Marshal(event)
	return []json.RawMessage{text}, err
}

// eventLines reads events, one a line. The service checks their fields.
func eventLines(in io.Reader) (events []json.RawMessage, err error) {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, publishLine)
	for number := 1; lines.Scan(); number++ {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		if line[0] != '{' || !json.Valid(line) {
			return nil, fmt.Errorf(`line %d is not an event as JSON, such as {"type": "OrderPlaced", "data": {}}`, number)
		}
		events = append(events, bytes.Clone(line))
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the events: %w", err)
	}
	if len(events) == 0 {
		return nil, errors.New("standard input has no events")
	}
	return events, nil
}

// append appends the events in one request, and prints them.
func (f *appendFlags) append(ctx context.Context, c *call, events []json.RawMessage) error {
	body, err := json.Marshal(events)
	if err != nil {
		return err
	}
	response, err := c.AppendToStreamWithBody(ctx, c.args[0], &client.AppendToStreamParams{
		ExpectedVersion: given(f.expected), IdempotencyKey: given(f.key),
	}, "application/json", bytes.NewReader(body))
	answer, err := read[client.AppendedStream](response, err)
	if err != nil {
		return err
	}
	if c.asJSON {
		return printJSON(c.out, each(answer.Events))
	}
	for _, event := range answer.Events {
		c.out.printf("%d  %s  version %d  %s%s\n", event.Position, answer.Stream, event.Version, event.Id, ifDuplicate(response))
	}
	return nil
}
