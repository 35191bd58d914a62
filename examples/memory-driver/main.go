// Command memory-driver is Manifold with one more driver: "memory", which keeps documents in this process. Copy it to
// start a driver: docs/guides/write-a-driver.md explains it.
package main

import (
	"context"

	"github.com/manifold-es/manifold"
	"github.com/manifold-es/manifold/drivers"
)

func main() {
	// One memory for all databases of this driver, since builds have different names.
	memory := newMemory()
	manifold.Main(manifold.WithDriver("memory", func(context.Context, manifold.DriverConfig) (drivers.Driver, error) {
		return memory, nil
	}))
}
