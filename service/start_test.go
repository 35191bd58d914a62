package service_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/embedded"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/service"
)

// starting is a process that has not come up yet.
type starting struct {
	t       *testing.T
	log     *notes
	started chan error
	process *service.Process
}

// begin starts a process without waiting for it.
func begin(t *testing.T, ctx context.Context, c config.Config) *starting {
	s := &starting{t: t, log: &notes{wrote: make(chan struct{}, 1)}, started: make(chan error, 1)}
	go func() {
		var err error
		s.process, err = service.Start(ctx, c, slog.New(slog.NewJSONHandler(s.log, nil)), service.Extensions{})
		s.started <- err
	}()
	return s
}

// isUp waits until the process answers.
func (s *starting) isUp() *service.Process {
	s.t.Helper()
	select {
	case err := <-s.started:
		if err != nil {
			s.t.Fatalf("it does not start: %v", err)
		}
	case <-time.After(time.Minute):
		s.t.Fatalf("it does not start:\n%s", s.log)
	}
	s.t.Cleanup(func() { stop(s.t, s.process) })
	return s.process
}

// waits waits until the process reports that it is waiting for a reason, and returns its address.
func (s *starting) waits(reason string) (address string) {
	s.t.Helper()
	for late := time.After(time.Minute); ; {
		for line := range strings.Lines(s.log.String()) {
			var entry struct{ Msg, Address string }
			if json.Unmarshal([]byte(line), &entry) == nil && strings.HasPrefix(entry.Msg, "waiting for the database: ") && strings.Contains(entry.Msg, reason) {
				return entry.Address
			}
		}
		select {
		case <-s.log.wrote:
		case err := <-s.started:
			s.t.Fatalf("it does not wait: %v", err)
		case <-late:
			s.t.Fatalf("it does not say %q:\n%s", reason, s.log)
		}
	}
}

// notes is a log that a test can read while it is written.
type notes struct {
	mu    sync.Mutex
	text  bytes.Buffer
	wrote chan struct{} // has an element after a line
}

func (n *notes) Write(line []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case n.wrote <- struct{}{}:
	default:
	}
	return n.text.Write(line)
}

func (n *notes) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.String()
}

// A process without its database listens, reports why it waits, and continues automatically.
func TestStartWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{})
	c := configuration(pgtest.Migrated(t, server))
	server.Kill()
	s := begin(t, t.Context(), c)
	address := s.waits("nothing listens at the database's address")
	if status, body := getAt(t, address, "/livez"); status != http.StatusOK {
		t.Errorf("/livez is answered %d: %s", status, body)
	}
	status, body := getAt(t, address, "/readyz")
	if status != http.StatusServiceUnavailable || !strings.Contains(body, `"ready":false`) || !strings.Contains(body, "nothing listens at the database's address") {
		t.Errorf("/readyz is answered %d: %s", status, body)
	}
	if strings.Contains(body, "127.0.0.1") || strings.Contains(body, "manifold_app") {
		t.Errorf("/readyz tells anybody addresses and logins: %s", body)
	}
	r, err := http.Post("http://"+address+"/v1/append", "application/json", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var problem struct{ Code, Detail string }
	if err := json.NewDecoder(r.Body).Decode(&problem); err != nil || r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("Retry-After") == "" ||
		problem.Code != "unavailable" || !strings.Contains(problem.Detail, "nothing listens") {
		t.Errorf("a request is answered %s %+v, %v", r.Status, problem, err)
	}

	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := s.isUp()
	if p.Address() != address {
		t.Errorf("it was at %s, and is at %s", address, p.Address())
	}
	if status, body := getAt(t, address, "/readyz"); status != http.StatusOK {
		t.Errorf("/readyz is answered %d: %s", status, body)
	}
	as(t, p, newTenant(t, p, "acme")).add("thing-1", "Added", `{"n":1}`)
	said := s.log.String()
	if strings.Count(said, "waiting for the database: nothing listens") != 1 || strings.Count(said, "the database is available") != 1 {
		t.Errorf("it says:\n%s", said)
	}
}

// If `manifold migrate up` has not run yet, a process waits for what it creates: the logins and the schema.
func TestStartWaitsForTheMigration(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{Empty: true})
	if err := server.CreateDatabase(t.Context(), "manifold"); err != nil {
		t.Fatal(err)
	}
	passwords := map[migrations.Role]string{}
	for _, role := range migrations.Roles {
		passwords[role] = "the password of " + string(role)
	}
	c := ofServer(server, passwords)
	s := begin(t, t.Context(), c)
	s.waits("refuses the logins")
	if err := migrations.Up(t.Context(), server.URL("manifold"), passwords); err != nil {
		t.Fatal(err)
	}
	p := s.isUp()
	stop(t, p)

	// The schema alone goes; the logins are the server's.
	if err := migrations.Down(t.Context(), server.URL("manifold")); err != nil {
		t.Fatal(err)
	}
	s = begin(t, t.Context(), c)
	address := s.waits("no schema yet: run `manifold migrate up`")
	if status, body := getAt(t, address, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "manifold migrate up") {
		t.Errorf("/readyz is answered %d: %s", status, body)
	}
	if err := migrations.Up(t.Context(), server.URL("manifold"), passwords); err != nil {
		t.Fatal(err)
	}
	s.isUp()
}

// On a distributed database, a process waits until its setting reaches every node. It starts if the configuration
// expects such a database, or accepts any, and is refused otherwise.
func TestStartOnADistributedDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	pgtest.PretendDistributed(t, db)
	c := configuration(db)
	replica, err := url.Parse(db.URL(migrations.RoleApp))
	if err != nil {
		t.Fatal(err)
	}
	replica.User = nil
	for want, change := range map[string]func(*config.Database){
		"database.distributed is false, and the database is distributed": func(d *config.Database) { d.Distributed = config.DistributedFalse },
		"database.replicas are given, and the database is distributed":   func(d *config.Database) { d.Replicas = []string{replica.String()} },
	} {
		refused := c
		change(&refused.Database)
		p, err := service.Start(t.Context(), refused, slog.New(slog.DiscardHandler), service.Extensions{})
		if err == nil {
			stop(t, p)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it says %v; want %q", err, want)
		}
	}
	super := db.Nodes(t)[0]
	set := func(value string) {
		t.Helper()
		if _, err := super.Exec(t.Context(), "alter database "+db.Name+" set citus.propagate_set_commands = "+value); err != nil {
			t.Fatal(err)
		}
	}
	set("'none'")
	s := begin(t, t.Context(), c)
	s.waits("citus.propagate_set_commands is none and not local")
	set("'local'")
	s.isUp()
	c.Database.Distributed = config.DistributedTrue
	start(t, c)
}

// ofServer is the configuration of a process on a server whose logins have these passwords.
func ofServer(server *embedded.Server, passwords map[migrations.Role]string) config.Config {
	c := config.Default()
	c.Listen = "127.0.0.1:0"
	c.Database.URL = server.URL("manifold")
	for role, login := range map[migrations.Role]*config.Login{
		migrations.RoleApp: &c.Database.App, migrations.RoleSystem: &c.Database.System,
		migrations.RoleDocuments: &c.Database.Documents, migrations.RoleRetention: &c.Database.Retention,
	} {
		login.User, login.Password = string(role), config.Secret(passwords[role])
	}
	c.OperatorKeys = []string{operatorKey}
	return c
}

// A process that waits can be stopped, and reports what it was waiting for.
func TestStartEndsWhileItWaits(t *testing.T) {
	t.Parallel()
	c := configuration(pgtest.Database(t))
	for _, login := range []*config.Login{&c.Database.App, &c.Database.System, &c.Database.Documents, &c.Database.Retention} {
		login.URL = "postgres://nobody@127.0.0.1:1/manifold"
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	s := begin(t, ctx, c)
	address := s.waits("nothing listens")
	enough := errors.New("enough")
	cancel(enough)
	select {
	case err := <-s.started:
		if !errors.Is(err, enough) || !strings.Contains(err.Error(), "nothing listens") {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
	}
	if _, err := http.Get("http://" + address + "/livez"); err == nil {
		t.Error("it answers after its end")
	}
}

// The start logs a warning if the service listens for other machines without TLS and without a proxy in front of it.
func TestListeningForOthersIsWarnedOf(t *testing.T) {
	t.Parallel()
	for _, listen := range []string{":0", "127.0.0.1:0"} {
		c := configuration(pgtest.Database(t))
		c.Listen = listen
		s := begin(t, t.Context(), c)
		s.isUp()
		if warned := strings.Contains(s.log.String(), "keys and events cross the network unencrypted"); warned != (listen == ":0") {
			t.Errorf("listening at %s it says:\n%s", listen, s.log)
		}
	}
}

// The keys of the configuration encrypt secrets: without them, they would be stored as they are.
func TestKeysEncryptSecrets(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Database.URL = "postgres://db/manifold"
	c.Encryption.Keys = "first AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
	s, err := service.StoreConfig(c, slog.New(slog.DiscardHandler))
	if err != nil || s.Secrets.Current() != "first" {
		t.Errorf("the key is %q, %v", s.Secrets.Current(), err)
	}
}
