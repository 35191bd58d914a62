package wire

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"

	"github.com/manifold-es/manifold/domain"
)

// DecodePublication decodes the body of a publish request: a message, or an array of messages. Like the bodies of
// appends, it is decoded in one pass according to the schemas Message and Publication of openapi.yaml.
func DecodePublication(text []byte) (Publication, error) {
	d := bodyReader{text: text, scan: domain.NewJSONScanner(text)}
	start := bytes.TrimLeft(text, " \t\r\n")
	if len(start) > 0 && start[0] == '[' {
		messages, err := d.readMessages("messages")
		if err == nil {
			err = d.scan.End()
		}
		return Publication{Messages: messages}, d.withPlace("", err)
	}
	return d.readPublication("")
}

// DecodeMessage decodes one message; where is its place.
func DecodeMessage(where string, text []byte) (Publication, error) {
	d := bodyReader{text: text, scan: domain.NewJSONScanner(text)}
	return d.readPublication(where)
}

// readPublication decodes the whole text as one message.
func (d *bodyReader) readPublication(where string) (Publication, error) {
	message, at, err := d.readMessage()
	if err == nil {
		err = d.scan.End()
	}
	p := Publication{Messages: []domain.Message{message}, Single: true, Where: where}
	if err == nil {
		return p, nil
	}
	at = p.place(0, at)
	if at == "" {
		at = "body"
	}
	return p, d.withPlace(at, err)
}

func (d *bodyReader) readMessages(where string) ([]domain.Message, error) {
	var messages []domain.Message
	err := d.scan.Array(func(i int) error {
		if i == domain.MaxRequestEvents {
			return domain.Errorf(domain.CodeTooLarge, where, "the request has more than %d messages; split it", domain.MaxRequestEvents)
		}
		message, at, err := d.readMessage()
		if err != nil {
			return d.withPlace(place(where+"["+strconv.Itoa(i)+"]", at), err)
		}
		messages = append(messages, message)
		return nil
	})
	if err == nil && len(messages) == 0 {
		err = domain.Errorf(domain.CodeInvalidRequest, where, "give at least one message")
	}
	return messages, d.withPlace(where, err)
}

// messageFields are the fields of a message. The first two are required, and the last four become metadata. The tags
// are in the metadata as well as the event's, as they were before events had tags, and the causes are tags as well.
var messageFields = []string{"topic", "payload", "key", "id", "type", "ts", "headers", "tags", "caused_by", "sid"}

// metadataAt is the index of the first field that becomes metadata.
const metadataAt = 6

// messageMetadata has the values of a message's fields from metadataAt on.
type messageMetadata [4]json.RawMessage

// readMessage decodes a message. If it fails, at is the field that it was reading, or empty.
func (d *bodyReader) readMessage() (message domain.Message, at string, err error) {
	var metadata messageMetadata
	var causes []domain.EventID
	given, at, err := d.readObject(messageFields, func(name string) (err error) {
		switch name {
		case "topic":
			message.Topic, err = d.readNonEmpty()
		case "key":
			message.Key, err = d.readNonEmpty()
		case "payload":
			message.Payload, err = d.scan.Value()
		case "id":
			message.ID, err = d.readID()
		case "type":
			message.Type, err = d.readNonEmpty()
		case "ts":
			message.OccurredAt, err = d.readTime()
		default:
			var raw json.RawMessage
			raw, err = d.readMetadata(name)
			inner := bodyReader{text: raw, scan: domain.NewJSONScanner(raw)}
			switch {
			case err != nil:
			case name == "tags":
				message.Tags, err = inner.readTags()
			case name == "caused_by":
				if causes, err = inner.readCauses(); len(causes) == 1 {
					raw = bytes.Trim(raw, "[ \t\r\n]") // readers of the metadata find one cause as a string
				}
			}
			metadata[slices.Index(messageFields[metadataAt:], name)] = raw
		}
		return err
	})
	if err == nil {
		if at = given.missing(messageFields[:2]); at != "" {
			err = domain.Errorf(domain.CodeInvalidRequest, "", "required, but missing")
		}
	}
	if err == nil {
		if message.Tags, err = domain.TagCauses("", message.Tags, causes...); err != nil {
			at = "caused_by"
		}
	}
	message.Metadata = metadata.join()
	return message, at, err
}

// readNonEmpty reads a string that is not empty.
func (d *bodyReader) readNonEmpty() (string, error) {
	text, err := d.readString("")
	if err == nil && text == "" {
		err = domain.Errorf(domain.CodeInvalidRequest, "", "it must not be empty")
	}
	return text, err
}

// readMetadata reads a field that becomes metadata, and returns its JSON unchanged.
func (d *bodyReader) readMetadata(field string) (json.RawMessage, error) {
	raw, err := d.scan.Value()
	if err != nil {
		return nil, err
	}
	inner := bodyReader{text: raw, scan: domain.NewJSONScanner(raw)}
	switch field {
	case "headers":
		if raw[0] != '{' {
			return nil, domain.Errorf(domain.CodeInvalidRequest, "", "it must be an object whose values are strings")
		}
		err = inner.scan.Object(func(name string) error {
			_, err := inner.readString("")
			if err != nil {
				err = domain.Errorf(domain.CodeInvalidRequest, "", "the value of %q must be a string", domain.Clip(name, 60))
			}
			return err
		})
	case "tags":
		if raw[0] != '[' {
			return nil, domain.Errorf(domain.CodeInvalidRequest, "", "it must be an array of strings")
		}
		err = inner.scan.Array(func(i int) error {
			_, err := inner.readString("")
			if err != nil {
				err = domain.Errorf(domain.CodeInvalidRequest, "", "element %d must be a string", i)
			}
			return err
		})
	case "sid":
		var text string
		if text, err = inner.readString(""); err == nil && (text == "" || len(text) > domain.MaxSIDBytes) {
			err = domain.Errorf(domain.CodeInvalidRequest, "", "it has %d bytes; it needs 1 to %d", len(text), domain.MaxSIDBytes)
		}
	}
	return raw, err
}

// readCauses reads the id of an event, or an array of ids.
func (d *bodyReader) readCauses() (causes []domain.EventID, err error) {
	read := func() error {
		id, err := d.readID()
		causes = append(causes, id)
		return err
	}
	if d.text[0] != '[' {
		err = read()
		return causes, err
	}
	err = d.scan.Array(func(i int) error {
		if i == domain.MaxTags {
			return domain.Errorf(domain.CodeTooLarge, "", "there are more than %d causes", domain.MaxTags)
		}
		return read()
	})
	if err == nil && len(causes) == 0 {
		err = domain.Errorf(domain.CodeInvalidRequest, "", "give at least one cause, or leave the field out")
	}
	return causes, err
}

// join builds the event's metadata, or returns nil if there is none.
func (m *messageMetadata) join() json.RawMessage {
	size := 0
	for i, value := range m {
		if value != nil {
			size += len(messageFields[metadataAt+i]) + len(value) + len(`,"":`)
		}
	}
	if size == 0 {
		return nil
	}
	metadata := make(json.RawMessage, 0, size+len("}"))
	separator := byte('{')
	for i, value := range m {
		if value != nil {
			metadata = append(append(append(metadata, separator, '"'), messageFields[metadataAt+i]...), `":`...)
			metadata = append(metadata, value...)
			separator = ','
		}
	}
	return append(metadata, '}')
}
