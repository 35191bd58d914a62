package main

import (
	"testing"

	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/drivertest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, drivertest.Harness{Place: func(t *testing.T) drivertest.Place {
		memory := newMemory()
		return drivertest.Place{Open: func(t *testing.T) drivers.Driver { return memory }}
	}})
}
