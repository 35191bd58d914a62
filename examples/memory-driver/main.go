// Command memory-driver is Manifold with one more driver: "memory", which keeps documents in this process. It is there
// to be read and copied: docs/guides/write-a-driver.md says how.
package main

import "github.com/manifold-es/manifold"

func main() {
	manifold.Main(manifold.WithDriver("memory", newMemory().open))
}
