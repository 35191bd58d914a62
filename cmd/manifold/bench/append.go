package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/tables"
)

func appendCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "append", "Append events: over HTTP, or to the store itself", func(ctx context.Context, f *flags, progress io.Writer) (Result, error) {
		switch {
		case f.role == roleAppend:
			return Result{}, appendChild(ctx, f)
		case f.direct:
			return appendDirect(ctx, f, progress)
		default:
			return appendHTTP(ctx, f, progress)
		}
	})
	command.Long = `Append events of some 200 to 300 bytes from closed-loop clients, each to separate streams.

The limit is COPY of the same rows into a table like the log's, with its indexes, without row-level security.`
	command.Flags().IntVar(&f.clients, "clients", 64, "clients at the same time, over all processes")
	command.Flags().IntVar(&f.batch, "batch", 1, "events in a request")
	command.Flags().DurationVar(&f.duration, "duration", 10*time.Second, "how long to measure")
	command.Flags().DurationVar(&f.warmUp, "warm-up", time.Second, "how long to run before measuring")
	command.Flags().IntVar(&f.events, "events", 0, "end after this many events instead of after the duration")
	command.Flags().IntVar(&f.tenants, "tenants", 1, "tenants that the clients are spread over")
	command.Flags().IntVar(&f.preload, "preload", 0, "events that are in the first tenant's log before")
	command.Flags().BoolVar(&f.direct, "direct", false, "append to the store, without HTTP")
	command.Flags().IntVar(&f.processes, "processes", 1, "with --direct: processes that the clients are spread over")
	command.Flags().IntVar(&f.inline, "inline", 0, "with --direct: inline projections, each with a document for each stream, that the appends fold into")
	serviceFlags(f, command, "append over HTTP to this running service")
	command.Flags().StringVar(&f.role, "child", "", "")
	command.Flags().MarkHidden("child")
	return command
}

func (f *flags) appendName() string {
	if f.direct {
		return f.loadName("append --direct")
	}
	return f.loadName("append")
}

// loadName returns the command with the flags that distinguish its runs.
func (f *flags) loadName(name string) string {
	name += fmt.Sprintf(" --clients %d", f.clients)
	for _, extra := range []struct {
		flag        string
		value, hide int
	}{{"batch", f.batch, 1}, {"tenants", max(f.tenants, 1), 1}, {"processes", max(f.processes, 1), 1}, {"preload", f.preload, 0}, {"inline", f.inline, 0}} {
		if extra.value != extra.hide {
			name += fmt.Sprintf(" --%s %d", extra.flag, extra.value)
		}
	}
	return name
}

func appendDirect(ctx context.Context, f *flags, progress io.Writer) (_ Result, err error) {
	if f.clients < 1 || f.batch < 1 || f.tenants < 1 || f.processes < 1 {
		return Result{}, errors.New("--clients, --batch, --tenants and --processes must be at least 1")
	}
	if f.processes > 1 && f.inline > 0 {
		return Result{}, errors.New("--inline is measured in one process")
	}
	if f.processes > f.clients {
		return Result{}, fmt.Errorf("--processes %d needs as many clients, and there are %d", f.processes, f.clients)
	}
	db, err := openDatabase(ctx, f.databaseURL, progress)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	tenants, err := db.makeTenants(ctx, f.tenants)
	if err != nil {
		return Result{}, err
	}
	if f.preload > 0 {
		if err := db.preload(ctx, tenants[0], f.preload, f.preload/10, progress); err != nil {
			return Result{}, err
		}
	}
	if err := execute(ctx, db.super, "checkpoint"); err != nil {
		return Result{}, err
	}
	fmt.Fprintf(progress, "appending for %s ...\n", f.length())
	result := Result{Name: f.appendName(), Clients: f.clients, what: "append"}
	var measured load
	if f.processes > 1 {
		measured, err = appendProcesses(ctx, f, db, tenants)
	} else {
		measured, err = appendStore(ctx, f, db.super, tenants, f.clients, func() error { return nil })
		result.RSS = peakMemory(os.Getpid())
	}
	if err != nil {
		return Result{}, err
	}
	return result.finish(ctx, measured, db.super, progress)
}

// length describes, for people, how long a run is.
func (f *flags) length() string {
	if f.events > 0 {
		return fmt.Sprintf("%d events", f.events)
	}
	return f.duration.String()
}

// finish fills in the measurements, and the limit of appending.
func (r Result) finish(ctx context.Context, measured load, super string, progress io.Writer) (Result, error) {
	r.take(measured)
	var err error
	if r.SyncedCommits, err = synced(ctx, super); err != nil {
		return Result{}, err
	}
	limit, err := copyLimit(ctx, super, progress)
	if err != nil {
		return Result{}, err
	}
	r.hold("COPY of the same rows", limit)
	return r, nil
}

// appendStore runs clients on a separate store. It calls begin when everything is ready.
func appendStore(ctx context.Context, f *flags, super string, tenants []domain.TenantID, clients int, begin func() error) (load, error) {
	open := func() (*tables.Tables, func(), error) { return openInline(ctx, f, super) }
	if f.inline == 0 {
		open = func() (*tables.Tables, func(), error) {
			opened, err := openStore(ctx, super)
			return opened, opened.Close, err
		}
	}
	opened, closeAll, err := open()
	if err != nil {
		return load{}, err
	}
	defer closeAll()
	run := os.Getpid() // the streams of two processes must differ
	all := make([]client, clients)
	for i := range all {
		tenant, goods, at := tenants[i%len(tenants)], newSales(i), newCursor(run, i, streamLength)
		all[i] = func(ctx context.Context) (int, error) {
			_, err := opened.Append(ctx, tenant, at.request(goods, f.batch))
			return f.batch, err
		}
	}
	if err := begin(); err != nil {
		return load{}, err
	}
	return drive(ctx, all, f.warmUp, f.duration, f.events)
}

func openStore(ctx context.Context, super string) (*tables.Tables, error) {
	return tables.Open(ctx, storeConfig(super))
}

func storeConfig(super string) tables.Config {
	return tables.Config{
		AppURL:       asRole(super, migrations.RoleApp),
		SystemURL:    asRole(super, migrations.RoleSystem),
		RetentionURL: asRole(super, migrations.RoleRetention),
		Log:          slog.New(slog.DiscardHandler),
	}
}
