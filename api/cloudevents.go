package api

import (
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
)

// cloudForm is the form of the CloudEvents in a request's body.
type cloudForm int

const (
	noCloudEvents   cloudForm = iota // the body has no CloudEvents
	cloudStructured                  // one, as a JSON object
	cloudBatch                       // a JSON array of them
	cloudBinary                      // one, with its attributes as headers and its data as the body
)

// cloudTypes is the common prefix of the media types of bodies with CloudEvents.
const cloudTypes = "application/cloudevents"

// cloudFormOf determines the form of the body from the request's headers.
func cloudFormOf(header http.Header) (cloudForm, error) {
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
		return 0, domain.Errorf(codeUnsupportedMediaType, "Content-Type", "unsupported media type %q; send CloudEvents as %s or %s, in UTF-8, or in binary mode with %s headers",
			clip(given[0], 60), cloudevents.StructuredType, cloudevents.BatchType, "ce-")
	}
	if cloudevents.IsBinary(header) {
		return cloudBinary, nil
	}
	return noCloudEvents, nil
}

// events decodes the CloudEvents of a request.
func (f cloudForm) events(header http.Header, body []byte) ([]cloudevents.Event, error) {
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
func (f cloudForm) place(index int, name string) string {
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

// newEvents decodes the events that a request appends to a stream, in any form.
func (f cloudForm) newEvents(header http.Header, stream string, body []byte) ([]domain.NewEvent, error) {
	if f == noCloudEvents {
		return decodeEvents(body)
	}
	came, err := f.events(header, body)
	if err != nil {
		return nil, err
	}
	events := make([]domain.NewEvent, len(came))
	for i := range came {
		if events[i], err = came[i].NewEvent(stream); err != nil {
			return nil, f.within(i, err)
		}
	}
	return events, nil
}

// within converts the place in an error, an attribute of one event, to a place in the request.
func (f cloudForm) within(index int, err error) error {
	if e, ok := err.(*domain.Error); ok {
		e.Where = f.place(index, e.Where)
	}
	return err
}

// asked converts the place in an error of the append to a place in a request with CloudEvents.
func (f cloudForm) asked(err error) error {
	e, ok := err.(*domain.Error)
	if !ok || f == noCloudEvents {
		return err
	}
	inEvents, ok := strings.CutPrefix(strings.TrimPrefix(e.Where, "streams[0]."), "events[")
	if !ok {
		return err
	}
	index, field, ok := indexed(inEvents)
	if !ok {
		return err
	}
	placed := *e
	placed.Where = f.place(index, field)
	return &placed
}

// publication decodes the CloudEvents that a request publishes. Topic and key come from the query, or else from type
// and subject.
func (f cloudForm) publication(request *http.Request, body []byte) (publication, error) {
	query, err := url.ParseQuery(request.URL.RawQuery)
	if err != nil {
		return publication{}, domain.Errorf(domain.CodeInvalidRequest, "query", "it cannot be read: %s", err)
	}
	for name, values := range query {
		if name != "topic" && name != "key" {
			return publication{}, domain.Errorf(domain.CodeInvalidRequest, "query "+clip(name, 60), "there is no such parameter here; there are topic and key")
		}
		if len(values) > 1 {
			return publication{}, domain.Errorf(domain.CodeInvalidRequest, "query "+name, "it is given %d times; give it once", len(values))
		}
	}
	p := cloudPublication{place: f.place, topicPlace: "query topic", keyPlace: "query key", topicName: "?topic=", keyName: "?key="}
	if query.Has("topic") {
		p.topic = &query["topic"][0]
	}
	if query.Has("key") {
		p.key = &query["key"][0]
	}
	if err := p.check(); err != nil {
		return publication{}, err
	}
	came, err := f.events(request.Header, body)
	if err != nil {
		return publication{}, err
	}
	return p.of(came)
}

// cloudPublication says where CloudEvents are published, and where their fields are in the request.
type cloudPublication struct {
	topic, key           *string // of all events; nil: each event's type and subject. An empty key means none
	topicPlace, keyPlace string
	topicName, keyName   string                              // as advice names them
	place                func(index int, name string) string // of an event's attribute or data
}

// check returns an error for an invalid topic.
func (p *cloudPublication) check() error {
	if p.topic == nil {
		return nil
	}
	return domain.CheckCategory(p.topicPlace, *p.topic)
}

// of returns the publication of the CloudEvents.
func (p *cloudPublication) of(came []cloudevents.Event) (publication, error) {
	messages := make([]domain.Message, len(came))
	var err error
	for i := range came {
		if messages[i], err = p.message(i, &came[i]); err != nil {
			return publication{}, err
		}
	}
	return publication{messages: messages, placeOf: p.placeOf}, nil
}

// placeOf returns the place of a message's field.
func (p *cloudPublication) placeOf(index int, field string) string {
	switch {
	case field == "topic" && p.topic != nil:
		return p.topicPlace
	case field == "key" && p.key != nil:
		return p.keyPlace
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
func (p *cloudPublication) message(index int, event *cloudevents.Event) (domain.Message, error) {
	topic, key := event.Type, event.Subject
	if p.topic != nil {
		topic = *p.topic
	} else if err := domain.CheckCategory(p.place(index, "type"), topic); err != nil {
		return domain.Message{}, withAdvice(err, "; it is the topic, since "+p.topicName+" is not given")
	}
	where, advice := p.place(index, "subject"), "; it is the key, since "+p.keyName+" is not given, which may be empty for none"
	if p.key != nil {
		key, where, advice = *p.key, p.keyPlace, ""
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
