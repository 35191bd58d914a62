package migrations_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// eavesdrop relays connections to address, and returns its own address and what clients have sent so far.
func eavesdrop(t *testing.T, address string) (through string, heard func() []byte) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var sent bytes.Buffer
	var relays sync.WaitGroup
	relay := func(client net.Conn) {
		defer client.Close()
		server, err := net.Dial("tcp", address)
		if err != nil {
			t.Error(err)
			return
		}
		defer server.Close()
		relays.Go(func() {
			_, _ = io.Copy(client, server)
			client.Close()
		})
		_, _ = io.Copy(server, io.TeeReader(client, writerFunc(func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return sent.Write(p)
		})))
	}
	relays.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			relays.Go(func() { relay(client) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		relays.Wait()
	})
	return listener.Addr().String(), func() []byte {
		mu.Lock()
		defer mu.Unlock()
		return bytes.Clone(sent.Bytes())
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// PostgreSQL gets a verifier, so that no password can get into its log or its statistics.
func TestPasswordsAreNotSentInClear(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := pgtest.Database(t)
	app, err := url.Parse(db.URL(migrations.RoleApp))
	if err != nil {
		t.Fatal(err)
	}
	password, _ := app.User.Password() // the one that it has already: other tests log in with it
	migrator, err := url.Parse(db.URL(pgtest.RoleMigrator))
	if err != nil {
		t.Fatal(err)
	}
	through, heard := eavesdrop(t, migrator.Host)
	migrator.Host = through
	if err := migrations.Up(ctx, migrator.String(), map[migrations.Role]string{migrations.RoleApp: password}); err != nil {
		t.Fatal(err)
	}
	if all := heard(); !bytes.Contains(all, []byte("alter role manifold_app")) || bytes.Contains(all, []byte(password)) {
		t.Errorf("the password went to the server in clear: %v", bytes.Contains(all, []byte(password)))
	}
	conn, err := pgx.Connect(ctx, app.String())
	if err != nil {
		t.Fatalf("the role cannot log in with its password: %v", err)
	}
	conn.Close(ctx)
}

// Passwords of every kind work after the migration. PostgreSQL prepares them with SASLprep, and uses those that
// SASLprep refuses unchanged.
func TestRolesLogInWithUnusualPasswords(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	db := pgtest.Database(t)
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	for role, password := range map[string]string{
		"quoted": `it's "quoted" \ $$`, "unicode": "pässwörd", "control": "bell\a", "long": strings.Repeat("x", 500),
	} {
		verifier, err := migrations.ScramVerifier(password)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := super.Exec(ctx, "create role scram_"+role+" login password '"+verifier+"'"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := super.Exec(context.WithoutCancel(ctx), "drop role scram_"+role); err != nil {
				t.Error(err)
			}
		})
		conn, err := pgx.Connect(ctx, db.URLAs("scram_"+role, password))
		if err != nil {
			t.Errorf("%s: %v", role, err)
			continue
		}
		conn.Close(context.WithoutCancel(ctx))
	}
}
