package nats

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/delivery/egress"
)

// Config says where JetStream is, and how to connect. Only URLs is required.
type Config struct {
	URLs []string // nats://host:port, or tls://
	Name string   // of the connection, for people

	User, Password string
	Token          string
	Credentials    string      // a file created by nsc, with a JWT and its key
	TLS            *tls.Config // nil: as the URLs and the server require

	Log *slog.Logger
}

// Timing and limits of publishing.
const (
	connectTimeout = 5 * time.Second
	ackTimeout     = 5 * time.Second // of one message
	pingTimeout    = 2 * time.Second
	reconnectWait  = time.Second
	atOnce         = 64 // messages in flight in one Publish, each with another key
)

// Alphabet describes the characters allowed in tokens of a subject.
var Alphabet = egress.Alphabet{
	Allowed: func(c byte) bool { return c > ' ' && c < 0x7f && !strings.ContainsRune(".*>%", rune(c)) },
	Escape:  '%',
	// Most is longer than any result of the longest names, and shorter than the maximum line of a server. A truncated
	// subject could end with a dot.
	Most:     3000,
	Reserved: reserved,
}

// reserved reports whether a subject belongs to NATS itself.
func reserved(subject string) bool {
	return strings.HasPrefix(subject, "$") || strings.HasPrefix(subject, "_INBOX.")
}

// CheckSubject returns what is wrong with the template of a subject.
func CheckSubject(template string) error {
	if err := egress.CheckTemplate(template); err != nil {
		return err
	}
	for token := range strings.SplitSeq(template, ".") {
		switch {
		case token == "":
			return fmt.Errorf("%q has an empty part between its dots", template)
		case strings.ContainsAny(token, " \t\r\n*>"):
			return fmt.Errorf("%q has a blank, * or >, which a subject to publish to may not have", template)
		}
	}
	if reserved(template) {
		return fmt.Errorf("%q is a subject of NATS itself", template)
	}
	return nil
}

// Broker publishes to JetStream. It implements egress.Broker.
type Broker struct {
	conn *nats.Conn
	js   jetstream.JetStream

	mu   sync.Mutex
	lost chan struct{} // closed when the current connection is lost
}

// Open returns a Broker. If the server does not answer, Open still succeeds, and the Broker connects as soon as
// possible. Open returns an error for settings that cannot work.
func Open(config Config) (*Broker, error) {
	b := &Broker{lost: make(chan struct{})}
	options := []nats.Option{
		nats.Name(config.Name), nats.Timeout(connectTimeout), nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait),
		// A refused login may be created, or changed back, at any time. By default, the client would give up at the
		// second refusal.
		nats.IgnoreAuthErrorAbort(),
		// The client does not buffer what it cannot send now, because the log has it.
		nats.ReconnectBufSize(-1),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}),
	}
	log := config.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	options = append(options,
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			log.Debug("the connection with NATS was lost", "error", err)
			b.disconnected()
		}),
		nats.ReconnectHandler(func(*nats.Conn) { log.Debug("connected with NATS again") }),
	)
	if config.User != "" {
		options = append(options, nats.UserInfo(config.User, config.Password))
	}
	if config.Token != "" {
		options = append(options, nats.Token(config.Token))
	}
	if config.Credentials != "" {
		options = append(options, nats.UserCredentials(config.Credentials))
	}
	if config.TLS != nil {
		options = append(options, nats.Secure(config.TLS))
	}
	conn, err := nats.Connect(strings.Join(config.URLs, ","), options...)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	b.conn, b.js = conn, js
	return b, nil
}

// disconnected cancels waits for responses that will no longer come.
func (b *Broker) disconnected() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.lost)
	b.lost = make(chan struct{})
}

// Close implements egress.Broker.
func (b *Broker) Close() { b.conn.Close() }

// Publish implements egress.Broker. It has one message in flight per key. Otherwise a later message could be stored
// although an earlier one was not.
func (b *Broker) Publish(ctx context.Context, messages []egress.Message) []error {
	errs := make([]error, len(messages))
	lanes := make(map[string][]int)
	var order []string
	for i := range messages {
		key := messages[i].Key
		if lanes[key] == nil {
			order = append(order, key)
		}
		lanes[key] = append(lanes[key], i)
	}
	b.mu.Lock()
	lost := b.lost
	b.mu.Unlock()
	ctx, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer stop(nil)
	watching.Go(func() {
		select {
		case <-lost: // messages in flight will get no response
			stop(unreachable(nats.ErrConnectionClosed))
		case <-ctx.Done():
		}
	})
	room := make(chan struct{}, atOnce)
	var sending sync.WaitGroup
	for _, key := range order {
		room <- struct{}{}
		sending.Go(func() {
			defer func() { <-room }()
			b.publishLane(ctx, stop, messages, errs, lanes[key])
		})
	}
	sending.Wait()
	return errs
}

// publishLane publishes the messages of one key, one after another.
func (b *Broker) publishLane(ctx context.Context, stop context.CancelCauseFunc, messages []egress.Message, errs []error, lane []int) {
	for n, i := range lane {
		err := b.publish(ctx, &messages[i])
		errs[i] = err
		if err == nil || errors.Is(err, egress.ErrRefused) {
			continue
		}
		if errors.Is(err, egress.ErrUnreachable) {
			stop(err) // it will not answer the others either
		}
		for _, behind := range lane[n+1:] {
			errs[behind] = egress.ErrHeldBack
		}
		return
	}
}

func (b *Broker) publish(ctx context.Context, m *egress.Message) error {
	if ctx.Err() != nil {
		return unreachable(context.Cause(ctx))
	}
	if !b.conn.IsConnected() {
		return unreachable(cmp.Or(b.conn.LastError(), nats.ErrNoServers))
	}
	limited, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	_, err := b.js.PublishMsg(limited, message(m))
	if (limited.Err() != nil && ctx.Err() == nil || errors.Is(err, jetstream.ErrInvalidJSAck)) && b.answers(ctx) {
		return fmt.Errorf("no JetStream stream acknowledges a message of the subject %q: %w", m.Topic, err)
	}
	return classify(m, err)
}

// answers reports whether the server answers. If it does, a missing response concerns only the subject: something other
// than a stream may be subscribed to it.
func (b *Broker) answers(ctx context.Context) bool {
	limited, cancel := context.WithTimeout(ctx, pingTimeout)
	defer cancel()
	return b.conn.FlushWithContext(limited) == nil
}

// message converts a message to a NATS message.
func message(m *egress.Message) *nats.Msg {
	// Write the names as in the specification, because NATS is case-sensitive.
	header := nats.Header{jetstream.MsgIDHeader: []string{m.ID}}
	for _, attribute := range m.Attributes {
		header["ce-"+attribute.Name] = []string{cloudevents.HeaderValue(attribute.Value)}
	}
	if m.ContentType != "" {
		header["content-type"] = []string{m.ContentType}
	}
	if m.Traceparent != "" {
		header["traceparent"] = []string{m.Traceparent}
	}
	return &nats.Msg{Subject: m.Topic, Header: header, Data: m.Data}
}

// headerExceedsMaximum is the server's error code JSStreamHeaderExceedsMaximumErr.
const headerExceedsMaximum jetstream.ErrorCode = 10097

// classify converts an error of JetStream.
func classify(m *egress.Message, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, nats.ErrMaxPayload) {
		return fmt.Errorf("%w: it is larger than NATS accepts: %w", egress.ErrRefused, err)
	}
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		if slices.Contains([]jetstream.ErrorCode{jetstream.JSErrCodeStreamMessageExceedsMaximum, headerExceedsMaximum}, api.ErrorCode) {
			return fmt.Errorf("%w: it is larger than the stream accepts: %w", egress.ErrRefused, err)
		}
		return fmt.Errorf("JetStream does not store a message of the subject %q: %w", m.Topic, err)
	}
	if errors.Is(err, jetstream.ErrNoStreamResponse) {
		return fmt.Errorf("no JetStream stream has the subject %q, or it has no leader", m.Topic)
	}
	return unreachable(err)
}

func unreachable(err error) error {
	if err == nil || errors.Is(err, egress.ErrUnreachable) {
		return cmp.Or(err, egress.ErrUnreachable)
	}
	return fmt.Errorf("%w: NATS: %w", egress.ErrUnreachable, err)
}
