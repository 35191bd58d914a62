// Command memory-driver is Manifold with one more driver: "memory", which keeps documents in this process.
package main

import "github.com/manifold-es/manifold"

func main() {
	memory := NewMemory()
	manifold.Main(manifold.WithDriver("memory", memory.Open))
}
