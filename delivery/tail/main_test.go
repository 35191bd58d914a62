package tail_test

import (
	"log/slog"
	"testing"

	"github.com/manifold-es/manifold/embedded/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

var quiet = slog.New(slog.DiscardHandler)
