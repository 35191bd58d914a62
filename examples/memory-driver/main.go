// Command memory-driver is Manifold with one more driver: "memory", which keeps documents in this process. It is there
// to be read and copied: docs/guides/write-a-driver.md says how.
package main

import (
	"context"

	"github.com/manifold-es/manifold"
	"github.com/manifold-es/manifold/drivers"
)

func main() {
	// One memory for all databases of this driver: builds are told apart all the same.
	memory := newMemory()
	manifold.Main(manifold.WithDriver("memory", func(context.Context, manifold.DriverConfig) (drivers.Driver, error) {
		return memory, nil
	}))
}
