package kafka_test

import (
	"testing"

	"github.com/manifold-es/manifold/delivery/egress/egresstest"
)

func BenchmarkEgress(b *testing.B) {
	egresstest.BenchmarkServer(b, func(t testing.TB) egresstest.Server { return newServer(t) })
}
