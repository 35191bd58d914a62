//go:build !unix

package main

import "github.com/spf13/cobra"

// benchCommands returns none: benchmarks start PostgreSQL, and signal processes.
func benchCommands() []*cobra.Command { return nil }
