package manifold

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/service"
	"github.com/manifold-es/manifold/store"
)

func doctorCommand(options []Option) *cobra.Command {
	var file string
	var asJSON, allEvents bool
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Look at everything that the service needs, and say what to do",
		Long: `Look at everything that the service needs, and say what to do: the configuration, each login and what it may do, the
schema, whether commits are synced, the clocks, each database of documents, the definitions, the shared projections, and whether
events can be read.
It is the first thing to try where manifold serve does not start, and may be run beside services that work: it changes
nothing, but makes and removes a table of its own in each database of documents. A failure makes the exit code 1.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			findings := examine(command.Context(), file, os.Environ(), newProgram(options).Extensions, allEvents)
			write := writeFindings
			if asJSON {
				write = writeFindingsJSON
			}
			if err := write(command.OutOrStdout(), findings); err != nil {
				return err
			}
			if failed(findings) {
				return fmt.Errorf("something must be mended: %w", ErrShown)
			}
			return nil
		},
	}
	command.Flags().StringVar(&file, "config", os.Getenv("MANIFOLD_CONFIG"), "the configuration file (MANIFOLD_CONFIG)")
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	command.Flags().BoolVar(&allEvents, "events", false, "look for unreadable events in all of the logs, however long it takes")
	return command
}

// verdict is the result of a check.
type verdict string

const (
	fine    verdict = "ok"
	warning verdict = "warning" // it works, but could be better
	failure verdict = "failed"
)

// finding is the outcome of one check.
type finding struct {
	Check   string  `json:"check"`
	Verdict verdict `json:"verdict"`
	Message string  `json:"message"`
	Todo    string  `json:"todo,omitempty"` // what to do; empty if the verdict is fine
}

func failed(findings []finding) bool {
	for _, f := range findings {
		if f.Verdict == failure {
			return true
		}
	}
	return false
}

func writeFindings(out io.Writer, findings []finding) error {
	for _, f := range findings {
		line := fmt.Sprintf("%-8s %s: %s", f.Verdict, f.Check, oneLine(f.Message))
		if f.Todo != "" {
			line += "; " + oneLine(f.Todo)
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func writeFindingsJSON(out io.Writer, findings []finding) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(struct {
		OK     bool      `json:"ok"`
		Checks []finding `json:"checks"`
	}{!failed(findings), findings})
}

// doctor examines an installation. Later checks use what earlier checks have found.
type doctor struct {
	config     config.Config
	extensions service.Extensions
	allEvents  bool // check every event
	findings   []finding

	store     *store.Store              // nil if it cannot be opened
	databases map[string]drivers.Driver // only those that can be opened
	logIn     string                    // as in service.Process
}

// checkupTimeout bounds each check that calls another system.
const checkupTimeout = 15 * time.Second

// examine runs every check that is possible. With allEvents it checks every event, however many there are.
func examine(ctx context.Context, file string, environ []string, e service.Extensions, allEvents bool) []finding {
	d := &doctor{extensions: e, allEvents: allEvents, databases: make(map[string]drivers.Driver)}
	from := "the environment"
	if file != "" {
		from = file + " and the environment"
	}
	c, err := config.Load(file, environ)
	if err != nil {
		d.fail("configuration", err.Error(), "mend it; docs/reference/configuration.md has every setting")
		return d.findings
	}
	d.config = c
	d.ok("configuration", "read from %s", from)
	defer d.close()
	for _, check := range []func(context.Context){
		d.listeners, d.logins, d.schema, d.synced, d.documents, d.definitions, d.projections, d.events,
	} {
		if ctx.Err() != nil {
			d.fail("doctor", "it was interrupted", "run it again")
			break
		}
		check(ctx)
	}
	return d.findings
}

func (d *doctor) close() {
	if d.store != nil {
		d.store.Close()
	}
	for _, driver := range d.databases {
		driver.Close()
	}
}

func (d *doctor) add(check string, v verdict, message, todo string) {
	d.findings = append(d.findings, finding{check, v, message, todo})
}

func (d *doctor) ok(check, format string, args ...any) {
	d.add(check, fine, fmt.Sprintf(format, args...), "")
}

func (d *doctor) warn(check, message, todo string) { d.add(check, warning, message, todo) }

func (d *doctor) fail(check, message, todo string) { d.add(check, failure, message, todo) }

// within runs one check with its time limit.
func within(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, checkupTimeout, errors.New("no answer within "+checkupTimeout.String()))
	defer cancel()
	err := do(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return err
}

var quietLog = slog.New(slog.DiscardHandler)
