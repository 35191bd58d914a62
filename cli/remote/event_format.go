package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// eventFormat is how to show events.
type eventFormat struct {
	format string // lines or pretty, for people; json, which is -o ndjson
}

func (f *eventFormat) bind(command *cobra.Command) {
	withJSON("events", command)
	command.Flags().StringVar(&f.format, "format", "lines", "lines; pretty: over several lines; json: the same as -o ndjson")
	exclusiveFlags(command, "format", "json", "output")
}

func (f *eventFormat) check(c *call) error {
	switch f.format {
	case "lines", "pretty":
		return nil
	case "json":
		c.asJSON, c.out.format = true, "ndjson"
		return nil
	}
	return fmt.Errorf("--format %s: expected lines, json or pretty", f.format)
}

// printer returns what prints events to a writer, in the format of the call.
func (f *eventFormat) printer(c *call, to io.Writer) eventPrinter {
	return eventPrinter{out: &output{to: to, format: c.out.format}, asJSON: c.asJSON, pretty: f.format == "pretty"}
}

// eventPrinter prints events one by one.
type eventPrinter struct {
	out            *output
	asJSON, pretty bool
	line           func(client.Event) string // formats an event for people; nil: eventLine
}

// print prints an event as the service sends it, and returns it.
func (p eventPrinter) print(raw json.RawMessage) (event client.Event, err error) {
	if err := json.Unmarshal(raw, &event); err != nil {
		return event, fmt.Errorf("unexpected event from the service: %.200q", raw)
	}
	switch {
	case p.asJSON:
		err = p.out.json(raw)
	case p.pretty:
		err = writePretty(p.out, event)
	case p.line != nil:
		err = p.out.printf("%s\n", p.line(event))
	default:
		err = p.out.printf("%s\n", eventLine(event))
	}
	return event, err
}

// toTheMillisecond is the format for the times of events, in local time.
const toTheMillisecond = "2006-01-02T15:04:05.000Z07:00"

// eventHead returns the start of an event's line: position, time, stream and type.
func eventHead(e client.Event) string {
	return fmt.Sprintf("%d  %s  %s  %s", e.Position, e.RecordedAt.Local().Format(toTheMillisecond), e.Stream, e.Type)
}

// eventLine formats an event on one line, for people.
func eventLine(e client.Event) string {
	return eventHead(e) + "  " + string(bytes.TrimSpace(e.Data))
}

// writePretty writes an event over as many lines as its data needs.
func writePretty(out io.Writer, e client.Event) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%s\n    version %d, id %s", eventHead(e), e.Version, e.Id)
	if e.OccurredAt != nil {
		fmt.Fprintf(&text, ", occurred at %s", e.OccurredAt.Local().Format(time.RFC3339Nano))
	}
	text.WriteByte('\n')
	for _, part := range []struct {
		name string
		json json.RawMessage
	}{{"metadata ", e.Metadata}, {"", e.Data}} {
		if part.json == nil {
			continue
		}
		text.WriteString("    " + part.name)
		if err := json.Indent(&text, part.json, "    ", "  "); err != nil {
			return fmt.Errorf("event %s: %w", e.Id, err)
		}
		text.WriteByte('\n')
	}
	_, err := out.Write(text.Bytes())
	return err
}
