package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"github.com/manifold-es/manifold/domain"
)

// Store is where keys and tickets are kept.
type Store interface {
	// Key returns a key, also a revoked one, and its tenant's state; domain.CodeNotFound where there is none.
	Key(ctx context.Context, tenant domain.TenantID, id domain.KeyID) (domain.APIKey, domain.TenantState, error)
	// Ticket returns a ticket that has not expired; domain.CodeNotFound where there is none.
	Ticket(ctx context.Context, tenant domain.TenantID, id domain.TicketID) (domain.Ticket, error)
}

// Config says how keys are found. All but the store may be zero.
type Config struct {
	Store     Store
	Operators []OperatorKey
	Kept      int           // keys remembered; 0: 10,000
	TTL       time.Duration // how long a key is remembered when no notice comes; 0: 30 s
	AbsentTTL time.Duration // how long it is remembered that there is no such key; 0: 2 s

	now func() time.Time // the clock, for tests
}

// absentKept is how many keys that are not there are remembered. They have a place of their own, so that made-up tokens
// push no real key out, and it is small, so that they take no memory.
const absentKept = 1000

// lookUpTimeout bounds one look-up, which may serve several requests and therefore outlasts each of them.
const lookUpTimeout = 10 * time.Second

// maxLookUps is how many look-ups run at the same time. Made-up tokens, which anybody can send, take no more of the store's
// connections than that.
const maxLookUps = 2

// Keys tells whose a token is. It remembers the keys that it has lately seen; Forget makes it ask again. All methods may
// be called concurrently.
type Keys struct {
	config  Config
	flights singleflight.Group
	lookUps chan struct{} // an element for each look-up that runs

	mu         sync.Mutex
	generation uint64 // how often something was forgotten: what was asked before is not to be remembered after
	present    *lru.Cache[keyName, entry]
	absent     *lru.Cache[keyName, entry]
}

// keyName is what a token says of the key that it is of.
type keyName struct {
	tenant domain.TenantID
	id     domain.KeyID
}

// entry is what the store answered.
type entry struct {
	found  bool
	key    domain.APIKey
	tenant domain.TenantState
	until  time.Time // it may be used before this moment
}

// NewKeys returns Keys that have seen nothing yet.
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
	k := &Keys{config: config, lookUps: make(chan struct{}, maxLookUps)}
	var err error
	if k.present, err = lru.New[keyName, entry](config.Kept); err != nil {
		return nil, fmt.Errorf("keys remembered: %w", err)
	}
	if k.absent, err = lru.New[keyName, entry](absentKept); err != nil {
		return nil, fmt.Errorf("keys remembered: %w", err)
	}
	return k, nil
}

// Authenticate returns the credential that a token is of. A token of no key, or of a revoked one, is
// domain.CodeUnauthenticated, and nothing tells which; a tenant that is not active is domain.CodeTenantSuspended. Where
// the store cannot be asked, its error is returned.
func (k *Keys) Authenticate(ctx context.Context, token string) (Credential, error) {
	tenant, id, secret, ok := parseToken(TokenPrefix, token)
	if !ok {
		if isOperator(k.config.Operators, token) {
			return Credential{Name: "operator", Grants: operatorGrants, Operator: true}, nil
		}
		return Credential{}, unauthenticated()
	}
	name := keyName{tenant, domain.KeyID(id)}
	found, err := k.find(ctx, name)
	if err != nil {
		return Credential{}, err
	}
	// Also without a key there is a comparison, with a hash that nothing has, so that the time tells nothing.
	hash := sha256.Sum256(secret[:])
	if subtle.ConstantTimeCompare(hash[:], found.key.Hash[:]) != 1 {
		return Credential{}, unauthenticated()
	}
	return found.credential(name, unauthenticated)
}

// Again looks at a credential's key again, for what lasts: the key may have been revoked, and may do something else now.
// Errors are those of Authenticate.
func (k *Keys) Again(ctx context.Context, of Credential) (Credential, error) {
	if of.Operator {
		return of, nil // its keys are those of the process
	}
	name := keyName{of.Tenant, of.KeyID}
	found, err := k.find(ctx, name)
	if err != nil {
		return Credential{}, err
	}
	return found.credential(name, unauthenticated)
}

// credential is what the holder of a key may do; refused makes the error where there is no such key, or a revoked one.
func (e entry) credential(name keyName, refused func() error) (Credential, error) {
	switch {
	case !e.found || !e.key.RevokedAt.IsZero():
		return Credential{}, refused()
	case e.tenant != domain.TenantActive:
		return Credential{}, domain.Errorf(domain.CodeTenantSuspended, "", "the tenant of this key is suspended or is being deleted; ask the operator")
	}
	return Credential{Tenant: name.tenant, KeyID: name.id, Name: e.key.Name, Grants: e.key.Grants}, nil
}

// operatorGrants are all that an operator's key may do.
var operatorGrants = domain.GrantsOf(domain.ScopeOperator)

// Forget makes Keys ask the store again for the keys of a tenant, or for all keys with domain.Everyone. An answer that
// is under way is not used for calls that come after it.
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

// find returns what is known of a key, and asks the store where nothing is; several callers who want one key share one
// look-up.
func (k *Keys) find(ctx context.Context, name keyName) (entry, error) {
	found, ok, generation := k.recall(name)
	if ok {
		return found, nil
	}
	flight := fmt.Sprintf("%s %s %d", name.tenant, name.id, generation)
	answer := k.flights.DoChan(flight, func() (any, error) {
		if found, ok, _ := k.recall(name); ok {
			return found, nil // another flight has just landed
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

// recall returns what is remembered of a key, and the generation in which a look-up would begin.
func (k *Keys) recall(name keyName) (found entry, ok bool, generation uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if found, ok = k.present.Get(name); !ok {
		found, ok = k.absent.Get(name)
	}
	return found, ok && k.config.now().Before(found.until), k.generation
}

// beginLookUp waits for a turn to ask the store. Unless it fails, done must be called after.
func (k *Keys) beginLookUp(ctx context.Context) (done func(), err error) {
	select {
	case k.lookUps <- struct{}{}:
		return func() { <-k.lookUps }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for other look-ups of keys: %w", ctx.Err())
	}
}

// lookUp asks the store and remembers its answer, unless something was forgotten meanwhile.
func (k *Keys) lookUp(ctx context.Context, name keyName, generation uint64) (entry, error) {
	done, err := k.beginLookUp(ctx)
	if err != nil {
		return entry{}, err
	}
	defer done()
	asked := k.config.now()
	found := entry{found: true, until: asked.Add(k.config.TTL)}
	cache, other := k.present, k.absent
	found.key, found.tenant, err = k.config.Store.Key(ctx, name.tenant, name.id)
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
	return domain.Errorf(domain.CodeUnauthenticated, "Authorization", "this key does not work; send a key that has not been revoked as: Authorization: Bearer mfk_...")
}
