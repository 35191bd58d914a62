package api

import (
	"bytes"
	"encoding/json"
	"strconv"

	"github.com/manifold-es/manifold/domain"
)

// decodePublication decodes the body of a publish request: a message, or an array of messages. Like the bodies of
// appends, it is decoded in one pass according to the schemas Message and Publication of openapi.yaml.
func decodePublication(text []byte) (publication, error) {
	d := appendBody{text: text, scan: domain.NewJSONScanner(text)}
	start := bytes.TrimLeft(text, " \t\r\n")
	if len(start) > 0 && start[0] == '[' {
		messages, err := d.messages("messages")
		if err == nil {
			err = d.scan.End()
		}
		return publication{messages: messages}, d.mend("", err)
	}
	return d.one("")
}

// decodeMessage decodes one message; where is its place.
func decodeMessage(where string, text []byte) (publication, error) {
	d := appendBody{text: text, scan: domain.NewJSONScanner(text)}
	return d.one(where)
}

// one decodes the whole text as one message.
func (d *appendBody) one(where string) (publication, error) {
	message, at, err := d.message()
	if err == nil {
		err = d.scan.End()
	}
	p := publication{messages: []domain.Message{message}, single: true, where: where}
	if err == nil {
		return p, nil
	}
	at = p.place(0, at)
	if at == "" {
		at = "body"
	}
	return p, d.mend(at, err)
}

func (d *appendBody) messages(where string) ([]domain.Message, error) {
	var messages []domain.Message
	err := d.scan.Array(func(i int) error {
		if i == domain.MaxRequestEvents {
			return domain.Errorf(domain.CodeTooLarge, where, "the request has more than %d messages; split it", domain.MaxRequestEvents)
		}
		message, at, err := d.message()
		if err != nil {
			return d.mend(place(where+"["+strconv.Itoa(i)+"]", at), err)
		}
		messages = append(messages, message)
		return nil
	})
	if err == nil && len(messages) == 0 {
		err = domain.Errorf(domain.CodeInvalidRequest, where, "give at least one message")
	}
	return messages, d.mend(where, err)
}

// The fields of a message, as indexes of those given.
const (
	messageTopic = iota
	messageKey
	messagePayload
	messageID
	messageType
	messageTS
	messageHeaders // from here on, fields that become metadata, in this order
	messageTags
	messageCausedBy
	messageSID
	messageFields
)

// metadataNames are the metadata members for a message's fields, starting with messageHeaders.
var metadataNames = [...]string{`"headers":`, `"tags":`, `"caused_by":`, `"sid":`}

// message decodes a message. If it fails, at is the field that it was reading, or empty.
func (d *appendBody) message() (message domain.Message, at string, err error) {
	var given [messageFields]bool
	var metadata [len(metadataNames)]json.RawMessage
	err = d.scan.Object(func(name string) (err error) {
		field := messageField(name)
		if at = name; field < 0 {
			at = ""
			return unknownField(name, "topic, key, payload, id, type, headers, tags, caused_by, sid and ts")
		}
		if given[field] {
			return domain.Errorf(domain.CodeInvalidRequest, "", "%s is given twice", name)
		}
		given[field] = true
		switch field {
		case messageTopic:
			message.Topic, err = d.someWord()
		case messageKey:
			message.Key, err = d.someWord()
		case messagePayload:
			message.Payload, err = d.scan.Value()
		case messageID:
			message.ID, err = d.eventID()
		case messageType:
			message.Type, err = d.someWord()
		case messageTS:
			message.OccurredAt, err = d.time()
		default:
			metadata[field-messageHeaders], err = d.metadataField(field)
		}
		if err == nil {
			at = ""
		}
		return err
	})
	if err == nil {
		switch {
		case !given[messageTopic]:
			at, err = "topic", domain.Errorf(domain.CodeInvalidRequest, "", "required, but missing")
		case !given[messagePayload]:
			at, err = "payload", domain.Errorf(domain.CodeInvalidRequest, "", "required, but missing")
		}
	}
	message.Metadata = joinMetadata(&metadata)
	return message, at, err
}

// messageField returns the index of the field with a name, or -1.
func messageField(name string) int {
	switch name {
	case "topic":
		return messageTopic
	case "key":
		return messageKey
	case "payload":
		return messagePayload
	case "id":
		return messageID
	case "type":
		return messageType
	case "ts":
		return messageTS
	case "headers":
		return messageHeaders
	case "tags":
		return messageTags
	case "caused_by":
		return messageCausedBy
	case "sid":
		return messageSID
	}
	return -1
}

// someWord reads a string that is not empty.
func (d *appendBody) someWord() (string, error) {
	text, err := d.word("")
	if err == nil && text == "" {
		err = domain.Errorf(domain.CodeInvalidRequest, "", "it must not be empty")
	}
	return text, err
}

// metadataField reads a field that becomes metadata, and returns its JSON unchanged.
func (d *appendBody) metadataField(field int) (json.RawMessage, error) {
	raw, err := d.scan.Value()
	if err != nil {
		return nil, err
	}
	inner := appendBody{text: raw, scan: domain.NewJSONScanner(raw)}
	switch field {
	case messageHeaders:
		if raw[0] != '{' {
			return nil, domain.Errorf(domain.CodeInvalidRequest, "", "it must be an object whose values are strings")
		}
		err = inner.scan.Object(func(name string) error {
			_, err := inner.word("")
			if err != nil {
				err = domain.Errorf(domain.CodeInvalidRequest, "", "the value of %q must be a string", clip(name, 60))
			}
			return err
		})
	case messageTags:
		if raw[0] != '[' {
			return nil, domain.Errorf(domain.CodeInvalidRequest, "", "it must be an array of strings")
		}
		err = inner.scan.Array(func(i int) error {
			_, err := inner.word("")
			if err != nil {
				err = domain.Errorf(domain.CodeInvalidRequest, "", "element %d must be a string", i)
			}
			return err
		})
	case messageCausedBy:
		_, err = inner.eventID()
	case messageSID:
		var text string
		if text, err = inner.word(""); err == nil && (text == "" || len(text) > domain.MaxSIDBytes) {
			err = domain.Errorf(domain.CodeInvalidRequest, "", "it has %d bytes; it needs 1 to %d", len(text), domain.MaxSIDBytes)
		}
	}
	return raw, err
}

// joinMetadata builds the event's metadata from the given fields, or returns nil if there are none.
func joinMetadata(values *[len(metadataNames)]json.RawMessage) json.RawMessage {
	size := 0
	for i, value := range values {
		if value != nil {
			size += len(metadataNames[i]) + len(value) + 1
		}
	}
	if size == 0 {
		return nil
	}
	metadata := make(json.RawMessage, 0, size+1)
	separator := byte('{')
	for i, value := range values {
		if value != nil {
			metadata = append(append(append(metadata, separator), metadataNames[i]...), value...)
			separator = ','
		}
	}
	return append(metadata, '}')
}
