package nats_test

import (
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/manifold-es/manifold/egress/egresstest"
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
