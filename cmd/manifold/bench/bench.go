// Package bench is `manifold bench`: commands with which users measure how fast Manifold is on their machine. Start
// with Command and Result.
//
// Each command starts a private PostgreSQL with synced commits and removes it afterwards, unless a flag names a
// server or a service. In the same run and on the same rows, each command also measures the limit for comparison:
// what PostgreSQL alone achieves. The load is closed-loop: a client sends its next request after the last was
// answered.
package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
)

// flags are the flags of all commands. Each command has those that apply to it.
type flags struct {
	clients, batch, tenants, processes int
	events, documents, preload         int
	inline                             int   // projections into which appends fold
	backlog                            int   // events that a tenant lags behind
	partitions                         int   // of a group; 0: none
	gateway                            bool  // consume over the gateway
	dead                               int   // webhooks
	sizes                              []int // of logs
	rate                               float64
	duration, warmUp                   time.Duration
	answerAfter                        time.Duration // of a webhook
	direct, json                       bool
	url, key, databaseURL              string
	config, database                   string // a configuration file, and its database for the documents
	scenario, transport, ordering      string // of followers and groups
	subscribers, consumers, streams    int
	reading                            string // what to read
	role                               string // "" for the command that a user runs; else what a child of it does
}

// Command returns `manifold bench`.
func Command() *cobra.Command {
	command := &cobra.Command{
		Use:   "bench",
		Short: "Measure this machine with Manifold",
		Long: `Measure this machine with Manifold.

Each benchmark works on a private PostgreSQL that it starts itself and removes again, and whose commits are synced, unless
--database-url names a server or --url a running service. In the same run it measures the limit that the result is held
against: what PostgreSQL alone does with the same rows.`,
		Args: cobra.NoArgs,
	}
	command.AddCommand(appendCommand(), publishCommand(), readCommand(), projectCommand(), rebuildCommand(), queryCommand(), lagCommand(), isolationCommand(), growthCommand(), stateCommand(), subscribeCommand(), webhookCommand())
	return command
}

// serviceFlags adds the flags of benchmarks that can use a running service. use says what they do with it.
func serviceFlags(f *flags, command *cobra.Command, use string) {
	command.Flags().StringVar(&f.url, "url", "", use)
	command.Flags().StringVar(&f.key, "key", os.Getenv("MANIFOLD_KEY"), "with --url: the tenant's key (MANIFOLD_KEY)")
	command.Flags().Lookup("key").DefValue = "" // --help must not show values from the environment
}

// newCommand creates a benchmark's command. run returns the result to print, and writes progress to standard error.
func newCommand(f *flags, use, short string, run func(ctx context.Context, f *flags, progress io.Writer) (Result, error)) *cobra.Command {
	command := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			result, err := run(command.Context(), f, command.ErrOrStderr())
			if err != nil {
				return err
			}
			if f.role != "" {
				return nil // a child has already answered its parent
			}
			if f.json {
				return result.writeJSON(command.OutOrStdout())
			}
			return result.writeTable(command.OutOrStdout())
		},
	}
	command.Flags().BoolVar(&f.json, "json", false, "print one JSON object instead of a table")
	command.Flags().StringVar(&f.databaseURL, "database-url", "", "work on this PostgreSQL server, in a database that is made and dropped again (a superuser's URL); default: a private server")
	return command
}

func (f *flags) check() error {
	switch {
	case f.clients < 0, f.batch < 0, f.tenants < 0, f.processes < 0, f.events < 0, f.documents < 0, f.preload < 0, f.inline < 0, f.backlog < 0,
		f.subscribers < 0, f.consumers < 0, f.streams < 0, f.dead < 0, f.rate < 0:
		return errors.New("numbers must not be negative")
	case f.batch > 1000:
		return fmt.Errorf("--batch %d: a request has at most 1000 events", f.batch)
	case f.url != "" && f.direct:
		return errors.New("--direct works on a database, not on the service that --url names")
	case f.url != "" && f.key == "":
		return errors.New("--url needs --key (or MANIFOLD_KEY), a tenant's key with all scopes; the benchmark appends to that tenant's log")
	case f.inline > 0 && !f.direct:
		return errors.New("--inline needs --direct")
	case f.processes > 1 && !f.direct:
		return errors.New("--processes needs --direct")
	case f.config != "" && f.database == "":
		return errors.New("--config needs --database, the name of one of its databases")
	}
	return nil
}
