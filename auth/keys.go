package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"github.com/manifold-es/manifold/auth/oidc"
	"github.com/manifold-es/manifold/domain"
)

// Config configures Keys. Every field except Store may be zero.
type Config struct {
	Store     *Postgres
	Operators []OperatorKey
	// Tokens verifies tokens, for which TokenRules has the rules of each issuer by its name. nil: no token is accepted.
	Tokens     *oidc.Verifier
	TokenRules map[string]TokenRules
	// Address returns the client address of the request with the context, or the zero Addr if it is unknown. Without
	// Address, keys with networks are refused.
	Address   func(ctx context.Context) netip.Addr
	Log       *slog.Logger  // nil: none
	Kept      int           // number of cached keys; 0: 10,000
	TTL       time.Duration // how long a key is cached if no notification arrives; 0: 30 s
	AbsentTTL time.Duration // how long the absence of a key is cached; 0: 2 s

	now func() time.Time // the clock, replaced in tests
}

// absentKept is how many absent keys are cached. They have a separate cache so that made-up tokens do not evict real
// keys. The cache is small so that they use little memory.
const absentKept = 1000

// lookUpTimeout limits one look-up. A look-up may serve several requests and therefore outlives each of them.
const lookUpTimeout = 10 * time.Second

// Keys authenticates tokens and caches the keys it has recently seen. Forget removes them from the cache. All methods
// are safe for concurrent use.
type Keys struct {
	config  Config
	flights singleflight.Group

	mu         sync.Mutex
	generation uint64 // counts calls of Forget; answers to look-ups from before the last call are not cached
	present    *lru.Cache[keyName, entry]
	absent     *lru.Cache[keyName, entry]

	usesMu sync.Mutex
	uses   map[keyName]struct{} // keys whose use is to be recorded
}

// keyName identifies a key: the part of a token without the secret. Without an id it names the tenant alone.
type keyName struct {
	tenant domain.TenantID
	id     KeyID
}

// entry is a cached answer of the store.
type entry struct {
	found  bool
	key    APIKey
	tenant domain.TenantState
	until  time.Time // the entry is valid before this time
}

// NewKeys returns Keys with an empty cache.
func NewKeys(config Config) (*Keys, error) {
	if config.Kept == 0 {
		config.Kept = 10_000
	}
	if config.TTL == 0 {
		config.TTL = 30 * time.Second
	}
	if config.AbsentTTL == 0 {
		config.AbsentTTL = 2 * time.Second
	}
	if config.now == nil {
		config.now = time.Now
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	k := &Keys{config: config, uses: map[keyName]struct{}{}}
	var err error
	if k.present, err = lru.New[keyName, entry](config.Kept); err != nil {
		return nil, fmt.Errorf("keys remembered: %w", err)
	}
	if k.absent, err = lru.New[keyName, entry](absentKept); err != nil {
		return nil, fmt.Errorf("keys remembered: %w", err)
	}
	return k, nil
}

// Authenticate returns the credential of a key's token, or of an issuer's. It returns domain.CodeUnauthenticated for an
// unknown or revoked key, without saying which, and for an expired key; domain.CodeTenantSuspended if the tenant is not
// active; and domain.CodeForbidden if the client address of ctx's request is in none of the key's networks. For an
// issuer's token, it returns the errors of oidc.Verifier.Verify, and domain.CodeForbidden if the token gives access to
// nothing. If the store fails, it returns the store's error.
func (k *Keys) Authenticate(ctx context.Context, token string) (Credential, error) {
	tenant, id, secret, ok := parseToken(TokenPrefix, token)
	if !ok {
		if isOperator(k.config.Operators, token) {
			return operatorCredential("operator", RoleAdmin), nil
		}
		if k.config.Tokens != nil && oidc.IsToken(token) {
			return k.authenticateToken(ctx, token)
		}
		return Credential{}, unauthenticated()
	}
	name := keyName{tenant, KeyID(id)}
	found, err := k.find(ctx, name)
	if err != nil {
		return Credential{}, err
	}
	// The comparison also runs if there is no key, with an impossible hash, so that the time reveals nothing.
	hash := sha256.Sum256(secret[:])
	if subtle.ConstantTimeCompare(hash[:], found.key.Hash[:]) != 1 {
		return Credential{}, unauthenticated()
	}
	credential, err := k.admit(ctx, found, name, unauthenticated)
	return credential, asDenial(err, Credential{Tenant: tenant, KeyID: name.id, Name: found.key.Name}, found.tenant)
}

// Refresh reads a credential's key again, for long-lived connections: the key may have expired or been revoked. It does
// not check the client's address, which does not change. A token is not verified again, but may have expired. Other
// errors are those of Authenticate. What has expired is refused also while the store fails.
func (k *Keys) Refresh(ctx context.Context, of Credential) (Credential, error) {
	if err := k.checkExpiry(of); err != nil {
		return Credential{}, err
	}
	if of.IsToken() {
		return k.refreshToken(ctx, of)
	}
	if of.Operator {
		return of, nil // operator keys do not change while the process runs
	}
	name := keyName{of.Tenant, of.KeyID}
	found, err := k.find(ctx, name)
	if err != nil {
		return Credential{}, err
	}
	credential, err := k.credential(found, name, unauthenticated)
	if err != nil {
		return Credential{}, err
	}
	k.noteUse(&found.key)
	return credential, nil
}

// admit returns the credential for an entry's key, if the key works from the client's address, and notes the use.
// refused makes the error for an absent or revoked key.
func (k *Keys) admit(ctx context.Context, found entry, name keyName, refused func() error) (Credential, error) {
	credential, err := k.credential(found, name, refused)
	if err != nil {
		return Credential{}, err
	}
	if err := k.checkAddress(ctx, &found.key); err != nil {
		return Credential{}, err
	}
	k.noteUse(&found.key)
	return credential, nil
}

// credential returns the credential for an entry's key. A cached entry may be older than the key's expiry.
func (k *Keys) credential(found entry, name keyName, refused func() error) (Credential, error) {
	key := &found.key
	if !found.found || !key.RevokedAt.IsZero() {
		return Credential{}, refused()
	}
	credential := Credential{
		Tenant: name.tenant, KeyID: name.id, Name: key.Name, Grants: key.Grants, Networks: key.Networks, ExpiresAt: key.ExpiresAt,
		Limits: key.Limits,
	}
	if err := k.checkExpiry(credential); err != nil {
		return Credential{}, err
	}
	return credential, checkState(found.tenant, "key")
}

// checkExpiry returns an error for a credential that has expired.
func (k *Keys) checkExpiry(of Credential) error {
	if of.ExpiresAt.IsZero() || k.config.now().Before(of.ExpiresAt) {
		return nil
	}
	return domain.Errorf(domain.CodeUnauthenticated, "Authorization", "this %s expired at %s; send another", of.kind(), of.ExpiresAt.Format(time.RFC3339))
}

// checkState returns an error unless a tenant in the state may send requests. kind is what has authenticated one.
func checkState(state domain.TenantState, kind string) error {
	if state == domain.TenantActive {
		return nil
	}
	return domain.Errorf(domain.CodeTenantSuspended, "", "the tenant of this %s is suspended or is being deleted; ask the operator", kind)
}

// Forget removes the keys of a tenant from the cache, or all keys for domain.Everyone. A look-up that is already
// running is not used for calls that start after Forget.
func (k *Keys) Forget(tenant domain.TenantID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.generation++
	if tenant == domain.Everyone {
		k.present.Purge()
		k.absent.Purge()
		return
	}
	for _, cache := range []*lru.Cache[keyName, entry]{k.present, k.absent} {
		for _, name := range cache.Keys() {
			if name.tenant == tenant {
				cache.Remove(name)
			}
		}
	}
}

// find returns the cached entry of a key, or asks the store. Concurrent callers for one key share one look-up.
func (k *Keys) find(ctx context.Context, name keyName) (entry, error) {
	found, ok, generation := k.recall(name)
	if ok {
		return found, nil
	}
	flight := fmt.Sprintf("%s %s %d", name.tenant, name.id, generation)
	answer := k.flights.DoChan(flight, func() (any, error) {
		if found, ok, _ := k.recall(name); ok {
			return found, nil // another call has just filled the cache
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookUpTimeout)
		defer cancel()
		return k.lookUp(ctx, name, generation)
	})
	select {
	case <-ctx.Done():
		return entry{}, ctx.Err()
	case result := <-answer:
		if result.Err != nil {
			return entry{}, result.Err
		}
		return result.Val.(entry), nil
	}
}

// recall returns the cached entry of a key and the current generation, which a look-up must pass on.
func (k *Keys) recall(name keyName) (found entry, ok bool, generation uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if found, ok = k.present.Get(name); !ok {
		found, ok = k.absent.Get(name)
	}
	return found, ok && k.config.now().Before(found.until), k.generation
}

// lookUp queries the store and caches the answer, unless Forget was called meanwhile.
func (k *Keys) lookUp(ctx context.Context, name keyName, generation uint64) (entry, error) {
	asked := k.config.now()
	found := entry{found: true, until: asked.Add(k.config.TTL)}
	cache, other := k.present, k.absent
	var err error
	if (name.id == KeyID{}) {
		found.tenant, err = k.config.Store.tenantState(ctx, name.tenant)
	} else {
		found.key, found.tenant, err = k.config.Store.Key(ctx, name.tenant, name.id)
	}
	if problem, ok := errors.AsType[*domain.Error](err); ok && problem.Code == domain.CodeNotFound {
		found = entry{until: asked.Add(k.config.AbsentTTL)}
		cache, other = k.absent, k.present
	} else if err != nil {
		return entry{}, fmt.Errorf("look up a key: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if generation == k.generation {
		cache.Add(name, found)
		other.Remove(name)
	}
	return found, nil
}

func unauthenticated() error {
	return domain.Errorf(domain.CodeUnauthenticated, "Authorization", "this key does not work: it is unknown or was revoked; send another")
}
