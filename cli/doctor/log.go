package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/service"
	"github.com/manifold-es/manifold/tables"
)

// clockTolerance is the largest accepted difference between this machine's clock and the database's.
const clockTolerance = time.Second

// logins connects with each login of Manifold's own database, and checks its permissions.
func (d *doctor) logins(ctx context.Context) {
	database := &d.config.Database
	clocked := false
	for _, login := range []struct {
		name string
		role migrations.Role
		of   config.Login
	}{
		{"app", migrations.RoleApp, database.App}, {"system", migrations.RoleSystem, database.System},
		{"documents", migrations.RoleDocuments, database.Documents}, {"retention", migrations.RoleRetention, database.Retention},
	} {
		check := "login " + login.name
		url, err := database.URLFor(login.of)
		if err != nil {
			d.fail(check, err.Error(), "fix the configuration")
			continue
		}
		var found pg.Login
		err = within(ctx, func(ctx context.Context) (err error) {
			found, err = pg.CheckLogin(ctx, url, login.role)
			return err
		})
		if err != nil {
			d.fail(check, "it cannot connect: "+config.WithoutSecrets(err, url).Error(), "check that the server is up, and that name and password are right; `manifold migrate up` creates the logins")
			continue
		}
		d.login(check, login.role, found)
		if !clocked {
			clocked = true
			d.server(found)
		}
	}
}

// login judges the permissions of a login.
func (d *doctor) login(check string, role migrations.Role, found pg.Login) {
	remedy := fmt.Sprintf("use a separate login as `manifold migrate up` creates it (%s)", role)
	switch {
	case found.Superuser:
		d.fail(check, fmt.Sprintf("%s is a superuser: its connections do not isolate tenants, and could change events", found.User), remedy)
	case found.SeesAll:
		d.fail(check, fmt.Sprintf("%s has BYPASSRLS: its connections do not isolate tenants", found.User), fmt.Sprintf("alter role %s nobypassrls", found.User))
	case len(found.Lacks) > 0:
		d.fail(check, fmt.Sprintf("%s lacks: %s", found.User, strings.Join(found.Lacks, ", ")), "run `manifold migrate up`, or grant them")
	case found.OwnsLog:
		d.fail(check, fmt.Sprintf("%s owns Manifold's tables, or is a member of the role that does: it could remove their protection", found.User), remedy)
	case len(found.HasTooMuch) > 0:
		d.warn(check, fmt.Sprintf("%s has privileges that it should not have: %s", found.User, strings.Join(found.HasTooMuch, ", ")), "revoke them, or "+remedy)
	case found.Administers:
		d.warn(check, fmt.Sprintf("%s may create roles or databases, which it does not need", found.User), fmt.Sprintf("alter role %s nocreaterole nocreatedb", found.User))
	default:
		d.ok(check, "%s connects, and has exactly the privileges that it needs", found.User)
	}
}

// server judges the server that holds the log.
func (d *doctor) server(found pg.Login) {
	const check = "database"
	switch {
	case found.Major < pg.OldestMajor:
		d.fail(check, "PostgreSQL "+found.ServerIs+" is too old", fmt.Sprintf("upgrade it: Manifold needs version %d to %d", pg.OldestMajor, pg.NewestMajor))
	case found.Major > pg.NewestMajor:
		d.warn(check, fmt.Sprintf("PostgreSQL %s is newer than %d, the newest version that Manifold was tested on", found.ServerIs, pg.NewestMajor),
			fmt.Sprintf("use version %d to %d, or test yours before you rely on it", pg.OldestMajor, pg.NewestMajor))
	default:
		d.ok(check, "PostgreSQL %s answers in %s", found.ServerIs, found.RoundTrip.Round(10*time.Microsecond))
	}
	apart := found.ClockAhead.Abs() - found.RoundTrip/2 // at least
	if apart > clockTolerance {
		d.warn("clock", fmt.Sprintf("this machine's clock and the database's are %s apart", found.ClockAhead.Abs().Round(time.Millisecond)),
			"synchronise both by NTP: displayed lags and retry times are wrong")
		return
	}
	d.ok("clock", "it differs from the database's by at most %s", (found.ClockAhead.Abs() + found.RoundTrip/2).Round(10*time.Microsecond))
}

// schema opens the store and checks the schema's version.
func (d *doctor) schema(ctx context.Context) {
	const check = "schema"
	err := within(ctx, func(ctx context.Context) error {
		c, err := service.StoreConfig(d.config, quietLog)
		if err != nil {
			return err
		}
		s, err := tables.Open(ctx, c)
		if err != nil {
			return err
		}
		d.store = s
		return s.CheckSchema(ctx)
	})
	if err != nil {
		d.fail(check, err.Error(), "run `manifold migrate up` with the same configuration, once the logins above can connect")
		return
	}
	d.ok(check, "it has the version that this program needs, %d or newer", migrations.Latest())
}

func (d *doctor) synced(ctx context.Context) {
	const check = "commits"
	if d.store == nil {
		return // already reported by the schema's check
	}
	var synced bool
	err := within(ctx, func(ctx context.Context) (err error) {
		synced, err = d.store.Synced(ctx)
		return err
	})
	switch {
	case err != nil:
		d.fail(check, err.Error(), "check that the server is up")
	case !synced:
		d.warn(check, "the database does not sync them: a crash of its machine can lose acknowledged events", "set fsync and synchronous_commit on")
	default:
		d.ok(check, "the database writes them to disk before it answers")
	}
}
