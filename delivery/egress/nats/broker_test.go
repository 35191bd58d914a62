package nats_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/manifold-es/manifold/delivery/egress"
	"github.com/manifold-es/manifold/delivery/egress/egresstest"
	"github.com/manifold-es/manifold/delivery/egress/nats"
)

func TestKills(t *testing.T) {
	t.Parallel()
	for name, window := range map[string]time.Duration{"duplicates left out": 2 * time.Minute, "duplicates kept": 100 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			egresstest.TestKills(t, newServer(t, nil, jetstream.StreamConfig{Duplicates: window}))
		})
	}
}

const someTraceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// message returns a message with a key and with its number as id.
func message(n int, key, data string) egress.Message {
	return egress.Message{
		ID: fmt.Sprint("m", n), Topic: "out.a", Key: key, ContentType: "application/json", Traceparent: someTraceparent,
		Attributes: []egress.Attribute{{Name: "id", Value: fmt.Sprint(n)}, {Name: "subject", Value: "a b\"ü%"}}, Data: []byte(data),
	}
}

func TestMessagesAreCloudEvents(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil, jetstream.StreamConfig{})
	b := s.Open(t)
	defer b.Close()
	if errs := b.Publish(t.Context(), []egress.Message{message(1, "k", `{"n": 1}`), message(1, "k", `{"n": 1}`)}); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	all := s.messages(t)
	if len(all) != 1 {
		t.Fatalf("%d messages are stored; the second is the first again", len(all))
	}
	m := all[0]
	for name, want := range map[string]string{
		jetstream.MsgIDHeader: "m1", "ce-id": "1", "ce-subject": "a%20b%22%C3%BC%25", "content-type": "application/json", "traceparent": someTraceparent,
	} {
		if got := m.Headers()[name]; len(got) != 1 || got[0] != want {
			t.Errorf("the header %s is %q; want %q", name, got, want)
		}
	}
	if m.Subject() != "out.a" || string(m.Data()) != `{"n": 1}` {
		t.Errorf("it is %s: %s", m.Subject(), m.Data())
	}
}

func TestTooLargeMessageIsRefused(t *testing.T) {
	t.Parallel()
	s := newServer(t, func(s *natsServer) { s.options.MaxPayload = 20_000 }, jetstream.StreamConfig{MaxMsgSize: 10_000})
	b := s.Open(t)
	defer b.Close()
	for name, size := range map[string]int{"of the stream": 12_000, "of the server": 30_000} {
		messages := []egress.Message{message(1, name, "1"), message(2, name, strings.Repeat("x", size)), message(3, name, "3")}
		for i := range messages {
			messages[i].ID += name
		}
		errs := b.Publish(t.Context(), messages)
		if errs[0] != nil || !errors.Is(errs[1], egress.ErrRefused) || errs[2] != nil {
			t.Errorf("%s: %v", name, errs)
		}
	}
	if all := s.messages(t); len(all) != 4 {
		t.Errorf("%d messages are stored", len(all))
	}
}

// A subject without a stream affects only its messages and later ones with the same keys.
func TestSubjectWithoutStream(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil, jetstream.StreamConfig{})
	b := s.Open(t)
	defer b.Close()
	lost := message(1, "a", "1")
	lost.Topic = "elsewhere"
	errs := b.Publish(t.Context(), []egress.Message{lost, message(2, "b", "2"), message(3, "a", "3")})
	if errs[0] == nil || errors.Is(errs[0], egress.ErrUnreachable) || errors.Is(errs[0], egress.ErrRefused) || !strings.Contains(errs[0].Error(), `"elsewhere"`) {
		t.Errorf("the first: %v", errs[0])
	}
	if errs[1] != nil || !errors.Is(errs[2], egress.ErrHeldBack) {
		t.Errorf("the others: %v", errs[1:])
	}
}

// A full stream affects its messages temporarily.
func TestFullStream(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil, jetstream.StreamConfig{MaxMsgs: 1, Discard: jetstream.DiscardNew})
	b := s.Open(t)
	defer b.Close()
	errs := b.Publish(t.Context(), []egress.Message{message(1, "a", "1"), message(2, "a", "2")})
	if errs[0] != nil || errs[1] == nil || errors.Is(errs[1], egress.ErrUnreachable) || errors.Is(errs[1], egress.ErrRefused) {
		t.Errorf("%v", errs)
	}
}

func TestUnreachableServer(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil, jetstream.StreamConfig{})
	s.Kill(t)
	b := s.Open(t) // it need not be running
	defer b.Close()
	errs := b.Publish(t.Context(), []egress.Message{message(1, "a", "1"), message(2, "b", "2"), message(3, "b", "3")})
	for i, err := range errs[:2] {
		if !errors.Is(err, egress.ErrUnreachable) {
			t.Errorf("message %d: %v", i, err)
		}
	}
	s.Start(t)
	egresstest.Until(t, "it is connected with", func() bool { return b.Publish(t.Context(), []egress.Message{message(1, "a", "1")})[0] == nil })
	// It may go away at any time. Messages in flight are then not waited for.
	s.Kill(t)
	began := time.Now()
	if err := b.Publish(t.Context(), []egress.Message{message(2, "a", "1")})[0]; !errors.Is(err, egress.ErrUnreachable) {
		t.Errorf("when it is gone again: %v", err)
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("it took %s to notice", took)
	}
	s.Start(t)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := b.Publish(ended, []egress.Message{message(3, "a", "1")})[0]; err == nil {
		t.Error("it was published though its caller has gone")
	}
}

func TestLoginsAndCertificates(t *testing.T) {
	t.Parallel()
	server, client := egresstest.Certificates(t)
	server.ClientAuth = tls.RequireAndVerifyClientCert
	s := newServer(t, func(s *natsServer) {
		s.options.Username, s.options.Password = "manifold", "secret"
		s.options.TLSConfig, s.options.TLSTimeout = server, 5
		s.login = []natsgo.Option{natsgo.UserInfo("manifold", "secret"), natsgo.Secure(client)}
	}, jetstream.StreamConfig{})
	try := func(change func(*nats.Config)) error {
		b := s.open(t, func(c *nats.Config) {
			c.User, c.Password, c.TLS = "manifold", "secret", client
			change(c)
		})
		defer b.Close()
		return b.Publish(t.Context(), []egress.Message{message(1, "a", "1")})[0]
	}
	if err := try(func(*nats.Config) {}); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*nats.Config){
		"a wrong password": func(c *nats.Config) { c.Password = "guess" },
		"no certificate":   func(c *nats.Config) { c.TLS = &tls.Config{RootCAs: client.RootCAs} },
		"an unknown CA":    func(c *nats.Config) { c.TLS = &tls.Config{Certificates: client.Certificates} },
	} {
		if err := try(change); !errors.Is(err, egress.ErrUnreachable) {
			t.Errorf("with %s: %v", name, err)
		}
	}
}

// strict refuses a number of logins.
type strict struct{ refusals atomic.Int32 }

func (s *strict) Check(server.ClientAuthentication) bool { return s.refusals.Add(-1) < 0 }

// A login that is refused for a while, because it does not exist yet or is being changed, is retried.
func TestTemporarilyRefusedLogin(t *testing.T) {
	t.Parallel()
	door := &strict{}
	s := newServer(t, func(s *natsServer) { s.options.CustomClientAuthentication = door }, jetstream.StreamConfig{})
	door.refusals.Store(3)
	b := s.Open(t)
	defer b.Close()
	egresstest.Until(t, "it is let in", func() bool { return b.Publish(t.Context(), []egress.Message{message(1, "a", "1")})[0] == nil })
}

// A subject with a subscriber that is not a stream affects only its messages.
func TestSubjectWithoutResponder(t *testing.T) {
	t.Parallel()
	s := newServer(t, nil, jetstream.StreamConfig{})
	listener, err := natsgo.Connect(s.url())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if _, err := listener.Subscribe(">", func(*natsgo.Msg) {}); err != nil {
		t.Fatal(err)
	}
	if err := listener.Flush(); err != nil {
		t.Fatal(err)
	}
	b := s.Open(t)
	defer b.Close()
	lost := message(1, "a", "1")
	lost.Topic = "elsewhere"
	errs := b.Publish(t.Context(), []egress.Message{lost, message(2, "b", "2"), message(3, "a", "3")})
	if errs[0] == nil || errors.Is(errs[0], egress.ErrUnreachable) || errors.Is(errs[0], egress.ErrRefused) || !strings.Contains(errs[0].Error(), `"elsewhere"`) {
		t.Errorf("the first: %v", errs[0])
	}
	if errs[1] != nil || !errors.Is(errs[2], egress.ErrHeldBack) {
		t.Errorf("the others: %v", errs[1:])
	}
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	for subject, good := range map[string]bool{
		"a": true, "manifold.{tenant}.{category}.{key}": true, "a.{type}-x": true,
		"a..b": false, ".a": false, "a.": false, "a.*": false, "a.>": false, "a b": false, "$JS.API": false, "_INBOX.x": false,
	} {
		if err := nats.CheckSubject(subject); (err == nil) != good {
			t.Errorf("%q: %v", subject, err)
		}
	}
	for c := range 256 {
		allowed := nats.Alphabet.Allowed(byte(c))
		if strings.IndexByte(" .*>%\x00\x7f\n", byte(c)) >= 0 && allowed {
			t.Errorf("a subject may have %q", byte(c))
		}
	}
}
