package wire

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"strconv"

	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
)

// ImportLine is a valid line.
type ImportLine struct {
	Number  int64
	Stream  string
	Event   domain.NewEvent
	Earlier domain.EventID // the id that an earlier release derived from the content, if this one uses name and number
}

// importFields are the fields of a line. The first three are required. An import ignores those that exports add.
var importFields = []string{"stream", "type", "data", "id", "time", "metadata", "tags", "version", "position", "recordedAt", "gap", "erased"}

// ParseImportLine parses a line: either of schema ImportLine, or a CloudEvent. name is the import's, from which lines
// without an id get one; it may be empty.
func ParseImportLine(text []byte, name string, number int64) (ImportLine, error) {
	line, err := parseOwnLine(text, name, number)
	if err == nil || !isCloudEvent(text) {
		return line, err
	}
	line = ImportLine{Number: number}
	event, err := cloudevents.Parse(text)
	if err == nil {
		line.Stream, line.Event, err = event.Original()
	}
	return line, err
}

// isCloudEvent reports whether a line is a JSON object with the member specversion. Every CloudEvent has this member,
// and other lines do not.
func isCloudEvent(text []byte) (is bool) {
	if !bytes.Contains(text, []byte(`"specversion"`)) {
		return false
	}
	scan := domain.NewJSONScanner(text)
	_ = scan.Object(func(name string) error { // an invalid object is not a CloudEvent
		is = is || name == "specversion"
		_, err := scan.Value()
		return err
	})
	return is
}

// parseOwnLine parses a line of schema ImportLine.
func parseOwnLine(text []byte, importName string, number int64) (ImportLine, error) {
	line := ImportLine{Number: number}
	d := bodyReader{text: text, scan: domain.NewJSONScanner(text)}
	given, at, err := d.readObject(importFields, func(name string) error {
		var err error
		switch name {
		case "stream":
			if line.Stream, err = d.readString(name); err == nil {
				err = domain.CheckStream(name, line.Stream)
			}
		case "id":
			line.Event.ID, err = d.readID()
		case "type":
			if line.Event.Type, err = d.readString(name); err == nil {
				err = domain.CheckType(name, line.Event.Type)
			}
		case "time":
			line.Event.OccurredAt, err = d.readTime()
		case "data":
			line.Event.Data, err = d.scan.Value()
		case "metadata":
			line.Event.Metadata, err = d.scan.Value()
		case "tags":
			line.Event.Tags, err = d.readTags()
		case "gap":
			var gap json.RawMessage
			if gap, err = d.scan.Value(); err == nil && string(gap) != "null" {
				err = domain.Errorf(domain.CodeInvalidRequest, name, "the event has no data, since it was unreadable, redacted or erased when it was exported; leave the line out")
			}
		default: // a field of exports; the import assigns its own value
			_, err = d.scan.Value()
		}
		return d.withPlace(name, err)
	})
	if err == nil {
		err = d.scan.End()
	}
	if err != nil {
		return line, d.withPlace(at, err)
	}
	if missing := given.missing(importFields[:3]); missing != "" {
		return line, domain.Errorf(domain.CodeInvalidRequest, missing, "required, but missing")
	}
	if size := len(line.Event.Data) + len(line.Event.Metadata); size > domain.MaxEventBytes {
		return line, domain.Errorf(domain.CodeTooLarge, "data", "data and metadata have %d bytes; an event has at most %d", size, domain.MaxEventBytes)
	}
	if string(line.Event.Metadata) == "null" {
		line.Event.Metadata = nil
	}
	if line.Event.ID.IsZero() {
		if importName == "" {
			return line, domain.Errorf(domain.CodeInvalidRequest, "id", "the line has no id; give it one, or name the import (--name, ?name=), so that it can be repeated")
		}
		line.Event.ID = domain.DeriveEventID("import line", importName, strconv.FormatInt(number, 10))
		sum := sha256.Sum256(text)
		line.Earlier = domain.DeriveEventID("import", importName, string(sum[:]), "0")
	}
	return line, nil
}
