package remote

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/manifold-es/manifold/client"
)

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
