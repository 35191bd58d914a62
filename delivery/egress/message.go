package egress

import (
	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
)

// Message is an event in the form that brokers accept.
type Message struct {
	// ID is the same each time the message is published, and unique among the messages of all egresses. It consists of
	// the egress's name, the tenant and the event's id.
	ID    string
	Topic string // NATS: the subject
	// Key is the tenant and the stream. Messages with the same key keep their order.
	Key string
	// ContentType is the media type of Data. It is empty if there is no data.
	ContentType string
	Attributes  []Attribute
	// Traceparent is W3C's trace context of the publishing. It is empty if the event's trace is unknown.
	Traceparent string
	Data        []byte // must not be changed
}

// Attribute is a CloudEvents attribute with its plain name and value. A broker's protocol defines how they are encoded.
type Attribute struct{ Name, Value string }

// AttributeTenant is the extension attribute with the event's tenant.
const AttributeTenant = "manifoldtenant"

// message converts an event to a message.
func (e *Egress) message(encoder *cloudevents.Encoder, tenant domain.TenantID, event *domain.Event) Message {
	m := Message{
		ID:    e.config.Name + "/" + tenant.String() + "/" + event.ID.String(),
		Topic: e.topic.text(tenant, event),
		Key:   tenant.String() + "/" + event.Stream,
	}
	m.ContentType, m.Data = encoder.Binary(event, func(name, value string) {
		m.Attributes = append(m.Attributes, Attribute{name, value})
	})
	m.Attributes = append(m.Attributes, Attribute{AttributeTenant, tenant.String()})
	return m
}
