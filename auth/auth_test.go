package auth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/pg"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// counted counts the look-ups of a process behind a network. If gate is set, the answer to a look-up waits for it.
type counted struct {
	*Tables // of another process
	db      pgtest.DB
	network *pgtest.Network
	asked   atomic.Int64
	gate    chan struct{}
	read    chan struct{} // receives when a look-up has read

	running, most atomic.Int64 // current look-ups, and the highest number of concurrent ones
}

// count counts the look-ups in the network.
func (c *counted) count() {
	const lookUp = "from keys k join tenants t"
	c.network.Before(lookUp, func() bool {
		c.asked.Add(1)
		for now := c.running.Add(1); ; {
			if most := c.most.Load(); now <= most || c.most.CompareAndSwap(most, now) {
				return true
			}
		}
	})
	c.network.After(lookUp, func(int) bool {
		if c.gate != nil {
			c.read <- struct{}{}
			<-c.gate
		}
		c.running.Add(-1)
		return true
	})
}

// clock is a clock that moves only when a test moves it.
type clock struct{ since atomic.Int64 }

func (c *clock) now() time.Time       { return time.Unix(0, c.since.Load()) }
func (c *clock) move(d time.Duration) { c.since.Add(int64(d)) }
func code(err error) domain.Code      { p, _ := errors.AsType[*domain.Error](err); return codeOf(p) }
func codeOf(p *domain.Error) domain.Code {
	if p == nil {
		return ""
	}
	return p.Code
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// begin opens a database, and creates Keys over it in a process behind a network.
func begin(t *testing.T, config Config) (*counted, *Keys, *clock) {
	t.Helper()
	db := pgtest.Database(t)
	open := func(url func(migrations.Role) string) *Tables {
		s, err := openTables(t.Context(), pg.Config{
			AppURL: url(migrations.RoleApp), SystemURL: url(migrations.RoleSystem), RetentionURL: url(migrations.RoleRetention),
			MaxConns: 40, Log: slog.New(slog.DiscardHandler),
		})
		must(t, err)
		t.Cleanup(s.Close)
		return s
	}
	c, at := &counted{db: db, network: pgtest.NewNetwork(t, db)}, &clock{}
	c.Tables = open(db.URL)
	c.count()
	config.Store = open(func(role migrations.Role) string { return c.network.URL(t, db, role) }).Postgres
	config.now = at.now
	k, err := NewKeys(config)
	must(t, err)
	return c, k, at
}

func newTenant(t *testing.T, s *counted) domain.TenantID {
	t.Helper()
	id := domain.NewTenantID()
	must(t, s.CreateTenant(t.Context(), domain.Tenant{ID: id, Name: id.String()}))
	return id
}

func newToken(t *testing.T, s *counted, tenant domain.TenantID, scopes ...Scope) (APIKey, string) {
	t.Helper()
	key, token := NewKey(tenant, "test", GrantsOf(scopes...))
	must(t, s.CreateKey(t.Context(), key))
	return key, token
}

func TestATokenNamesItsTenantAndScopes(t *testing.T) {
	t.Parallel()
	s, k, _ := begin(t, Config{})
	for range 2 {
		tenant := newTenant(t, s)
		key, token := newToken(t, s, tenant, ScopeEventsRead, ScopeDocumentsRead)
		got, err := k.Authenticate(t.Context(), token)
		must(t, err)
		if got.Tenant != tenant || got.KeyID != key.ID || got.Operator || !slices.Equal(got.Grants, key.Grants) {
			t.Errorf("got %+v", got)
		}
		must(t, got.Require(ScopeEventsRead))
		err = got.Require(ScopeEventsAppend)
		if code(err) != domain.CodeForbidden || !strings.Contains(err.Error(), string(ScopeEventsAppend)) {
			t.Errorf("a scope that the key has not: %v", err)
		}
		if code(got.Require(ScopeOperator)) != domain.CodeForbidden {
			t.Error("a tenant's key may do what is the operator's")
		}
	}
}

// A token stops working after any change, and a tenant's token never works with the id of another tenant's key.
func TestOtherTokensAreRefused(t *testing.T) {
	t.Parallel()
	s, k, _ := begin(t, Config{})
	tenant, other := newTenant(t, s), newTenant(t, s)
	_, token := newToken(t, s, tenant, ScopeEventsRead)
	_, otherToken := newToken(t, s, other, ScopeEventsRead)
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+/ \x00é"
	rapid.Check(t, func(r *rapid.T) {
		changed := []byte(token)
		switch rapid.IntRange(0, 3).Draw(r, "how") {
		case 0:
			at := rapid.IntRange(0, len(changed)-1).Draw(r, "at")
			changed[at] = rapid.SampledFrom([]byte(alphabet)).Draw(r, "byte")
		case 1:
			changed = changed[:rapid.IntRange(0, len(changed)-1).Draw(r, "length")]
		case 2:
			changed = append(changed, rapid.SliceOfN(rapid.SampledFrom([]byte(alphabet)), 1, 20).Draw(r, "more")...)
		case 3: // parts of two valid tokens
			cut := rapid.IntRange(len(TokenPrefix)+1, len(token)-1).Draw(r, "cut")
			changed = []byte(token[:cut] + otherToken[cut:])
		}
		if string(changed) == token || string(changed) == otherToken {
			r.Skip("nothing was changed")
		}
		if _, err := k.Authenticate(t.Context(), string(changed)); code(err) != domain.CodeUnauthenticated {
			r.Fatalf("%q gave %v", changed, err)
		}
	})
	if _, err := k.Authenticate(t.Context(), token); err != nil {
		t.Errorf("the token itself: %v", err)
	}
}

func TestRevocationIsPrompt(t *testing.T) {
	t.Parallel()
	s, k, _ := begin(t, Config{})
	ctx, cancel := context.WithCancel(t.Context())
	ready := make(chan struct{}, 10)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.ListenKeys(ctx, func(tenant domain.TenantID) {
			k.Forget(tenant)
			if tenant == domain.Everyone {
				ready <- struct{}{}
			}
		}); err != nil {
			t.Error(err)
		}
	})
	<-ready
	tenant := newTenant(t, s)
	key, token := newToken(t, s, tenant, ScopeEventsRead)
	_, kept := newToken(t, s, tenant, ScopeEventsRead)
	want := func(token string, want domain.Code, when string) {
		t.Helper()
		if _, err := k.Authenticate(t.Context(), token); code(err) != want {
			t.Errorf("%s: %v", when, err)
		}
	}
	want(token, "", "a new key")
	must(t, s.RevokeKey(t.Context(), tenant, key.ID))
	want(token, domain.CodeUnauthenticated, "a revoked key")
	want(kept, "", "another key of the tenant")
	must(t, s.SetTenantState(t.Context(), tenant, domain.TenantSuspended))
	want(kept, domain.CodeTenantSuspended, "a suspended tenant")
	want(token, domain.CodeUnauthenticated, "a revoked key of a suspended tenant")
	must(t, s.SetTenantState(t.Context(), tenant, domain.TenantActive))
	want(kept, "", "a tenant that is active again")
	must(t, s.SetTenantState(t.Context(), tenant, domain.TenantDeleting))
	want(kept, domain.CodeTenantSuspended, "a tenant that is being deleted")
	must(t, s.EraseTenant(t.Context(), tenant))
	want(kept, domain.CodeUnauthenticated, "a deleted tenant")
	cancel()
	wg.Wait()
}

// A look-up that read before a revocation is not cached after it, and does not answer calls that started after it.
func TestStaleLookUpsAreNotCached(t *testing.T) {
	t.Parallel()
	s, k, _ := begin(t, Config{})
	tenant := newTenant(t, s)
	key, token := newToken(t, s, tenant, ScopeEventsRead)
	s.gate, s.read = make(chan struct{}), make(chan struct{}, 10)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := k.Authenticate(t.Context(), token); err != nil {
			t.Errorf("a call that began before the revocation: %v", err)
		}
	})
	<-s.read
	must(t, s.RevokeKey(t.Context(), tenant, key.ID))
	k.Forget(tenant)
	wg.Go(func() {
		if _, err := k.Authenticate(t.Context(), token); code(err) != domain.CodeUnauthenticated {
			t.Errorf("a call that began after the revocation: %v", err)
		}
	})
	<-s.read // it runs its own look-up
	close(s.gate)
	wg.Wait()
	if _, err := k.Authenticate(t.Context(), token); code(err) != domain.CodeUnauthenticated {
		t.Errorf("a call after both: %v", err)
	}
}

func TestOneLookUpServesAll(t *testing.T) {
	t.Parallel()
	s, k, at := begin(t, Config{TTL: time.Minute})
	_, token := newToken(t, s, newTenant(t, s), ScopeEventsRead)
	s.gate, s.read = make(chan struct{}), make(chan struct{}, 100)
	var wg sync.WaitGroup
	authenticate := func() {
		if _, err := k.Authenticate(t.Context(), token); err != nil {
			t.Error(err)
		}
	}
	wg.Go(authenticate)
	<-s.read
	for range 50 {
		wg.Go(authenticate)
	}
	close(s.gate)
	wg.Wait()
	authenticate()
	if n := s.asked.Load(); n != 1 {
		t.Errorf("asked the store %d times", n)
	}
	at.move(time.Minute)
	authenticate()
	if n := s.asked.Load(); n != 2 {
		t.Errorf("asked the store %d times, once of it after the key's time was over", n)
	}
}

// Made-up tokens of a tenant leave a connection for the look-ups of others.
func TestLookUpsTakeTurns(t *testing.T) {
	t.Parallel()
	s, k, _ := begin(t, Config{})
	tenant := newTenant(t, s)
	s.gate, s.read = make(chan struct{}), make(chan struct{}, 100)
	var wg sync.WaitGroup
	for range 20 {
		_, token := NewKey(tenant, "made up", GrantsOf(ScopeEventsRead))
		wg.Go(func() {
			if _, err := k.Authenticate(t.Context(), token); code(err) != domain.CodeUnauthenticated {
				t.Error(err)
			}
		})
	}
	most := k.config.Store.db.Foreground.Config().MaxConns * 3 / 4
	if s.db.Distributed() {
		most-- // a node has three of the four connections, and one of its tenants two
	}
	for range most {
		<-s.read
	}
	_, ticket := NewTicket(Credential{Tenant: newTenant(t, s), KeyID: NewKeyID()})
	if _, err := k.AuthenticateTicket(t.Context(), ticket); code(err) != domain.CodeUnauthenticated {
		t.Errorf("a ticket of another tenant: %v", err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := k.AuthenticateTicket(gone, ticket); !errors.Is(err, context.Canceled) {
		t.Errorf("a ticket whose client has gone: %v", err)
	}
	close(s.gate)
	wg.Wait()
	if n := s.most.Load(); n > int64(most) {
		t.Errorf("%d look-ups at the same time", n)
	}
}

func TestAbsentKeysAreCachedBriefly(t *testing.T) {
	t.Parallel()
	s, k, at := begin(t, Config{})
	tenant := newTenant(t, s)
	_, token := newToken(t, s, tenant, ScopeEventsRead)
	_, err := k.Authenticate(t.Context(), token)
	must(t, err)
	_, made := NewKey(tenant, "made up", nil)
	before := s.asked.Load()
	for range 5 {
		if _, err := k.Authenticate(t.Context(), made); code(err) != domain.CodeUnauthenticated {
			t.Fatal(err)
		}
	}
	if n := s.asked.Load() - before; n != 1 {
		t.Errorf("asked the store %d times for a key that does not exist", n)
	}
	at.move(k.config.AbsentTTL)
	_, _ = k.Authenticate(t.Context(), made)
	if n := s.asked.Load() - before; n != 2 {
		t.Errorf("asked %d times after its time was over", n)
	}
	for range 2 * absentKept {
		_, made := NewKey(tenant, "made up", nil)
		_, _ = k.Authenticate(t.Context(), made)
	}
	if k.absent.Len() > absentKept {
		t.Errorf("%d keys that do not exist are remembered", k.absent.Len())
	}
	before = s.asked.Load()
	if _, err := k.Authenticate(t.Context(), token); err != nil || s.asked.Load() != before {
		t.Errorf("made-up tokens pushed the real key out: %v", err)
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	t.Parallel()
	s, k, _ := begin(t, Config{Kept: 3})
	tenant := newTenant(t, s)
	for range 6 {
		_, token := newToken(t, s, tenant, ScopeEventsRead)
		_, err := k.Authenticate(t.Context(), token)
		must(t, err)
	}
	if k.present.Len() != 3 {
		t.Errorf("%d keys are remembered", k.present.Len())
	}
}

func TestAnUnreachableStoreIsReported(t *testing.T) {
	t.Parallel()
	s, k, _ := begin(t, Config{})
	_, token := newToken(t, s, newTenant(t, s), ScopeEventsRead)
	s.network.Cut()
	if _, err := k.Authenticate(t.Context(), token); err == nil || code(err) == domain.CodeUnauthenticated {
		t.Errorf("got %v", err)
	}
}

func TestOperatorKeys(t *testing.T) {
	t.Parallel()
	plain := strings.Repeat("operator", 4)
	hashed := "another operator's key, of more than 32 bytes"
	sum := sha256.Sum256([]byte(hashed))
	var operators []OperatorKey
	for _, text := range []string{plain, "sha256:" + hex.EncodeToString(sum[:])} {
		key, err := ParseOperatorKey(text)
		must(t, err)
		operators = append(operators, key)
	}
	k, err := NewKeys(Config{Operators: operators})
	must(t, err)
	for _, token := range []string{plain, hashed} {
		got, err := k.Authenticate(t.Context(), token)
		must(t, err)
		must(t, got.Require(ScopeOperator))
		if !got.Operator || got.Tenant != domain.Everyone || code(got.Require(ScopeEventsRead)) != domain.CodeForbidden {
			t.Errorf("got %+v", got)
		}
	}
	for _, token := range []string{"", plain + "x", plain[1:], hex.EncodeToString(sum[:]), "sha256:" + hex.EncodeToString(sum[:])} {
		if _, err := k.Authenticate(t.Context(), token); code(err) != domain.CodeUnauthenticated {
			t.Errorf("%q gave %v", token, err)
		}
	}
	for _, text := range []string{"", "short", plain[:31], "mfk_" + plain, "sha256:", "sha256:ab", "sha256:" + strings.Repeat("x", 64)} {
		if _, err := ParseOperatorKey(text); err == nil || len(text) > 10 && strings.Contains(err.Error(), text) {
			t.Errorf("%q gave %v", text, err)
		}
	}
}
