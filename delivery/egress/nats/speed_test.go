package nats_test

import (
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/manifold-es/manifold/delivery/egress/egresstest"
)

func BenchmarkEgress(b *testing.B) {
	egresstest.BenchmarkServer(b, func(t testing.TB) egresstest.Server { return newServer(t, nil, jetstream.StreamConfig{}) })
}
