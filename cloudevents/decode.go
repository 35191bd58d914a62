package cloudevents

import (
	"encoding/base64"
	"encoding/json"
	"strconv"

	"github.com/manifold-es/manifold/domain"
)

// Parse reads a structured CloudEvent, a JSON object. An error is a *domain.Error that names the attribute.
func Parse(body []byte) (Event, error) {
	scan := domain.NewJSONScanner(body)
	event, err := parse(scan, "")
	if err == nil {
		err = scan.End()
	}
	return event, withPlace(body, "body", err)
}

// ParseBatch reads a batch, a JSON array of 1 to limit CloudEvents. An error is a *domain.Error that names the event
// and the attribute: events[3].source.
func ParseBatch(body []byte, limit int) ([]Event, error) {
	var events []Event
	scan := domain.NewJSONScanner(body)
	at := "body"
	err := scan.Array(func(i int) error {
		if i >= limit {
			return domain.Errorf(domain.CodeTooLarge, "events", "the request has more than %d events; split it", limit)
		}
		at = "events[" + strconv.Itoa(i) + "]"
		event, err := parse(scan, at)
		if err != nil {
			return err
		}
		events = append(events, event)
		at = "body"
		return nil
	})
	if err == nil {
		err = scan.End()
	}
	if err == nil && len(events) == 0 {
		err = invalid("events", "give at least one event")
	}
	if err != nil {
		return nil, withPlace(body, at, err)
	}
	return events, nil
}

// parse reads one CloudEvent; at is its place in the request.
func parse(scan *domain.JSONScanner, at string) (Event, error) {
	place := func(name string) string {
		switch {
		case at == "" && name == "":
			return "body"
		case at == "":
			return domain.Clip(name, 60)
		case name == "":
			return at
		}
		return at + "." + domain.Clip(name, 60)
	}
	event := empty()
	var version, encoded json.RawMessage
	given := map[string]bool{}
	err := scan.Object(func(name string) error {
		if given[name] {
			return invalid(place(name), "it is given twice")
		}
		given[name] = true
		value, err := scan.Value()
		if err != nil {
			return err
		}
		switch name {
		case "specversion":
			version = value
			return nil
		case "data":
			event.form, event.data = jsonData, value
		case "data_base64":
			encoded = value
			return checkBase64(place(name), value)
		default:
			return event.set(place(name), name, value)
		}
		return nil
	})
	if err != nil {
		return event, err
	}
	if given["data"] && given["data_base64"] {
		return event, invalid(place("data_base64"), "data is there as well; give one of them")
	}
	if encoded != nil {
		data, _ := base64.StdEncoding.DecodeString(text(encoded)) // checkBase64 has validated it
		event.setBytes(data)
	}
	return event, event.complete(place, version)
}

// withPlace adds the place to a JSON error.
func withPlace(body []byte, where string, err error) error {
	if e, ok := err.(*domain.JSONError); ok {
		return e.Refusal(body, where)
	}
	return err
}
