package auth

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// otherSecret returns a token of the same key with a wrong secret.
func otherSecret(token string) string {
	at, wrong := len(token)-10, byte('A')
	if token[at] == wrong {
		wrong = 'B'
	}
	return token[:at] + string(wrong) + token[at+1:]
}

// A key stops working when it expires, also for open connections and tickets, although it is cached. Only callers that
// know the secret learn that it has expired.
func TestKeysExpire(t *testing.T) {
	t.Parallel()
	s, k, at := begin(t, Config{TTL: time.Hour})
	tenant := newTenant(t, s)
	key, token := NewKey(tenant, "short", GrantsOf(ScopeEventsRead))
	key.ExpiresAt = at.now().Add(time.Minute)
	must(t, s.CreateKey(t.Context(), key))
	holder, err := k.Authenticate(t.Context(), token)
	must(t, err)
	if !holder.ExpiresAt.Equal(key.ExpiresAt) {
		t.Errorf("it expires at %s", holder.ExpiresAt)
	}
	ticket := newTicket(t, s, holder, TicketLife)
	at.move(time.Minute - 1)
	_, err = k.Refresh(t.Context(), holder)
	must(t, err)
	at.move(1)
	for what, try := range map[string]func() (Credential, error){
		"the key":    func() (Credential, error) { return k.Authenticate(t.Context(), token) },
		"a refresh":  func() (Credential, error) { return k.Refresh(t.Context(), holder) },
		"its ticket": func() (Credential, error) { return k.AuthenticateTicket(t.Context(), ticket) },
	} {
		if got, err := try(); code(err) != domain.CodeUnauthenticated || !strings.Contains(err.Error(), "expired") || got.Name != "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, token := range []string{otherSecret(token), otherSecret(ticket)} {
		_, err := k.Authenticate(t.Context(), token)
		_, unknown := k.Authenticate(t.Context(), "mfk_unknown")
		if err == nil || err.Error() != unknown.Error() {
			t.Errorf("a wrong secret: %v", err)
		}
	}
	if n := s.asked.Load(); n != 1 {
		t.Errorf("asked the store %d times", n)
	}
	k.Forget(tenant)
	s.network.Cut()
	if _, err := k.Refresh(t.Context(), holder); code(err) != domain.CodeUnauthenticated {
		t.Errorf("a refresh while the database is away: %v", err)
	}
}

// A key with networks works only from their addresses, and so do its tickets.
func TestKeysWorkFromTheirNetworks(t *testing.T) {
	t.Parallel()
	var from atomic.Pointer[netip.Addr]
	s, k, _ := begin(t, Config{Address: func(context.Context) netip.Addr { return *from.Load() }})
	tenant := newTenant(t, s)
	key, token := NewKey(tenant, "office", GrantsOf(ScopeEventsRead))
	networks, err := ParseNetworks("networks", []string{"203.0.113.0/24", "2001:db8::/32"})
	must(t, err)
	key.Networks = networks
	must(t, s.CreateKey(t.Context(), key))
	inside := netip.MustParseAddr("203.0.113.7")
	from.Store(&inside)
	holder, err := k.Authenticate(t.Context(), token)
	must(t, err)
	ticket := newTicket(t, s, holder, TicketLife)
	for address, want := range map[string]domain.Code{
		"203.0.113.255": "", "2001:db8:1::1": "", "203.0.114.1": domain.CodeForbidden, "2001:db9::1": domain.CodeForbidden, "": domain.CodeForbidden,
	} {
		at, _ := netip.ParseAddr(address)
		from.Store(&at)
		_, err := k.Authenticate(t.Context(), token)
		_, byTicket := k.AuthenticateTicket(t.Context(), ticket)
		if code(err) != want || code(byTicket) != want || want != "" && !strings.Contains(err.Error(), address) {
			t.Errorf("from %s: %v; by a ticket: %v", address, err, byTicket)
		}
		if _, err := k.Authenticate(t.Context(), otherSecret(token)); code(err) != domain.CodeUnauthenticated {
			t.Errorf("a wrong secret from %s: %v", address, err)
		}
		if _, err := k.Refresh(t.Context(), holder); err != nil {
			t.Errorf("a connection that is open: %v", err)
		}
	}
}

func TestParseNetworks(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"203.0.113.7":         "write 203.0.113.7/32",
		"2001:db8::1":         "write 2001:db8::1/128",
		"203.0.113.7/24":      "write 203.0.113.0/24",
		"::ffff:10.0.0.0/104": "as IPv4",
		"fe80::1%eth0/64":     "is not a network",
		"example.com":         "is not a network",
		"10.0.0.0/33":         "is not a network",
		"":                    "is not a network",
		"10.0.0.0/8":          "duplicate",
	} {
		_, err := ParseNetworks("networks", []string{"10.0.0.0/8", text})
		if code(err) != domain.CodeInvalidRequest || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "networks[1]") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := ParseNetworks("networks", make([]string, MaxNetworks+1)); code(err) != domain.CodeInvalidRequest {
		t.Errorf("too many: %v", err)
	}
}

func TestCheckExpiry(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	must(t, CheckExpiry("expiresAt", now.Add(time.Second), now))
	must(t, CheckExpiry("expiresAt", now.Add(MaxLifetime), now))
	for _, at := range []time.Time{now, now.Add(-time.Hour), now.Add(MaxLifetime + 1), {}, now.AddDate(5000, 0, 0)} {
		if err := CheckExpiry("expiresAt", at, now); code(err) != domain.CodeInvalidRequest || !strings.Contains(err.Error(), "expiresAt") {
			t.Errorf("%s: %v", at, err)
		}
	}
}

// The last use is stored in the background, at most every ten minutes for each key, and without announcing a change.
func TestLastUse(t *testing.T) {
	t.Parallel()
	s, k, at := begin(t, Config{TTL: time.Hour})
	at.since.Store(time.Now().UnixNano())
	tenant := newTenant(t, s)
	key, token := newToken(t, s, tenant, ScopeEventsRead)
	use := func() {
		t.Helper()
		_, err := k.Authenticate(t.Context(), token)
		must(t, err)
	}
	stored := func() time.Time {
		t.Helper()
		got, _, err := s.Key(t.Context(), tenant, key.ID)
		must(t, err)
		return got.LastUsedAt
	}
	must(t, k.recordUses(t.Context()))
	if !stored().IsZero() {
		t.Error("a key that was never used has a last use")
	}
	_, err := k.Authenticate(t.Context(), otherSecret(token))
	if err == nil || len(k.uses) != 0 {
		t.Errorf("a wrong secret counts as a use: %v", err)
	}
	use()
	if !stored().IsZero() {
		t.Error("a request has stored the use")
	}
	notified := make(chan struct{}, 10)
	defer s.DB.KeysChanged.Add(func(domain.TenantID) { notified <- struct{}{} })()
	must(t, k.recordUses(t.Context()))
	first := stored()
	if first.IsZero() {
		t.Fatal("the use is not stored")
	}
	k.Forget(tenant)
	use()
	if len(k.uses) != 0 {
		t.Error("a use is noted soon after the stored one")
	}
	at.move(usePrecision + time.Minute)
	use()
	if len(k.uses) != 1 {
		t.Error("a use is not noted long after the stored one")
	}
	must(t, k.recordUses(t.Context())) // another process has stored it meanwhile, by the database's clock
	if !stored().Equal(first) {
		t.Error("a recent use is stored again")
	}
	use()
	s.network.Cut()
	if err := k.recordUses(t.Context()); err == nil || len(k.uses) != 1 {
		t.Errorf("without the database: %v, and %d uses are noted", err, len(k.uses))
	}
	use()
	if len(notified) != 0 {
		t.Error("a use is announced")
	}
	for range maxUses + 10 {
		k.noteUse(&APIKey{Tenant: tenant, ID: NewKeyID()})
	}
	if len(k.uses) > maxUses {
		t.Errorf("%d uses are kept", len(k.uses))
	}
}

// Of concurrent rotations of a key one succeeds. The new key has the old one's rights and lifetime.
func TestConcurrentRotations(t *testing.T) {
	t.Parallel()
	s, _, _ := begin(t, Config{})
	tenant := newTenant(t, s)
	old, _ := NewKey(tenant, "web", GrantsOf(ScopeEventsRead, ScopeEventsAppend))
	old.Networks, _ = ParseNetworks("networks", []string{"10.0.0.0/8"})
	old.CreatedAt = time.Now().Add(-20 * 24 * time.Hour).Truncate(time.Microsecond)
	old.ExpiresAt = old.CreatedAt.Add(30 * 24 * time.Hour)
	must(t, s.CreateKey(t.Context(), old))
	var made []APIKey
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			replacement, _ := NewKey(tenant, "", nil)
			created, err := s.RotateKey(t.Context(), old.ID, replacement, time.Hour)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				made = append(made, created)
			} else if code(err) != domain.CodeConflict || !strings.Contains(err.Error(), "already rotated") {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	keys, err := s.Keys(t.Context(), tenant, KeyID{}, 100)
	must(t, err)
	if len(made) != 1 || len(keys) != 2 {
		t.Fatalf("%d rotations succeeded, and there are %d keys", len(made), len(keys))
	}
	created, rotated := made[0], keys[0]
	if created.Name != old.Name || created.Grants.Texts()[1] != "events:append" || created.Networks[0] != old.Networks[0] ||
		created.ExpiresAt.Sub(created.CreatedAt) != 30*24*time.Hour {
		t.Errorf("the new key is %+v", created)
	}
	if left := time.Until(rotated.ExpiresAt); rotated.RotatedTo != created.ID || left > time.Hour || left < 50*time.Minute || !rotated.RevokedAt.IsZero() {
		t.Errorf("the old key is %+v", rotated)
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	s, _, _ := begin(t, Config{})
	tenant, other := newTenant(t, s), newTenant(t, s)
	rotate := func(of domain.TenantID, old KeyID, overlap time.Duration) (APIKey, error) {
		replacement, _ := NewKey(of, "", nil)
		return s.RotateKey(t.Context(), old, replacement, overlap)
	}
	get := func(id KeyID) APIKey {
		t.Helper()
		key, _, err := s.Key(t.Context(), tenant, id)
		must(t, err)
		return key
	}
	first, _ := newToken(t, s, tenant, ScopeEventsRead)
	second, err := rotate(tenant, first.ID, 0)
	must(t, err)
	if !second.ExpiresAt.IsZero() || get(first.ID).RevokedAt.IsZero() {
		t.Errorf("without an overlap: %+v, then %+v", get(first.ID), second)
	}
	if _, err := rotate(other, second.ID, 0); code(err) != domain.CodeNotFound {
		t.Errorf("another tenant's key: %v", err)
	}
	must(t, s.RevokeKey(t.Context(), tenant, second.ID))
	if _, err := rotate(tenant, second.ID, 0); code(err) != domain.CodeConflict || !strings.Contains(err.Error(), "revoked") {
		t.Errorf("a revoked key: %v", err)
	}

	soon, _ := NewKey(tenant, "soon", nil)
	soon.ExpiresAt = time.Now().Add(time.Hour).Truncate(time.Microsecond)
	must(t, s.CreateKey(t.Context(), soon))
	_, err = rotate(tenant, soon.ID, MaxOverlap)
	must(t, err)
	if at := get(soon.ID).ExpiresAt; !at.Equal(soon.ExpiresAt) {
		t.Errorf("a rotation prolongs the old key's life from %s to %s", soon.ExpiresAt, at)
	}
	past, _ := NewKey(tenant, "past", nil)
	past.CreatedAt, past.ExpiresAt = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	must(t, s.CreateKey(t.Context(), past))
	if _, err := rotate(tenant, past.ID, time.Hour); code(err) != domain.CodeConflict || !strings.Contains(err.Error(), "expired") {
		t.Errorf("an expired key: %v", err)
	}
}

// A key can be rotated at the quota of the tenant's plan, and its replacement counts instead of it.
func TestRotationNeedsNoRoomInThePlan(t *testing.T) {
	t.Parallel()
	s, _, _ := begin(t, Config{})
	tenant := newTenant(t, s)
	key, _ := newToken(t, s, tenant, ScopeEventsRead)
	_, err := s.db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(),
		`insert into manifold.tenant_limits (tenant_id, limits, quotas) values ($1, '{}', '{"keys": 1}')`, tenant)
	must(t, err)
	replacement, _ := NewKey(tenant, "", nil)
	_, err = s.RotateKey(t.Context(), key.ID, replacement, time.Hour)
	must(t, err)
	another, _ := NewKey(tenant, "", nil)
	if err := s.CreateKey(t.Context(), another); code(err) != domain.CodeQuotaExceeded || !strings.Contains(err.Error(), "has 1 keys") {
		t.Errorf("beyond the plan's quota: %v", err)
	}
}

// Keys that work count towards the quota, and a rotation with an overlap adds one. Expired keys do not count.
func TestRotationKeepsTheQuota(t *testing.T) {
	t.Parallel()
	s, _, _ := begin(t, Config{})
	tenant := newTenant(t, s)
	key, _ := newToken(t, s, tenant, ScopeEventsRead)
	fill := func(count int, expiresAt string) {
		t.Helper()
		_, err := s.db.Pool(t, pgtest.RoleSuperuser, 1).Exec(t.Context(), `
			insert into manifold.keys (tenant_id, key_id, name, hash, scopes, expires_at)
			select $1, gen_random_uuid(), 'filler', decode(repeat('00', 32), 'hex'), '{}', $3::timestamptz from generate_series(1, $2::int)`,
			tenant, count, expiresAt)
		must(t, err)
	}
	fill(MaxKeys-1, "infinity")
	fill(5, "2000-01-01")
	replacement, _ := NewKey(tenant, "", nil)
	if _, err := s.RotateKey(t.Context(), key.ID, replacement, time.Hour); code(err) != domain.CodeQuotaExceeded {
		t.Errorf("beyond the quota: %v", err)
	}
	_, err := s.RotateKey(t.Context(), key.ID, replacement, 0)
	must(t, err)
}
