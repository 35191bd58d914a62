package egress

import (
	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
)

// Message is an event as a broker takes it.
type Message struct {
	// ID is the same whenever the message is published again, and no other message of any egress has it: the egress's name, the
	// tenant and the event's id.
	ID    string
	Topic string // NATS: the subject
	// Key is the tenant and the stream. Messages with the same key keep their order.
	Key string
	// ContentType is that of Data; empty where there is neither.
	ContentType string
	Attributes  []Attribute
	Data        []byte // must not be changed
}

// Attribute is one of a CloudEvent's attributes, by its name and value as they are: a broker's protocol says how they are written.
type Attribute struct{ Name, Value string }

// AttributeTenant is the extension that says whose an event is.
const AttributeTenant = "manifoldtenant"

// message makes a message of an event.
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
