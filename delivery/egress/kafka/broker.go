package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/manifold-es/manifold/delivery/egress"
)

// The supported ways to log in.
const (
	Plain       = "plain"
	ScramSHA256 = "scram-sha-256"
	ScramSHA512 = "scram-sha-512"
)

// Config says where Kafka is, and how to connect. Only Brokers is required.
type Config struct {
	Brokers []string // host:port
	Name    string   // of the client, for people

	SASL           string // one of the ways to log in; empty: none
	User, Password string
	TLS            *tls.Config // nil: none

	// MessageBytes is the maximum size of a batch of records, and so of a message. It should not exceed what the
	// brokers and topics accept. 0 means DefaultMessageBytes.
	MessageBytes int
	Timeout      time.Duration // of a message, from when the client receives it; 0: DefaultTimeout
}

// DefaultTimeout is the default of Config.Timeout.
const DefaultTimeout = 8 * time.Second

// DefaultMessageBytes is what brokers accept by default.
const DefaultMessageBytes = 1_000_012

// Timing and limits of publishing.
const (
	linger          = 20 * time.Millisecond
	pingTimeout     = 2 * time.Second
	unknownTopics   = 3       // responses that a topic is unknown before it is considered missing
	bufferedRecords = 100_000 // of all tenants together, each with at most one batch
	recordBytes     = 128     // approximate size of a record besides its key, value and headers
)

// HeaderID is the header with a message's id.
const HeaderID = "manifold_message_id"

// headerTraceparent is the header with the trace context, as instrumented clients read it.
const headerTraceparent = "traceparent"

// Alphabet describes the characters allowed in names of topics.
var Alphabet = egress.Alphabet{
	Allowed: func(c byte) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '.' || c == '_' || c == '-'
	},
	Escape: '_',
	Most:   249,
	// A category named like one of Kafka's internal topics must not stop the events of others.
	Reserved: func(name string) bool { return name == "." || name == ".." || strings.HasPrefix(name, "__") },
}

// CheckTopic returns what is wrong with the template of a topic.
func CheckTopic(template string) error {
	if err := egress.CheckTemplate(template); err != nil {
		return err
	}
	inside := false
	for i := range len(template) {
		switch c := template[i]; {
		case c == '{':
			inside = true
		case c == '}':
			inside = false
		case !inside && !Alphabet.Allowed(c):
			return fmt.Errorf("%q has %q; a topic has letters, digits, dots, - and _", template, c)
		}
	}
	if Alphabet.Reserved(template) {
		return fmt.Errorf("%q is no topic", template)
	}
	return nil
}

// Broker publishes to Kafka. It implements egress.Broker.
type Broker struct {
	client *kgo.Client
	chunk  int // bytes produced together
}

// Open returns a Broker, even if Kafka does not answer. It returns an error for settings that cannot work.
func Open(config Config) (*Broker, error) {
	if config.MessageBytes == 0 {
		config.MessageBytes = DefaultMessageBytes
	}
	if config.Timeout == 0 {
		config.Timeout = DefaultTimeout
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(config.Brokers...),
		kgo.ClientID(config.Name),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchMaxBytes(int32(config.MessageBytes)),
		kgo.BrokerMaxWriteBytes(int32(max(config.MessageBytes, 100<<20))),
		kgo.MaxBufferedRecords(bufferedRecords),
		// Records produced together are sent together, and at once; see Publish.
		kgo.ProducerLinger(linger),
		// Producing is idempotent, so records are stored in order without gaps. If an outcome is not known in time, it
		// counts as a failure, and the message is published again with its id.
		kgo.RecordDeliveryTimeout(config.Timeout),
		kgo.AllowIdempotentProduceCancellation(),
		kgo.UnknownTopicRetries(unknownTopics),
	}
	if config.TLS != nil {
		options = append(options, kgo.DialTLSConfig(config.TLS))
	}
	switch config.SASL {
	case "":
	case Plain:
		options = append(options, kgo.SASL(plain.Auth{User: config.User, Pass: config.Password}.AsMechanism()))
	case ScramSHA256:
		options = append(options, kgo.SASL(scram.Auth{User: config.User, Pass: config.Password}.AsSha256Mechanism()))
	case ScramSHA512:
		options = append(options, kgo.SASL(scram.Auth{User: config.User, Pass: config.Password}.AsSha512Mechanism()))
	default:
		return nil, fmt.Errorf("unknown login mechanism %q; use %s, %s or %s", config.SASL, Plain, ScramSHA256, ScramSHA512)
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	return &Broker{client: client, chunk: config.MessageBytes * 9 / 10}, nil
}

// Close implements egress.Broker.
func (b *Broker) Close() { b.client.Close() }

// Publish implements egress.Broker. It produces messages in chunks, one after another. Each chunk is so small that its
// records for a partition fit into one batch, which is stored entirely or not at all. So no message is stored after one
// that was not.
func (b *Broker) Publish(ctx context.Context, messages []egress.Message) []error {
	errs := make([]error, len(messages))
	for from := 0; from < len(messages); {
		to, bytes := from, 0
		for to < len(messages) && (to == from || bytes+size(&messages[to]) <= b.chunk) {
			bytes += size(&messages[to])
			to++
		}
		if !b.produce(ctx, messages[from:to], errs[from:to]) {
			for i := to; i < len(messages); i++ {
				errs[i] = egress.ErrHeldBack
			}
			break
		}
		from = to
	}
	return errs
}

// produce produces a chunk, and reports whether all of it is stored or refused.
func (b *Broker) produce(ctx context.Context, messages []egress.Message, errs []error) bool {
	records := make([]*kgo.Record, len(messages))
	index := make(map[*kgo.Record]int, len(messages))
	for i := range messages {
		records[i] = record(&messages[i])
		index[records[i]] = i
	}
	tooLarge, failed := 0, false
	for _, result := range b.client.ProduceSync(ctx, records...) {
		errs[index[result.Record]] = result.Err
		if errors.Is(result.Err, kerr.MessageTooLarge) || errors.Is(result.Err, kerr.RecordListTooLarge) {
			tooLarge++
		} else if result.Err != nil {
			failed = true
		}
	}
	if tooLarge > 0 && len(messages) > 1 {
		return b.apart(ctx, messages, errs)
	}
	var unreachable error
	for i, err := range errs {
		if err == nil {
			continue
		}
		if tooLarge > 0 {
			errs[i] = fmt.Errorf("%w: it is larger than Kafka accepts: %w", egress.ErrRefused, err)
			continue
		}
		errs[i] = b.classify(ctx, &messages[i], err, &unreachable)
	}
	return !failed
}

// apart produces the messages of a chunk that were not stored one by one. This happens if the brokers accept less than
// a batch, or if one of the messages is too large.
func (b *Broker) apart(ctx context.Context, messages []egress.Message, errs []error) bool {
	held := make(map[string]bool)
	ok := true
	for i := range messages {
		switch {
		case errs[i] == nil:
		case held[messages[i].Key]:
			errs[i] = egress.ErrHeldBack
		case !b.produce(ctx, messages[i:i+1], errs[i:i+1]):
			held[messages[i].Key], ok = true, false
		}
	}
	return ok
}

// classify converts an error of the client. unreachable caches what was found out about the brokers.
func (b *Broker) classify(ctx context.Context, m *egress.Message, err error, unreachable *error) error {
	if broker, ok := errors.AsType[*kerr.Error](err); ok {
		return fmt.Errorf("the topic %q of Kafka does not take a record: %w", m.Topic, broker)
	}
	if *unreachable == nil {
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
		defer cancel()
		if b.client.Ping(limited) == nil && ctx.Err() == nil {
			*unreachable = errors.New("the partition's leader does not answer")
		} else {
			*unreachable = egress.ErrUnreachable
		}
	}
	return fmt.Errorf("%w: Kafka, topic %q: %w", *unreachable, m.Topic, err)
}

// record converts a message to a Kafka record.
func record(m *egress.Message) *kgo.Record {
	r := &kgo.Record{Topic: m.Topic, Key: []byte(m.Key), Value: m.Data, Headers: make([]kgo.RecordHeader, 0, len(m.Attributes)+3)}
	for _, attribute := range m.Attributes {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "ce_" + attribute.Name, Value: []byte(attribute.Value)})
	}
	if m.ContentType != "" {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: "content-type", Value: []byte(m.ContentType)})
	}
	if m.Traceparent != "" {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: headerTraceparent, Value: []byte(m.Traceparent)})
	}
	r.Headers = append(r.Headers, kgo.RecordHeader{Key: HeaderID, Value: []byte(m.ID)})
	return r
}

// size returns the maximum size of a message as a record.
func size(m *egress.Message) int {
	n := recordBytes + len(m.Key) + len(m.Data) + len(m.ID) + 16 + len(headerTraceparent) + len(m.Traceparent)
	for _, attribute := range m.Attributes {
		n += 16 + len(attribute.Name) + len(attribute.Value)
	}
	return n
}
