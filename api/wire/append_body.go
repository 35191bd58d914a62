package wire

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// bodyReader decodes the bodies of frequent requests in one pass. It keeps data and metadata as the bytes that came in,
// and checks every limit on the way. It implements the schemas NewEvents, AppendRequest and Attempts of openapi.yaml,
// and a test checks that they agree. It is stricter where a schema cannot express a rule: sizes, nesting, what JSONB
// can store, and duplicate ids in a request.
//
// A bodyReader is for one body.
type bodyReader struct {
	text   []byte
	scan   *domain.JSONScanner
	events int // decoded so far, over all streams
}

// DecodeEvents decodes the body of an append to one stream: an array of events.
func DecodeEvents(text []byte) ([]domain.NewEvent, error) {
	d := bodyReader{text: text, scan: domain.NewJSONScanner(text)}
	events, err := d.readEvents("events")
	if err != nil {
		return nil, d.withPlace("", err)
	}
	if err := d.scan.End(); err != nil {
		return nil, d.withPlace("", err)
	}
	return events, nil
}

// DecodeAppend decodes the body of an append to several streams.
func DecodeAppend(text []byte) (domain.Append, error) {
	d := bodyReader{text: text, scan: domain.NewJSONScanner(text)}
	var request domain.Append
	_, _, err := d.readObject(appendFields, func(name string) (err error) {
		if name == "condition" {
			request.Conditions, err = d.readConditions()
			return err
		}
		seen := map[string]bool{}
		return d.withPlace("streams", d.scan.Array(func(i int) error {
			where := "streams[" + strconv.Itoa(i) + "]"
			stream, err := d.readStream(where)
			if err != nil {
				return d.withPlace(where, err)
			}
			if seen[stream.Stream] {
				return domain.Errorf(domain.CodeInvalidRequest, where+".stream", "%s is in the request twice; put its events together", stream.Stream)
			}
			seen[stream.Stream] = true
			request.Streams = append(request.Streams, stream)
			return nil
		}))
	})
	if err == nil {
		err = d.scan.End()
	}
	if err == nil && len(request.Streams) == 0 {
		err = domain.Errorf(domain.CodeInvalidRequest, "streams", "give at least one stream")
	}
	if err != nil {
		return domain.Append{}, d.withPlace("body", err)
	}
	return request, nil
}

// The fields of the objects.
var (
	appendFields = []string{"streams", "condition"}
	streamFields = []string{"stream", "events", "expectedVersion"} // the first two are required
	eventFields  = []string{"type", "data", "id", "metadata", "tags", "occurredAt"}
)

// givenFields records which fields an object has, by their indexes in its list of names.
type givenFields [11]bool

// readObject calls read with the name of each field. Unknown and duplicate fields are errors. If it fails, at is the
// field that it was reading, or empty.
func (d *bodyReader) readObject(names []string, read func(name string) error) (given givenFields, at string, err error) {
	err = d.scan.Object(func(name string) error {
		field := slices.Index(names, name)
		if field < 0 {
			return unknownField(name, names)
		}
		at = name
		if given[field] {
			return domain.Errorf(domain.CodeInvalidRequest, "", "%s is given twice", name)
		}
		given[field] = true
		if err := read(name); err != nil {
			return err
		}
		at = ""
		return nil
	})
	return given, at, err
}

// missing returns the first of the required fields that an object does not have, or "".
func (g *givenFields) missing(required []string) string {
	for i, name := range required {
		if !g[i] {
			return name
		}
	}
	return ""
}

func (d *bodyReader) readStream(where string) (domain.StreamAppend, error) {
	stream := domain.StreamAppend{Expected: domain.Any}
	given, _, err := d.readObject(streamFields, func(name string) (err error) {
		switch name {
		case "stream":
			if stream.Stream, err = d.readString(where + ".stream"); err == nil {
				err = domain.CheckStream(where+".stream", stream.Stream)
			}
		case "expectedVersion":
			stream.Expected, err = d.readExpected(where + ".expectedVersion")
		case "events":
			stream.Events, err = d.readEvents(where + ".events")
		}
		return err
	})
	if err == nil && given.missing(streamFields[:2]) != "" {
		err = domain.Errorf(domain.CodeInvalidRequest, where, "expected an object with stream and events")
	}
	return stream, err
}

// readExpected reads "any", "none", "exists", or a version as a number or as a string.
func (d *bodyReader) readExpected(where string) (domain.Expected, error) {
	raw, err := d.scan.Value()
	if err != nil {
		return 0, d.withPlace(where, err)
	}
	text := string(raw)
	if raw[0] == '"' {
		text = domain.UnquoteJSON(raw)
	} else if text == "-0" {
		text = "0"
	}
	expected, err := ParseExpected(where, text)
	if err != nil || raw[0] != '"' && (raw[0] < '0' || raw[0] > '9') && text != "0" {
		return 0, domain.Errorf(domain.CodeInvalidRequest, where, `%s is not "any", "none", "exists" or a version such as 4`, domain.Clip(string(raw), 40))
	}
	return expected, nil
}

// ParseExpected reads an expected version of at most 18 digits.
func ParseExpected(where, text string) (domain.Expected, error) {
	if len(text) <= 18 && text != "" && text[0] != '+' {
		if expected, err := domain.ParseExpected(text); err == nil {
			return expected, nil
		}
	}
	return 0, domain.Errorf(domain.CodeInvalidRequest, where, "%q is not any, none, exists or a version such as 4", domain.Clip(text, 40))
}

func (d *bodyReader) readEvents(where string) ([]domain.NewEvent, error) {
	var events []domain.NewEvent
	err := d.scan.Array(func(i int) error {
		if d.events++; d.events > domain.MaxRequestEvents {
			return domain.Errorf(domain.CodeTooLarge, where, "the request has more than %d events; split it", domain.MaxRequestEvents)
		}
		event, err := d.readEvent(where, i)
		if err != nil {
			return err
		}
		events = append(events, event)
		return nil
	})
	if err != nil {
		return nil, d.withPlace(where, err)
	}
	if len(events) == 0 {
		return nil, domain.Errorf(domain.CodeInvalidRequest, where, "give at least one event")
	}
	return events, nil
}

func (d *bodyReader) readEvent(list string, index int) (domain.NewEvent, error) {
	event, at, err := d.readEventFields()
	if err != nil {
		return event, d.withPlace(place(list+"["+strconv.Itoa(index)+"]", at), err)
	}
	return event, nil
}

// place returns the place of a field in an object, or that of the object if field is empty.
func place(object, field string) string {
	if field == "" {
		return object
	}
	return object + "." + field
}

// readEventFields reads an event. If it fails, at is the field that it was reading, or empty.
func (d *bodyReader) readEventFields() (event domain.NewEvent, at string, err error) {
	given, at, err := d.readObject(eventFields, func(name string) (err error) {
		switch name {
		case "id":
			event.ID, err = d.readNewID()
		case "type":
			if event.Type, err = d.readString(""); err == nil {
				err = domain.CheckType("", event.Type)
			}
		case "data":
			event.Data, err = d.scan.Value()
		case "metadata":
			event.Metadata, err = d.scan.Value()
		case "tags":
			event.Tags, err = d.readTags()
		case "occurredAt":
			event.OccurredAt, err = d.readTime()
		}
		return err
	})
	if err == nil {
		size := len(event.Data) + len(event.Metadata)
		if at = given.missing(eventFields[:2]); at != "" {
			err = domain.Errorf(domain.CodeInvalidRequest, "", "required, but missing")
		} else if size > domain.MaxEventBytes {
			at, err = "data", domain.Errorf(domain.CodeTooLarge, "", "data and metadata have %d bytes; an event has at most %d", size, domain.MaxEventBytes)
		}
	}
	if string(event.Metadata) == "null" {
		event.Metadata = nil
	}
	return event, at, err
}

// readTags reads an event's tags.
func (d *bodyReader) readTags() ([]string, error) {
	tags, err := d.readStrings("tags", domain.MaxTags)
	if err != nil {
		return nil, err
	}
	return domain.CheckTags("", tags)
}

// readStrings reads an array of at most so many strings.
func (d *bodyReader) readStrings(what string, most int) (texts []string, err error) {
	err = d.scan.Array(func(i int) error {
		if i == most {
			return domain.Errorf(domain.CodeTooLarge, "", "there are more than %d %s", most, what)
		}
		text, err := d.readString("")
		texts = append(texts, text)
		return err
	})
	return texts, err
}

// readString reads a string. Any other JSON is an error.
func (d *bodyReader) readString(where string) (string, error) {
	raw, err := d.scan.Value()
	if err != nil {
		return "", err
	}
	if raw[0] != '"' {
		return "", domain.Errorf(domain.CodeInvalidRequest, where, "it must be a string")
	}
	return domain.UnquoteJSON(raw), nil
}

// readNewID reads the id that a new event gets.
func (d *bodyReader) readNewID() (domain.EventID, error) {
	id, err := d.readID()
	if err == nil && id.IsZero() {
		err = domain.Errorf(domain.CodeInvalidRequest, "", "the nil UUID is no event's id")
	}
	return id, err
}

func (d *bodyReader) readID() (domain.EventID, error) {
	text, err := d.readString("")
	if err != nil {
		return domain.EventID{}, err
	}
	id, err := domain.ParseEventID(text)
	if err != nil {
		return id, domain.Errorf(domain.CodeInvalidRequest, "", "%s", err)
	}
	return id, nil
}

func (d *bodyReader) readTime() (time.Time, error) {
	text, err := d.readString("")
	if err != nil {
		return time.Time{}, err
	}
	return ParseTime(text)
}

// ParseTime parses an RFC 3339 time.
func ParseTime(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return at, domain.Errorf(domain.CodeInvalidRequest, "", "%q is not a time such as 2026-03-01T09:30:00Z", domain.Clip(text, 40))
	}
	at = at.UTC()
	return at, CheckTime("", at)
}

// CheckTime requires a year from 2 to 9999, because year 1 begins with the zero time, which means "none" here.
func CheckTime(where string, at time.Time) error {
	if year := at.UTC().Year(); year < 2 || year > 9999 {
		return domain.Errorf(domain.CodeInvalidRequest, where, "%q is out of range; times lie in the years 2 to 9999", at.Format(time.RFC3339Nano))
	}
	return nil
}

func unknownField(name string, known []string) error {
	return domain.Errorf(domain.CodeInvalidRequest, "", "unknown field %q; expected %s", domain.Clip(name, 60), strings.Join(known, ", "))
}

// withPlace adds the place to an error that has none.
func (d *bodyReader) withPlace(where string, err error) error {
	switch e := err.(type) {
	case nil:
		return nil
	case *domain.Error:
		if e.Where == "" {
			e.Where = where
		}
		return e
	case *domain.JSONError:
		if where == "" {
			where = "body"
		}
		return e.Refusal(d.text, where)
	default:
		return err
	}
}
