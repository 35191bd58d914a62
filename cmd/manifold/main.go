// Manifold is the program: a service, and the commands that work with one.
package main

import (
	"github.com/manifold-es/manifold"
	"github.com/manifold-es/manifold/cli/remote"
)

func main() {
	manifold.Main(manifold.WithCommands(append(remote.Commands(), benchCommands()...)...))
}
