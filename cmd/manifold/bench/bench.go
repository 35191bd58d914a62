// Package bench is `manifold bench`: commands with which users measure how fast Manifold is on their machine. Start
// with run, which every benchmark gets, and Result.
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
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Command returns `manifold bench`.
func Command() *cobra.Command {
	command := &cobra.Command{
		Use:   "bench",
		Short: "Measure how fast Manifold is on this machine",
		Long: `Measure how fast Manifold is on this machine.

Each benchmark starts a private PostgreSQL with synced commits and removes it afterwards, unless --database-url names a
server or --url a running service. For comparison, the same run measures what PostgreSQL alone achieves with the same rows.`,
		Args: cobra.NoArgs,
	}
	command.AddCommand(appendCommand(), publishCommand(), readCommand(), projectCommand(), rebuildCommand(), queryCommand(), lagCommand(), isolationCommand(), growthCommand(), stateCommand(), commandCommand(), subscribeCommand(), webhookCommand())
	return command
}

// flags are the flags of all commands. Each command has those that apply to it.
type flags struct {
	clients, batch, tenants, processes int
	events, version                    int // of a stream
	documents, preload                 int
	condition, tagged                  bool  // how appends are conditional, and tagged
	schema                             bool  // whether appends are validated
	inline                             int   // projections into which appends fold
	backlog                            int   // events that a tenant lags behind
	rare                               int   // one event in this many is of the rare type; 0: none
	partitions                         int   // of a group; 0: none
	gateway                            bool  // consume over the gateway
	dead                               int   // webhooks
	sizes                              []int // of logs
	rate                               float64
	duration, warmUp                   time.Duration
	answerAfter                        time.Duration // of a webhook
	direct, json                       bool
	distribute                         bool // the database
	shared                             bool // the projection
	catchingUp, rebuilding             bool // append while a projection catches up, or is rebuilt
	url, key, databaseURL              string
	config, database                   string // a configuration file, and its database for the documents
	scenario, transport, ordering      string // of followers and groups
	subscribers, consumers, streams    int
	reading                            string // what to read
	child                              bool   // this process is a child of `bench append --processes`
}

// run is one run of a benchmark.
type run struct {
	*flags
	Result
	progress io.Writer
	db       *database // nil: the service was already running, and its database is unknown
	service  *service  // nil until startService
	closers  []func() error
}

// newCommand creates a benchmark's command. The benchmark fills in the result. It is not called unless all flags named
// by positive are.
func newCommand(f *flags, use, short, long string, benchmark func(ctx context.Context, r *run) error, positive ...string) *cobra.Command {
	command := &cobra.Command{
		Use:   use,
		Short: short,
		Long:  long,
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := f.check(command.Flags(), positive); err != nil {
				return err
			}
			r := &run{flags: f, progress: command.ErrOrStderr()}
			err := benchmark(command.Context(), r)
			if err := errors.Join(err, r.close()); err != nil || f.child {
				return err
			}
			if f.json {
				return r.writeJSON(command.OutOrStdout())
			}
			return r.writeTable(command.OutOrStdout())
		},
	}
	command.Flags().BoolVar(&f.json, "json", false, "print one JSON object instead of a table")
	command.Flags().StringVar(&f.databaseURL, "database-url", "", "use this PostgreSQL server (a superuser's URL), in a database that is created and dropped; default: a private server")
	return command
}

// durationFlags adds the flags for how long to measure.
func (f *flags) durationFlags(command *cobra.Command, duration, warmUp time.Duration, prefix string) {
	command.Flags().DurationVar(&f.duration, "duration", duration, prefix+"how long to measure")
	command.Flags().DurationVar(&f.warmUp, "warm-up", warmUp, prefix+"how long to run before measuring")
}

// distributeFlag adds the flag of benchmarks that can use a cluster.
func (f *flags) distributeFlag(command *cobra.Command) {
	command.Flags().BoolVar(&f.distribute, "distribute", false, "distribute the benchmark's database over the Citus cluster of the database that --database-url names")
}

// serviceFlags adds the flags of benchmarks that can use a running service. use says what they do with it.
func (f *flags) serviceFlags(command *cobra.Command, use string) {
	command.Flags().StringVar(&f.url, "url", "", use)
	command.Flags().StringVar(&f.key, "key", os.Getenv("MANIFOLD_KEY"), "with --url: the tenant's key (MANIFOLD_KEY)")
	command.Flags().Lookup("key").DefValue = "" // --help must not show values from the environment
}

func (f *flags) check(all *pflag.FlagSet, positive []string) error {
	var wrong error
	all.VisitAll(func(flag *pflag.Flag) {
		value, least := flag.Value.String(), 0
		if slices.Contains(positive, flag.Name) {
			least = 1
		}
		if flag.Value.Type() == "int" {
			if number, _ := all.GetInt(flag.Name); number < least {
				wrong = fmt.Errorf("--%s %s: must be at least %d", flag.Name, value, least)
			}
		}
		if flag.Value.Type() == "float64" {
			if number, _ := all.GetFloat64(flag.Name); number < 0 || least > 0 && number == 0 {
				wrong = fmt.Errorf("--%s %s: must be more than 0", flag.Name, value)
			}
		}
	})
	switch {
	case wrong != nil:
		return wrong
	case f.batch > 1000:
		return fmt.Errorf("--batch %d: a request has at most 1000 events", f.batch)
	case f.url != "" && f.direct:
		return errors.New("--direct works on a database, not on the service that --url names")
	case f.url != "" && f.key == "":
		return errors.New("--url needs --key (or MANIFOLD_KEY), a tenant's key with all scopes; the benchmark appends to that tenant's log")
	case f.distribute && f.databaseURL == "":
		return errors.New("--distribute needs --database-url, a database on the coordinator of a Citus cluster")
	case f.distribute && f.processes > 1:
		return errors.New("--distribute needs --processes 1")
	case f.inline > 0 && !f.direct:
		return errors.New("--inline needs --direct")
	case f.processes > 1 && !f.direct:
		return errors.New("--processes needs --direct")
	case (f.catchingUp || f.rebuilding) && (f.preload == 0 || f.direct || f.url != ""):
		return errors.New("--catch-up and --rebuild need --preload, and cannot be combined with --direct or --url")
	case f.catchingUp && f.rebuilding:
		return errors.New("--catch-up and --rebuild cannot be combined")
	case f.config != "" && f.database == "":
		return errors.New("--config needs --database, the name of one of its databases")
	}
	return nil
}

// log reports progress to the user.
func (r *run) log(format string, args ...any) { fmt.Fprintf(r.progress, format+" ...\n", args...) }

// onClose adds a function to call at the end of the run. The last one is called first.
func (r *run) onClose(close func() error) { r.closers = append(r.closers, close) }

func (r *run) close() error {
	var err error
	for _, close := range slices.Backward(r.closers) {
		err = errors.Join(err, close())
	}
	r.closers = nil
	return err
}

// poll calls done in each interval until it returns true or an error. It returns the context's cause if that ends
// first.
func poll(ctx context.Context, interval time.Duration, done func() (bool, error)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// pause waits for a duration, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
