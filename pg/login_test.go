package pg_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/embedded"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
)

func TestOldestMajorIsTheEmbeddedServers(t *testing.T) {
	if pg.OldestMajor != embedded.MinimumMajor {
		t.Errorf("the log needs PostgreSQL %d, but the embedded server may be %d", pg.OldestMajor, embedded.MinimumMajor)
	}
}

// The logins that the migrations make have what they need and no more; what is granted beside shows.
func TestCheckLogin(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	for _, role := range migrations.Roles {
		login, err := pg.CheckLogin(t.Context(), db.URL(role), role)
		if err != nil {
			t.Fatal(err)
		}
		if login.User != string(role) || login.Major < pg.OldestMajor || login.ServerIs == "" || login.Superuser || login.SeesAll || login.Administers || login.OwnsLog ||
			len(login.Lacks) > 0 || len(login.HasTooMuch) > 0 {
			t.Errorf("%s: %+v", role, login)
		}
		if login.RoundTrip <= 0 || login.ClockAhead.Abs() > time.Second+login.RoundTrip {
			t.Errorf("%s: the clock is %s ahead after %s", role, login.ClockAhead, login.RoundTrip)
		}
	}
	// One login in the place of another.
	login, err := pg.CheckLogin(t.Context(), db.URL(migrations.RoleRetention), migrations.RoleApp)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(login.Lacks, "insert on manifold.events") || !slices.Contains(login.HasTooMuch, "delete on manifold.events") {
		t.Errorf("the retention login as app: %+v", login)
	}
	if login, err = pg.CheckLogin(t.Context(), db.URL(pgtest.RoleSuperuser), migrations.RoleSystem); err != nil || !login.Superuser || !login.OwnsLog {
		t.Errorf("a superuser: %+v, %v", login, err)
	}
	if login, err = pg.CheckLogin(t.Context(), db.URL(pgtest.RoleMigrator), migrations.RoleApp); err != nil || login.Superuser || !login.OwnsLog || !login.Administers {
		t.Errorf("the migrator: %+v, %v", login, err)
	}
	if db.Distributed() {
		return // its schema cannot be reverted, and its nodes may trust this machine
	}
	if err := migrations.Down(t.Context(), db.URL(pgtest.RoleMigrator)); err != nil {
		t.Fatal(err)
	}
	if login, err = pg.CheckLogin(t.Context(), db.URL(migrations.RoleApp), migrations.RoleApp); err != nil || len(login.Lacks) > 0 {
		t.Errorf("without a schema: %+v, %v", login, err)
	}
	wrong := db.URLAs("manifold_app", "wrong")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := pg.CheckLogin(ctx, wrong, migrations.RoleApp); err == nil || !strings.Contains(err.Error(), "manifold migrate up") {
		t.Errorf("with a wrong password: %v", err)
	}
}

// `manifold migrate up` sets the passwords while a process opens its logins: it is refused one and accepted the next.
func TestOpenWhilePasswordsAreSet(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{Empty: true})
	if err := server.CreateDatabase(t.Context(), "manifold"); err != nil {
		t.Fatal(err)
	}
	const password = "the configured one"
	up := func(roles ...migrations.Role) {
		passwords := make(map[migrations.Role]string)
		for _, role := range roles {
			passwords[role] = password
		}
		if err := migrations.Up(t.Context(), server.URL("manifold"), passwords); err != nil {
			t.Error(err)
		}
	}
	up(migrations.RoleSystem, migrations.RoleRetention)
	url := func(role migrations.Role) string { return server.URLAs("manifold", string(role), password) }
	db, err := pg.Open(t.Context(), pg.Config{
		AppURL: url(migrations.RoleApp), SystemURL: url(migrations.RoleSystem), RetentionURL: url(migrations.RoleRetention),
		Connected: sync.OnceFunc(func() { up(migrations.RoleApp) }),
	})
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
}
