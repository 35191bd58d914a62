package nats_test

import (
	"context"
	"os"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/manifold-es/manifold/delivery/egress/egresstest"
)

// realServer is a NATS that the test neither started nor kills.
type realServer struct{ natsServer }

func (*realServer) Kill(testing.TB)  {}
func (*realServer) Start(testing.TB) {}

// The guarantees hold on the NATS whose URL is in MANIFOLD_TEST_NATS_URL, while processes are killed. The other tests
// run the same server in this process.
func TestRealServer(t *testing.T) {
	t.Parallel()
	const variable = "MANIFOLD_TEST_NATS_URL"
	url := os.Getenv(variable)
	if url == "" {
		t.Skipf("NOT RUN: there is no separate NATS here; set %s to the URL of a server with JetStream, such as nats://127.0.0.1:4222", variable)
	}
	s := &realServer{natsServer{foreign: url}}
	s.ask(t, func(ctx context.Context, js jetstream.JetStream) error {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "out", Subjects: []string{"out.>"}})
		return err
	})
	t.Cleanup(func() {
		s.ask(t, func(ctx context.Context, js jetstream.JetStream) error { return js.DeleteStream(ctx, "out") })
	})
	egresstest.TestKills(t, s)
}
