package kafka_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/manifold-es/manifold/delivery/egress"
	"github.com/manifold-es/manifold/delivery/egress/egresstest"
	"github.com/manifold-es/manifold/delivery/egress/kafka"
)

func TestKills(t *testing.T) {
	t.Parallel()
	egresstest.TestKills(t, newServer(t))
}

const someTraceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// message returns a message with a key and with its number as id.
func message(n int, key, data string) egress.Message {
	return egress.Message{
		ID: fmt.Sprint("m", n), Topic: "order", Key: key, ContentType: "application/json", Traceparent: someTraceparent,
		Attributes: []egress.Attribute{{Name: "id", Value: fmt.Sprint(n)}, {Name: "subject", Value: "a b\"ü%"}}, Data: []byte(data),
	}
}

func TestRecordsAreCloudEvents(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b := s.Open(t)
	defer b.Close()
	if errs := b.Publish(t.Context(), []egress.Message{message(1, "k", `{"n": 1}`)}); errors.Join(errs...) != nil {
		t.Fatal(errs)
	}
	r := s.records(t)[0]
	if string(r.Key) != "k" || string(r.Value) != `{"n": 1}` {
		t.Errorf("the record is %s: %s", r.Key, r.Value)
	}
	for name, want := range map[string]string{kafka.HeaderID: "m1", "ce_id": "1", "ce_subject": "a b\"ü%", "content-type": "application/json", "traceparent": someTraceparent} {
		if i := slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == name }); i < 0 || string(r.Headers[i].Value) != want {
			t.Errorf("of the headers %+v, %s should be %q", r.Headers, name, want)
		}
	}
}

// Many messages keep their order by key, however they are grouped into batches.
func TestManyMessagesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b := s.open(t, func(c *kafka.Config) { c.MessageBytes = 4000 })
	defer b.Close()
	var messages []egress.Message
	for n := range 500 {
		messages = append(messages, message(n, fmt.Sprint("key", n%7), strings.Repeat("x", n%900)))
	}
	if errs := b.Publish(t.Context(), messages); errors.Join(errs...) != nil {
		t.Fatal(errors.Join(errs...))
	}
	last := make(map[string]int)
	records := s.records(t)
	for _, r := range records {
		var n int
		if _, err := fmt.Sscanf(string(r.Headers[slices.IndexFunc(r.Headers, func(h kgo.RecordHeader) bool { return h.Key == kafka.HeaderID })].Value), "m%d", &n); err != nil {
			t.Fatal(err)
		}
		if before, ok := last[string(r.Key)]; ok && n != before+7 {
			t.Fatalf("of %s, %d comes behind %d", r.Key, n, before)
		}
		last[string(r.Key)] = n
	}
	if len(records) != len(messages) {
		t.Errorf("%d records are stored, of %d", len(records), len(messages))
	}
}

// A message that is too large is refused, whether the client or the broker says so. If only the batch is too large for
// the broker, its messages are not refused.
func TestTooLargeMessageIsRefused(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]struct {
		client int
		broker string
	}{"by the client": {3000, "1000000"}, "by the broker": {100_000, "3000"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": limits.broker}))
			b := s.open(t, func(c *kafka.Config) { c.MessageBytes = limits.client })
			defer b.Close()
			var messages []egress.Message
			for n := range 30 {
				size := 1000
				if n == 11 {
					size = 5000
				}
				messages = append(messages, message(n, "k", random(size)))
			}
			errs := b.Publish(t.Context(), messages)
			for n, err := range errs {
				if (n == 11) != errors.Is(err, egress.ErrRefused) || n != 11 && err != nil {
					t.Errorf("message %d: %v", n, err)
				}
			}
			var got []string
			for _, m := range s.Stored(t) {
				got = append(got, m.ID)
			}
			var want []string
			for n := range messages {
				if n != 11 {
					want = append(want, messages[n].ID)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("stored are %s", got)
			}
		})
	}
}

// random returns a string that hardly compresses.
func random(size int) string {
	b := make([]byte, size)
	state := uint64(size) * 0x9e3779b97f4a7c15
	for i := range b {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		b[i] = byte(state)
	}
	return string(b)
}

func TestMissingTopic(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	b := s.open(t, func(c *kafka.Config) { c.Timeout = 20 * time.Second })
	defer b.Close()
	lost := message(1, "a", "1")
	lost.Topic = "elsewhere"
	err := b.Publish(t.Context(), []egress.Message{lost})[0]
	if err == nil || errors.Is(err, egress.ErrUnreachable) || errors.Is(err, egress.ErrRefused) || !strings.Contains(err.Error(), `"elsewhere"`) {
		t.Errorf("%v", err)
	}
	if err := b.Publish(t.Context(), []egress.Message{message(2, "b", "2")})[0]; err != nil {
		t.Errorf("one of another topic: %v", err)
	}
}

func TestUnreachableBroker(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.Kill(t)
	b := s.open(t, func(c *kafka.Config) { c.Timeout = time.Second })
	defer b.Close()
	limited, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := b.Publish(limited, []egress.Message{message(1, "a", "1")})[0]; !errors.Is(err, egress.ErrUnreachable) {
		t.Errorf("%v", err)
	}
	s.Start(t)
	egresstest.Until(t, "it is connected with", func() bool { return b.Publish(t.Context(), []egress.Message{message(1, "a", "1")})[0] == nil })
}

func TestLoginsAndCertificates(t *testing.T) {
	t.Parallel()
	server, client := egresstest.Certificates(t)
	server.ClientAuth = tls.RequireAndVerifyClientCert
	s := newServer(t, kfake.TLS(server), kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-512", "manifold", "secret"), kfake.Superuser("PLAIN", "plain", "secret"),
		kfake.Superuser("SCRAM-SHA-256", "short", "secret"))
	s.login = []kgo.Opt{kgo.DialTLSConfig(client), kgo.SASL(scram.Auth{User: "manifold", Pass: "secret"}.AsSha512Mechanism())}
	try := func(timeout time.Duration, change func(*kafka.Config)) error {
		b := s.open(t, func(c *kafka.Config) {
			c.SASL, c.User, c.Password, c.TLS = kafka.ScramSHA512, "manifold", "secret", client
			c.Timeout = timeout
			change(c)
		})
		defer b.Close()
		limited, cancel := context.WithTimeout(t.Context(), 5*timeout)
		defer cancel()
		return b.Publish(limited, []egress.Message{message(1, "a", "1")})[0]
	}
	for name, change := range map[string]func(*kafka.Config){
		"as it is":      func(*kafka.Config) {},
		"plain":         func(c *kafka.Config) { c.SASL, c.User = kafka.Plain, "plain" },
		"scram-sha-256": func(c *kafka.Config) { c.SASL, c.User = kafka.ScramSHA256, "short" },
	} {
		if err := try(10*time.Second, change); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*kafka.Config){
		"a wrong password": func(c *kafka.Config) { c.Password = "guess" },
		"no login":         func(c *kafka.Config) { c.SASL = "" },
		"no encryption":    func(c *kafka.Config) { c.TLS = nil },
	} {
		if err := try(time.Second, change); !errors.Is(err, egress.ErrUnreachable) {
			t.Errorf("with %s: %v", name, err)
		}
	}
	if _, err := kafka.Open(kafka.Config{Brokers: []string{s.address}, SASL: "kerberos"}); err == nil {
		t.Error("an unknown way to log in was taken")
	}
	if got := len(s.records(t)); got != 3 {
		t.Errorf("%d records are stored", got)
	}
}

func TestTopics(t *testing.T) {
	t.Parallel()
	for topic, good := range map[string]bool{
		"a": true, "manifold.{tenant}.{category}": true, "A_b-c.1": true,
		"a b": false, "a/b": false, "ä": false, ".": false, "..": false,
	} {
		if err := kafka.CheckTopic(topic); (err == nil) != good {
			t.Errorf("%q: %v", topic, err)
		}
	}
}
