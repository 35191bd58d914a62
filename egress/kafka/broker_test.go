package kafka_test

import (
	"testing"

	"github.com/manifold-es/manifold/egress/egresstest"
)

func TestKills(t *testing.T) {
	t.Parallel()
	egresstest.TestKills(t, newServer(t))
}
