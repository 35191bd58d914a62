package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/service"
	"github.com/manifold-es/manifold/telemetry"
)

func serveCommand(extensions service.Extensions, hard context.Context) *cobra.Command {
	var file string
	command := &cobra.Command{
		Use:   "serve",
		Short: "Run the service",
		Long: `Run the service with a configuration file, environment variables, or both: see docs/reference/configuration.md. If the
database is unreachable or lacks the schema (see manifold migrate), the service waits for it and reports that in /readyz.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := config.Load(file, os.Environ())
			if err != nil {
				return err
			}
			log := telemetry.NewLogger(command.ErrOrStderr(), c.Log.Level, c.Log.Format)
			headroom := reserveHeadroom()
			defer runtime.KeepAlive(headroom)
			process, err := service.Start(command.Context(), c, log, extensions)
			if cause := context.Cause(command.Context()); err != nil && cause != nil {
				log.Info(fmt.Sprint(cause), "while", "the process was starting")
				return nil
			}
			if err != nil {
				return fmt.Errorf("%w\nrun `manifold doctor` with the same configuration to find the cause", err)
			}
			return waitForEnd(process, command.Context(), hard, log)
		},
	}
	command.Flags().StringVar(&file, "config", os.Getenv("MANIFOLD_CONFIG"), "the configuration file (MANIFOLD_CONFIG)")
	return command
}

// waitForEnd waits until soft ends or the process cannot continue, and then stops the process. The end of hard ends the
// waiting.
func waitForEnd(p *service.Process, soft, hard context.Context, log *slog.Logger) error {
	var failure error
	select {
	case <-soft.Done():
		log.Info(fmt.Sprint(context.Cause(soft)))
	case failure = <-p.Failed():
	}
	if err := p.Stop(hard); err != nil {
		log.Warn("not everything stopped in order", "error", err)
	}
	return failure
}
