package nats_test

import (
	"context"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/manifold-es/manifold/delivery/egress"
	"github.com/manifold-es/manifold/delivery/egress/egresstest"
	"github.com/manifold-es/manifold/delivery/egress/nats"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// natsServer is a NATS server in this process, with a JetStream that keeps messages in a folder.
type natsServer struct {
	options server.Options
	running *server.Server
	login   []natsgo.Option // of the test's own connections to the server
	foreign string          // the URL of a server that is not in this process
}

// newServer starts a server with a stream for the subjects below "out". It runs until the test ends.
func newServer(t testing.TB, change func(*natsServer), stream jetstream.StreamConfig) *natsServer {
	t.Helper()
	s := &natsServer{options: server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true}}
	if change != nil {
		change(s)
	}
	s.Start(t)
	t.Cleanup(func() { s.Kill(t) })
	s.options.Port = s.running.Addr().(*net.TCPAddr).Port
	stream.Name, stream.Subjects = "out", []string{"out.>"}
	s.ask(t, func(ctx context.Context, js jetstream.JetStream) error {
		_, err := js.CreateStream(ctx, stream)
		return err
	})
	return s
}

func (s *natsServer) Start(t testing.TB) {
	t.Helper()
	options := s.options
	var err error
	if s.running, err = server.NewServer(&options); err != nil {
		t.Fatal(err)
	}
	s.running.Start()
	if !s.running.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server does not start")
	}
}

func (s *natsServer) Kill(testing.TB) {
	s.running.Shutdown()
	s.running.WaitForShutdown()
}

// url returns the server's URL.
func (s *natsServer) url() string {
	if s.foreign != "" {
		return s.foreign
	}
	at := url.URL{Scheme: "nats", Host: net.JoinHostPort(s.options.Host, strconv.Itoa(s.options.Port))}
	if s.options.TLSConfig != nil {
		at.Scheme = "tls"
	}
	return at.String()
}

// ask sends a request to JetStream.
func (s *natsServer) ask(t testing.TB, what func(ctx context.Context, js jetstream.JetStream) error) {
	t.Helper()
	conn, err := natsgo.Connect(s.url(), s.login...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := what(ctx, js); err != nil {
		t.Fatal(err)
	}
}

func (s *natsServer) open(t testing.TB, change func(*nats.Config)) egress.Broker {
	t.Helper()
	config := nats.Config{URLs: []string{s.url()}, Name: t.Name(), Log: egresstest.Quiet}
	if change != nil {
		change(&config)
	}
	b, err := nats.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (s *natsServer) Open(t testing.TB) egress.Broker { return s.open(t, nil) }

func (s *natsServer) Config() egress.Config {
	return egress.Config{Topic: "out.{tenant}.{category}.{key}", Alphabet: nats.Alphabet}
}

// messages returns all messages of the stream.
func (s *natsServer) messages(t testing.TB) (all []jetstream.Msg) {
	t.Helper()
	s.ask(t, func(ctx context.Context, js jetstream.JetStream) error {
		stream, err := js.Stream(ctx, "out")
		if err != nil {
			return err
		}
		info, err := stream.Info(ctx)
		if err != nil {
			return err
		}
		consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
		if err != nil {
			return err
		}
		for uint64(len(all)) < info.State.Msgs {
			m, err := consumer.Next(jetstream.FetchMaxWait(10 * time.Second))
			if err != nil {
				return err
			}
			all = append(all, m)
		}
		return nil
	})
	return all
}

func (s *natsServer) Stored(t testing.TB) (all []egresstest.Stored) {
	t.Helper()
	for _, m := range s.messages(t) {
		stored := egresstest.Stored{ID: m.Headers().Get(jetstream.MsgIDHeader), Topic: m.Subject(), Attributes: make(map[string]string), Data: string(m.Data())}
		for name, values := range m.Headers() {
			if attribute, ok := strings.CutPrefix(name, "ce-"); ok {
				stored.Attributes[attribute] = values[0]
			}
		}
		all = append(all, stored)
	}
	return all
}
