//go:build !unix

package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/service"
)

func devCommand(service.Extensions, context.Context) *cobra.Command {
	return &cobra.Command{
		Use:   "dev",
		Short: "Run a complete service for development, on Linux or macOS only",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return errors.New("manifold dev does not run on this system, where it cannot start a private PostgreSQL: use Linux (on Windows in WSL) or macOS")
		},
	}
}
