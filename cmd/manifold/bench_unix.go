//go:build unix

package main

import (
	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/cmd/manifold/bench"
)

func benchCommands() []*cobra.Command { return []*cobra.Command{bench.Command()} }
