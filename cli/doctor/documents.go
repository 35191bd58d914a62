package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/service"
)

// versioned is an optional interface of drivers that can report their database's version.
type versioned interface {
	Version(ctx context.Context) (string, error)
}

// named is an optional interface of drivers that may lack public names. A driver without it has them.
type named interface {
	PublicNames() bool
}

// documents opens each database of documents, and creates and removes a table in it.
func (d *doctor) documents(ctx context.Context) {
	own, err := d.config.Database.URLFor(d.config.Database.Documents)
	if err != nil {
		return // already reported by the login's check
	}
	configured, logDatabase := service.DocumentsDatabases(d.config, own)
	d.logDatabase = logDatabase
	for _, name := range slices.Sorted(maps.Keys(configured)) {
		check := "documents " + name
		of := configured[name]
		said := new(warnings)
		open, err := d.extensions.Opener(name, of, slog.New(said))
		if err != nil {
			d.fail(check, err.Error(), "fix the configuration")
			continue
		}
		var driver drivers.Driver
		err = within(ctx, func(ctx context.Context) (err error) {
			driver, err = open(ctx)
			return err
		})
		if err != nil {
			d.fail(check, fmt.Sprintf("the driver %s cannot open it: %s", of.Driver, err), "check that the server is up, and that the URL, the user and the password are right; until then its projections wait")
			continue
		}
		d.databases[name] = driver
		d.database(ctx, check, of.Driver, driver)
		for _, message := range said.all() {
			d.warn(check, message, "grant the user what docs/reference/configuration.md lists")
		}
	}
}

// warnings collects the warnings that a driver logs while it is opened, as they would appear in a service's log.
type warnings struct {
	mu    sync.Mutex
	heard []string
}

// all returns the warnings collected so far.
func (w *warnings) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.heard)
}

// Enabled implements slog.Handler.
func (w *warnings) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle implements slog.Handler.
func (w *warnings) Handle(_ context.Context, record slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, record.Message)
	return nil
}

// WithAttrs implements slog.Handler. It drops the attributes, since the check's name already names the database.
func (w *warnings) WithAttrs([]slog.Attr) slog.Handler { return w }

// WithGroup implements slog.Handler.
func (w *warnings) WithGroup(string) slog.Handler { return w }

func (d *doctor) database(ctx context.Context, check, kind string, driver drivers.Driver) {
	var took time.Duration
	version := ""
	err := within(ctx, func(ctx context.Context) error {
		began := time.Now()
		if err := driver.Ping(ctx); err != nil {
			return err
		}
		took = time.Since(began)
		if v, ok := driver.(versioned); ok {
			text, err := v.Version(ctx)
			if err != nil {
				return err
			}
			version = " " + text
		}
		return nil
	})
	if err != nil {
		d.fail(check, fmt.Sprintf("%s does not answer: %s", kind, err), "check that the server is up")
		return
	}
	step, err := tryTable(ctx, driver)
	switch {
	case err != nil && step == swapping:
		d.warn(check, fmt.Sprintf("%s%s answers in %s, and %s: %s", kind, version, took.Round(10*time.Microsecond), step, err),
			"grant the missing privilege if people read the database directly; nothing else depends on it")
	case err != nil:
		d.fail(check, fmt.Sprintf("%s%s answers, but %s: %s", kind, version, step, err), "grant the user the privileges in docs/guides/operations.md")
	default:
		can := "tables, indexes and public names can be created"
		if n, ok := driver.(named); ok && !n.PublicNames() {
			can = "tables and indexes can be created, but no public names, because the database is distributed: keep documents that people read in another database"
		}
		d.ok(check, "%s%s answers in %s; %s", kind, version, took.Round(10*time.Microsecond), can)
	}
}

// These are the steps of tryTable, as messages name them when they fail.
const (
	creating = "no table can be created"
	saving   = "no document can be saved"
	indexing = "no index can be created"
	swapping = "no public name can be created"
	dropping = "no table can be dropped"
)

// tryTable creates a shared projection's table with everything that belongs to it, and removes it again. It returns
// the step that failed.
func tryTable(ctx context.Context, driver drivers.Driver) (step string, err error) {
	build := domain.Build{
		ProjectionID: domain.ProjectionID{Owner: domain.Everyone, Name: "manifold-doctor-" + strings.ToLower(rand.Text()[:8])},
		Number:       1, Indexes: []string{"checked"},
	}
	tenant := domain.NewTenantID()
	batch := drivers.Batch{To: 1, Upserts: []domain.Document{{ID: "checked", Version: 1, Data: []byte(`{"checked":true}`)}}}
	for _, one := range []struct {
		name string
		do   func(ctx context.Context) error
	}{
		{creating, func(ctx context.Context) error { return driver.CreateTemporaryTable(ctx, build) }},
		{saving, func(ctx context.Context) error { return driver.Save(ctx, build, tenant, batch) }},
		{indexing, func(ctx context.Context) error { return driver.IndexTable(ctx, build) }},
		{swapping, func(ctx context.Context) error { return driver.SwapTable(ctx, build, nil) }},
	} {
		if err = within(ctx, one.do); err != nil {
			step = one.name
			break
		}
	}
	dropErr := within(context.WithoutCancel(ctx), func(ctx context.Context) error { return driver.DropTable(ctx, build) })
	if step == "" && dropErr != nil {
		return dropping, dropErr
	}
	return step, err
}

// definitions reads the definition files and compiles them. It checks that they name known databases.
func (d *doctor) definitions(context.Context) {
	rules := folding.Rules{LogDatabase: d.logDatabase, Handlers: d.extensions.Handlers()}
	configured, _ := service.DocumentsDatabases(d.config, "")
	rules.Databases = slices.Sorted(maps.Keys(configured))
	places := make(map[string]string)
	check := func(place string, definitions []domain.Definition) (bad bool) {
		for _, definition := range definitions {
			err := rules.Check(domain.ProjectionID{Owner: domain.Everyone, Name: definition.Name}, definition)
			if other, twice := places[definition.Name]; err == nil && twice {
				err = fmt.Errorf("it is also defined in %s", other)
			}
			places[definition.Name] = place
			if err != nil {
				bad = true
				d.fail("definition "+definition.Name, fmt.Sprintf("in %s: %s", place, err), "fix the definition")
			}
		}
		return bad
	}
	for _, folder := range d.config.Projections {
		files, err := folding.ReadDefinitions(folder)
		if err != nil {
			d.fail("definitions", err.Error(), "fix the files, or the setting projections")
			continue
		}
		if !check(folder, folding.DefinitionsOf(files)) {
			d.ok("definitions", "%d in %s compile, and name known databases", len(files), folder)
		}
	}
	own := d.extensions.Definitions()
	if len(own) > 0 && !check("the program", own) {
		d.ok("definitions", "%d in the program compile, and name known databases", len(own))
	}
	if len(d.config.Projections)+len(own) == 0 {
		d.ok("definitions", "none are configured for all tenants")
	}
}

// projections checks the live builds of the shared projections.
func (d *doctor) projections(ctx context.Context) {
	if d.store == nil {
		return // already reported by the schema's check
	}
	var shared []domain.Projection
	heads := make(map[domain.TenantID]int64)
	err := within(ctx, func(ctx context.Context) (err error) {
		if shared, err = d.store.Projections(ctx, domain.Everyone); err != nil {
			return err
		}
		all, err := d.store.Heads(ctx, time.Time{})
		for _, head := range all {
			heads[head.Tenant] = head.Position
		}
		return err
	})
	if err != nil {
		d.fail("projections", err.Error(), "run `manifold migrate up`, and check that the server is up")
		return
	}
	slices.SortFunc(shared, func(a, b domain.Projection) int { return cmp.Compare(a.Name, b.Name) })
	for i := range shared {
		d.projection(ctx, &shared[i], heads)
	}
}

// These limits bound how many of the tenants that a rebuild has left out are named, and how many bytes of each one's
// reason are shown.
const (
	doctorFaults = 3
	doctorReason = 300
)

func (d *doctor) projection(ctx context.Context, p *domain.Projection, heads map[domain.TenantID]int64) {
	check := "projection " + p.Name
	build := p.LiveBuild()
	configured, _ := service.DocumentsDatabases(d.config, "")
	driver := d.databases[build.Database]
	if _, known := configured[build.Database]; !known {
		d.fail(check, fmt.Sprintf("its documents are in database %q, which is not in the configuration", build.Database), "configure it again, or change the definition's database: the documents are rebuilt there from the log")
		return
	}
	if driver == nil {
		d.fail(check, fmt.Sprintf("it waits for database %q", build.Database), "fix that database; the projection then continues by itself")
		return
	}
	seen := make(map[domain.TenantID]int64)
	var faults []domain.Fault
	var left []domain.TenantFault
	err := within(ctx, func(ctx context.Context) (err error) {
		for checkpoint, err := range driver.Checkpoints(ctx, build) {
			if err != nil {
				return err
			}
			seen[checkpoint.Tenant] = checkpoint.Position
		}
		if faults, err = d.store.Faults(ctx, p.ProjectionID, p.Build); err != nil {
			return err
		}
		own, err := d.store.TenantBuildsOf(ctx, p.ProjectionID)
		for _, b := range own {
			if b.Fault != nil && b.PinnedTo == p.Build {
				left = append(left, *b.Fault)
			}
		}
		return err
	})
	switch {
	case errors.Is(err, drivers.ErrNoTable):
		d.fail(check, fmt.Sprintf("the table of its live build %d is not in database %q", p.Build, build.Database), "check that it is the right database; then a running worker rebuilds the documents, or run `manifold rebuild "+p.Name+"`")
		return
	case err != nil:
		d.fail(check, err.Error(), "check that the server is up")
		return
	}
	if len(left) > 0 {
		var which strings.Builder
		for i, fault := range left[:min(len(left), doctorFaults)] {
			if i > 0 {
				which.WriteString("; ")
			}
			fmt.Fprintf(&which, "tenant %s: %s", fault.Tenant, folding.Cut(strings.Join(strings.Fields(fault.Reason), " "), doctorReason))
		}
		d.warn(check, fmt.Sprintf("the last rebuild has left %d tenants on their old documents: %s", len(left), which.String()),
			"run `manifold rebuild faulted "+p.Name+"` to list them all; skip the events, put an upcaster or change the definition, then run `manifold rebuild "+p.Name+" --faulted`")
	}
	// A fault before the checkpoint is over: a later attempt has succeeded.
	faults = slices.DeleteFunc(faults, func(f domain.Fault) bool { return f.Position <= seen[f.Tenant] })
	if len(faults) > 0 {
		d.warn(check, fmt.Sprintf("it cannot fold an event of %d tenants, and waits there; of tenant %s at position %d: %s",
			len(faults), faults[0].Tenant, faults[0].Position, faults[0].Message), "fix the definition: the projection is rebuilt, and continues")
		return
	}
	behind := 0
	for tenant, head := range heads {
		if seen[tenant] < head {
			behind++
		}
	}
	state := ""
	if p.HeldBy != "" {
		state = "; a rebuild is about to be swapped in"
	}
	d.ok(check, "build %d is live in database %q; it is up to date with %d of %d logs%s", p.Build, build.Database, len(heads)-behind, len(heads), state)
}
