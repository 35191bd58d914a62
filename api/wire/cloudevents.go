package wire

import (
	"encoding/json"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
)

// CloudForm is the form of the CloudEvents in a request's body.
type CloudForm int

const (
	NoCloudEvents   CloudForm = iota // the body has no CloudEvents
	cloudStructured                  // one, as a JSON object
	cloudBatch                       // a JSON array of them
	cloudBinary                      // one, with its attributes as headers and its data as the body
)

// cloudTypes is the common prefix of the media types of bodies with CloudEvents.
const cloudTypes = "application/cloudevents"

// CloudFormOf determines the form of the body from the request's headers.
func CloudFormOf(header http.Header) (CloudForm, error) {
	given := header["Content-Type"]
	if len(given) == 1 && len(given[0]) >= len(cloudTypes) && strings.EqualFold(given[0][:len(cloudTypes)], cloudTypes) {
		name, parameters, err := mime.ParseMediaType(given[0])
		charset := strings.ToLower(parameters["charset"])
		switch {
		case err != nil || charset != "" && charset != "utf-8":
		case name == cloudevents.StructuredType:
			return cloudStructured, nil
		case name == cloudevents.BatchType:
			return cloudBatch, nil
		}
		return 0, domain.Errorf(problem.CodeUnsupportedMediaType, "Content-Type", "unsupported media type %q; send CloudEvents as %s or %s, in UTF-8, or in binary mode with %s headers",
			domain.Clip(given[0], 60), cloudevents.StructuredType, cloudevents.BatchType, "ce-")
	}
	if cloudevents.IsBinary(header) {
		return cloudBinary, nil
	}
	return NoCloudEvents, nil
}

// events decodes the CloudEvents of a request.
func (f CloudForm) events(header http.Header, body []byte) ([]cloudevents.Event, error) {
	if f == cloudBatch {
		return cloudevents.ParseBatch(body, domain.MaxRequestEvents)
	}
	var event cloudevents.Event
	var err error
	if f == cloudBinary {
		event, err = cloudevents.ParseBinary(header, body)
	} else {
		event, err = cloudevents.Parse(body)
	}
	return []cloudevents.Event{event}, err
}

// place returns the place in the request of an event's attribute or data.
func (f CloudForm) place(index int, name string) string {
	switch {
	case f == cloudBatch:
		return place(fmt.Sprintf("events[%d]", index), name)
	case f != cloudBinary:
		return name
	case name == "data":
		return "body"
	}
	return "ce-" + name
}

// NewEvents decodes the events that a request appends to a stream, in any form.
func (f CloudForm) NewEvents(header http.Header, stream string, body []byte) ([]domain.NewEvent, error) {
	if f == NoCloudEvents {
		return DecodeEvents(body)
	}
	received, err := f.events(header, body)
	if err != nil {
		return nil, err
	}
	events := make([]domain.NewEvent, len(received))
	for i := range received {
		if events[i], err = received[i].NewEvent(stream); err != nil {
			return nil, f.within(i, err)
		}
	}
	return events, nil
}

// within converts the place in an error, an attribute of one event, to a place in the request.
func (f CloudForm) within(index int, err error) error {
	if e, ok := err.(*domain.Error); ok {
		e.Where = f.place(index, e.Where)
	}
	return err
}

// PlaceInRequest converts the place in an error of the append to a place in a request with CloudEvents.
func (f CloudForm) PlaceInRequest(err error) error {
	e, ok := err.(*domain.Error)
	if !ok || f == NoCloudEvents {
		return err
	}
	return e.Placed(func(where string) string {
		inEvents, ok := strings.CutPrefix(strings.TrimPrefix(where, "streams[0]."), "events[")
		if !ok {
			return where
		}
		if index, field, ok := indexed(inEvents); ok {
			return f.place(index, field)
		}
		return where
	})
}

// publication decodes the CloudEvents that a request publishes. Topic and key come from the query, or else from type
// and subject.
func (f CloudForm) publication(request *http.Request, body []byte) (Publication, error) {
	query, err := url.ParseQuery(request.URL.RawQuery)
	if err != nil {
		return Publication{}, domain.Errorf(domain.CodeInvalidRequest, "query", "invalid query: %s", err)
	}
	for name, values := range query {
		if name != "topic" && name != "key" {
			return Publication{}, domain.Errorf(domain.CodeInvalidRequest, "query "+domain.Clip(name, 60), "unknown parameter; expected topic or key")
		}
		if len(values) > 1 {
			return Publication{}, domain.Errorf(domain.CodeInvalidRequest, "query "+name, "given %d times; give it once", len(values))
		}
	}
	p := CloudPublication{place: f.place, TopicPlace: "query topic", KeyPlace: "query key", TopicName: "?topic=", KeyName: "?key="}
	if query.Has("topic") {
		p.Topic = &query["topic"][0]
	}
	if query.Has("key") {
		p.Key = &query["key"][0]
	}
	if err := p.check(); err != nil {
		return Publication{}, err
	}
	received, err := f.events(request.Header, body)
	if err != nil {
		return Publication{}, err
	}
	return p.of(received)
}

// CloudPublication says where CloudEvents are published, and where their fields are in the request.
type CloudPublication struct {
	Topic, Key           *string // of all events; nil: each event's type and subject. An empty key means none
	TopicPlace, KeyPlace string
	TopicName, KeyName   string                              // as advice names them
	place                func(index int, name string) string // of an event's attribute or data
}

// check returns an error for an invalid topic.
func (p *CloudPublication) check() error {
	if p.Topic == nil {
		return nil
	}
	return domain.CheckCategory(p.TopicPlace, *p.Topic)
}

// of returns the publication of the CloudEvents.
func (p *CloudPublication) of(received []cloudevents.Event) (Publication, error) {
	messages := make([]domain.Message, len(received))
	var err error
	for i := range received {
		if messages[i], err = p.message(i, &received[i]); err != nil {
			return Publication{}, err
		}
	}
	return Publication{Messages: messages, placeOf: p.placeOf}, nil
}

// placeOf returns the place of a message's field.
func (p *CloudPublication) placeOf(index int, field string) string {
	switch {
	case field == "topic" && p.Topic != nil:
		return p.TopicPlace
	case field == "key" && p.Key != nil:
		return p.KeyPlace
	case field == "topic":
		field = "type"
	case field == "key":
		field = "subject"
	case field == "payload":
		field = "data"
	case field == "ts":
		field = "time"
	}
	return p.place(index, field)
}

// message converts one CloudEvent to a message.
func (p *CloudPublication) message(index int, event *cloudevents.Event) (domain.Message, error) {
	topic, key := event.Type, event.Subject
	if p.Topic != nil {
		topic = *p.Topic
	} else if err := domain.CheckCategory(p.place(index, "type"), topic); err != nil {
		return domain.Message{}, withAdvice(err, "; it is the topic, since "+p.TopicName+" is not given")
	}
	where, advice := p.place(index, "subject"), "; it is the key, since "+p.KeyName+" is not given, which may be empty for none"
	if p.Key != nil {
		key, where, advice = *p.Key, p.KeyPlace, ""
	}
	if key != "" {
		if err := domain.CheckStream(where, topic+"-"+key); err != nil {
			return domain.Message{}, withAdvice(err, advice)
		}
	}
	message, err := event.Message(topic, key)
	if e, ok := err.(*domain.Error); ok {
		e.Where = p.place(index, e.Where)
	}
	return message, err
}

// withAdvice appends advice to the message of an error.
func withAdvice(err error, advice string) error {
	if e, ok := err.(*domain.Error); ok {
		e.Message += advice
	}
	return err
}

// Read decodes either one structured CloudEvent, or several.
func (p *CloudPublication) Read(one, several json.RawMessage) (Publication, error) {
	if err := p.check(); err != nil {
		return Publication{}, err
	}
	var received []cloudevents.Event
	var err error
	if one != nil {
		p.place = func(_ int, name string) string { return place("message", name) }
		var event cloudevents.Event
		event, err = cloudevents.Parse(one)
		received = []cloudevents.Event{event}
	} else {
		p.place = func(index int, name string) string { return place("messages["+strconv.Itoa(index)+"]", name) }
		received, err = cloudevents.ParseBatch(several, domain.MaxRequestEvents)
	}
	if err != nil {
		return Publication{}, inCloudMessages(one != nil, err)
	}
	return p.of(received)
}

// inCloudMessages converts the place in an error about one CloudEvent, or about a batch, to its place in PUBLISH.
func inCloudMessages(single bool, err error) error {
	e, ok := err.(*domain.Error)
	switch {
	case !ok:
	case single:
		e.Where = place("message", strings.TrimPrefix(e.Where, "body"))
	case e.Where == "body":
		e.Where = "messages"
	default:
		e.Where = "messages" + strings.TrimPrefix(e.Where, "events")
	}
	return err
}
