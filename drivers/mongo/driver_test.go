package mongo_test

import (
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/drivertest"
	"github.com/manifold-es/manifold/drivers/mongo"
	"github.com/manifold-es/manifold/drivers/mongo/mongotest"
)

func TestMain(m *testing.M) { mongotest.Main(m) }

func open(t *testing.T, url string) *mongo.Driver {
	t.Helper()
	driver, err := mongo.Open(t.Context(), mongo.Config{URL: url, MaxConns: 4})
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	return driver
}

func TestConformanceOnFerretDB(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Harness{Partial: true, Slow: true, MaxDepth: mongo.MaxDepth, MaxDocumentBytes: domain.MaxDocumentBytes - 4096, Place: func(t *testing.T) drivertest.Place {
		url := mongotest.FerretDB(t)
		return drivertest.Place{Open: func(t *testing.T) drivers.Driver { return open(t, url) }}
	}})
}
