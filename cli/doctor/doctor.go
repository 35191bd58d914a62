// Package doctor examines an installation: whether the service would start, and whether everything that it needs works.
// Start with Examine.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/service"
	"github.com/manifold-es/manifold/tables"
)

// doctor examines an installation. Later checks use what earlier checks have found.
type doctor struct {
	config     config.Config
	extensions service.Extensions
	allEvents  bool // check every event
	findings   []Finding

	store       *tables.Tables            // nil if it cannot be opened
	databases   map[string]drivers.Driver // only those that can be opened
	logDatabase string                    // as in service.Process
}

// checkupTimeout bounds each check that calls another system.
const checkupTimeout = 15 * time.Second

// Examine runs every check that is possible. With allEvents it checks every event, however many there are.
func Examine(ctx context.Context, file string, environ []string, e service.Extensions, allEvents bool) []Finding {
	d := &doctor{extensions: e, allEvents: allEvents, databases: make(map[string]drivers.Driver)}
	from := "the environment"
	if file != "" {
		from = file + " and the environment"
	}
	c, err := config.Load(file, environ)
	if err != nil {
		d.fail("configuration", err.Error(), "fix it; docs/reference/configuration.md has every setting")
		return d.findings
	}
	d.config = c
	d.ok("configuration", "read from %s", from)
	defer d.close()
	for _, check := range []func(context.Context){
		d.listeners, d.issuers, d.logins, d.schema, d.synced, d.replicas, d.cluster, d.documents, d.definitions, d.projections, d.seals, d.indexes, d.events,
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

func (d *doctor) add(check string, v Verdict, message, todo string) {
	d.findings = append(d.findings, Finding{check, v, message, todo})
}

func (d *doctor) ok(check, format string, args ...any) {
	d.add(check, Fine, fmt.Sprintf(format, args...), "")
}

func (d *doctor) warn(check, message, todo string) { d.add(check, Warning, message, todo) }

func (d *doctor) fail(check, message, todo string) { d.add(check, Failure, message, todo) }

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
