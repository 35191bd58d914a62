package api

import (
	"strconv"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// appendBody decodes the bodies of append requests in one pass. It keeps data and metadata as the bytes that came in,
// and checks every limit on the way. It implements the schemas NewEvents and AppendRequest of openapi.yaml, and a test
// checks that they agree. It is stricter where a schema cannot express a rule: sizes, nesting, what JSONB can store,
// and duplicate ids in a request.
//
// A decoder is for one body.
type appendBody struct {
	text   []byte
	scan   *domain.JSONScanner
	events int // decoded so far, over all streams
}

// decodeEvents decodes the body of an append to one stream: an array of events.
func decodeEvents(text []byte) ([]domain.NewEvent, error) {
	d := appendBody{text: text, scan: domain.NewJSONScanner(text)}
	events, err := d.list("events")
	if err != nil {
		return nil, d.mend("", err)
	}
	if err := d.scan.End(); err != nil {
		return nil, d.mend("", err)
	}
	return events, nil
}

// decodeAppend decodes the body of an append to several streams.
func decodeAppend(text []byte) (domain.Append, error) {
	d := appendBody{text: text, scan: domain.NewJSONScanner(text)}
	var request domain.Append
	var given fields
	err := d.scan.Object(func(name string) error {
		if name != "streams" {
			return unknownField(name, "streams")
		}
		if err := given.once(0, name); err != nil {
			return err
		}
		seen := map[string]bool{}
		return d.mend("streams", d.scan.Array(func(i int) error {
			where := "streams[" + strconv.Itoa(i) + "]"
			stream, err := d.stream(where)
			if err != nil {
				return d.mend(where, err)
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
		return domain.Append{}, d.mend("body", err)
	}
	return request, nil
}

func (d *appendBody) stream(where string) (domain.StreamAppend, error) {
	stream := domain.StreamAppend{Expected: domain.Any}
	var given fields
	err := d.scan.Object(func(name string) (err error) {
		switch name {
		case "stream":
			if err = given.once(0, name); err == nil {
				if stream.Stream, err = d.word(where + ".stream"); err == nil {
					err = domain.CheckStream(where+".stream", stream.Stream)
				}
			}
		case "expectedVersion":
			if err = given.once(1, name); err == nil {
				stream.Expected, err = d.expected(where + ".expectedVersion")
			}
		case "events":
			if err = given.once(2, name); err == nil {
				stream.Events, err = d.list(where + ".events")
			}
		default:
			err = unknownField(name, "stream, expectedVersion and events")
		}
		return err
	})
	if err != nil {
		return stream, err
	}
	if !given[0] || !given[2] {
		return stream, domain.Errorf(domain.CodeInvalidRequest, where, "expected an object with stream and events")
	}
	return stream, nil
}

// expected reads "any", "none", "exists", or a version as a number or as a string.
func (d *appendBody) expected(where string) (domain.Expected, error) {
	raw, err := d.scan.Value()
	if err != nil {
		return 0, d.mend(where, err)
	}
	text := string(raw)
	if raw[0] == '"' {
		text = domain.UnquoteJSON(raw)
	} else if text == "-0" {
		text = "0"
	}
	expected, err := parseExpected(where, text)
	if err != nil || raw[0] != '"' && (raw[0] < '0' || raw[0] > '9') && text != "0" {
		return 0, domain.Errorf(domain.CodeInvalidRequest, where, `%s is not "any", "none", "exists" or a version such as 4`, clip(string(raw), 40))
	}
	return expected, nil
}

// parseExpected reads an expected version of at most 18 digits.
func parseExpected(where, text string) (domain.Expected, error) {
	if len(text) <= 18 && text != "" && text[0] != '+' {
		if expected, err := domain.ParseExpected(text); err == nil {
			return expected, nil
		}
	}
	return 0, domain.Errorf(domain.CodeInvalidRequest, where, "%q is not any, none, exists or a version such as 4", clip(text, 40))
}

func (d *appendBody) list(where string) ([]domain.NewEvent, error) {
	var events []domain.NewEvent
	err := d.scan.Array(func(i int) error {
		if d.events++; d.events > domain.MaxRequestEvents {
			return domain.Errorf(domain.CodeTooLarge, where, "the request has more than %d events; split it", domain.MaxRequestEvents)
		}
		event, err := d.event(where, i)
		if err != nil {
			return err
		}
		events = append(events, event)
		return nil
	})
	if err != nil {
		return nil, d.mend(where, err)
	}
	if len(events) == 0 {
		return nil, domain.Errorf(domain.CodeInvalidRequest, where, "give at least one event")
	}
	return events, nil
}

// The fields of an event, as indexes into fields.
const (
	fieldID = iota
	fieldType
	fieldData
	fieldMetadata
	fieldOccurredAt
)

// fields records which fields an object has.
type fields [5]bool

func (f *fields) once(field int, name string) error {
	if f[field] {
		return domain.Errorf(domain.CodeInvalidRequest, "", "%s is given twice", name)
	}
	f[field] = true
	return nil
}

func (d *appendBody) event(list string, index int) (domain.NewEvent, error) {
	event, at, err := d.fields()
	if err != nil {
		return event, d.mend(place(list+"["+strconv.Itoa(index)+"]", at), err)
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

// fields reads an event. If it fails, at is the field that it was reading, or empty.
func (d *appendBody) fields() (event domain.NewEvent, at string, err error) {
	var given fields
	err = d.scan.Object(func(name string) (err error) {
		at = name
		switch name {
		case "id":
			if err = given.once(fieldID, name); err == nil {
				event.ID, err = d.eventID()
			}
		case "type":
			if err = given.once(fieldType, name); err == nil {
				if event.Type, err = d.word(""); err == nil {
					err = domain.CheckType("", event.Type)
				}
			}
		case "data":
			if err = given.once(fieldData, name); err == nil {
				event.Data, err = d.scan.Value()
			}
		case "metadata":
			if err = given.once(fieldMetadata, name); err == nil {
				event.Metadata, err = d.scan.Value()
			}
		case "occurredAt":
			if err = given.once(fieldOccurredAt, name); err == nil {
				event.OccurredAt, err = d.time()
			}
		default:
			at = ""
			err = unknownField(name, "id, type, data, metadata and occurredAt")
		}
		if err == nil {
			at = ""
		}
		return err
	})
	if err == nil {
		switch {
		case !given[fieldType]:
			at, err = "type", domain.Errorf(domain.CodeInvalidRequest, "", "required, but missing")
		case !given[fieldData]:
			at, err = "data", domain.Errorf(domain.CodeInvalidRequest, "", "required, but missing")
		case len(event.Data)+len(event.Metadata) > domain.MaxEventBytes:
			at, err = "data", domain.Errorf(domain.CodeTooLarge, "", "data and metadata have %d bytes; an event has at most %d", len(event.Data)+len(event.Metadata), domain.MaxEventBytes)
		}
	}
	if string(event.Metadata) == "null" {
		event.Metadata = nil
	}
	return event, at, err
}

// word reads a string. Any other JSON is an error.
func (d *appendBody) word(where string) (string, error) {
	raw, err := d.scan.Value()
	if err != nil {
		return "", err
	}
	if raw[0] != '"' {
		return "", domain.Errorf(domain.CodeInvalidRequest, where, "it must be a string")
	}
	return domain.UnquoteJSON(raw), nil
}

func (d *appendBody) eventID() (domain.EventID, error) {
	text, err := d.word("")
	if err != nil {
		return domain.EventID{}, err
	}
	id, err := domain.ParseEventID(text)
	if err != nil {
		return id, domain.Errorf(domain.CodeInvalidRequest, "", "%s", err)
	}
	if id.IsZero() {
		return id, domain.Errorf(domain.CodeInvalidRequest, "", "the nil UUID is no event's id")
	}
	return id, nil
}

func (d *appendBody) time() (time.Time, error) {
	text, err := d.word("")
	if err != nil {
		return time.Time{}, err
	}
	return parseTime(text)
}

// parseTime parses an RFC 3339 time.
func parseTime(text string) (time.Time, error) {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return at, domain.Errorf(domain.CodeInvalidRequest, "", "%q is not a time such as 2026-03-01T09:30:00Z", clip(text, 40))
	}
	at = at.UTC()
	return at, checkTime("", at)
}

// checkTime requires a year from 2 to 9999, because year 1 begins with the zero time, which means "none" here.
func checkTime(where string, at time.Time) error {
	if year := at.UTC().Year(); year < 2 || year > 9999 {
		return domain.Errorf(domain.CodeInvalidRequest, where, "%q is out of range; times lie in the years 2 to 9999", at.Format(time.RFC3339Nano))
	}
	return nil
}

func unknownField(name, known string) error {
	return domain.Errorf(domain.CodeInvalidRequest, "", "there is no field %q; there are %s", clip(name, 60), known)
}

// mend adds the place to an error that has none.
func (d *appendBody) mend(where string, err error) error {
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
