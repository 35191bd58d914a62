package oidc

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/manifold-es/manifold/domain"
)

const (
	// refreshEvery is the time between two loads of an issuer's keys. A key that the issuer withdraws works for so
	// long.
	refreshEvery = 5 * time.Minute
	// cooldown is the shortest time between two loads: after a failure, and for unknown keys, which anyone can name.
	cooldown = 30 * time.Second
	// keyPatience is how long a request waits for keys that are being loaded.
	keyPatience = 5 * time.Second
	// maxWaiting is how many requests wait for an issuer's keys. Further ones are refused at once.
	maxWaiting = 100
	// maxKeys is how many keys of an issuer are used.
	maxKeys = 100
	// minRSABits and maxRSABits limit RSA keys: short ones can be broken, and long ones cost time.
	minRSABits, maxRSABits = 2048, 8192
)

// errNoKeys is the error of an issuer that answers, but publishes no key that can verify tokens.
var errNoKeys = errors.New("none can verify tokens")

// keySet has the keys that an issuer publishes. A load replaces them, also by none. A failed one keeps them.
type keySet struct {
	url       string
	client    *http.Client
	log       *slog.Logger
	now       func() time.Time
	cooldown  time.Duration
	createdAt time.Time
	wake      chan struct{}
	waiting   chan struct{} // one element per waiting request

	serial sync.Mutex // held during a load

	mu        sync.Mutex
	keys      []jose.JSONWebKey
	endpoints Endpoints
	loadedAt  time.Time
	triedAt   time.Time
	err       error         // of the latest attempt
	loading   chan struct{} // closed when the load that is requested or under way has ended; nil: none
}

// newKeySet returns an empty set. Its first load counts as requested, so that the first tokens wait for it.
func newKeySet(url string, client *http.Client, config Config) *keySet {
	return &keySet{
		url: url, client: client, log: config.Log, now: config.now, cooldown: config.cooldown, createdAt: config.now(),
		wake: make(chan struct{}, 1), waiting: make(chan struct{}, maxWaiting), loading: make(chan struct{}),
	}
}

// run loads the keys: at once, then regularly, and when a token has an unknown key.
func (k *keySet) run(ctx context.Context) {
	for {
		next := k.load(ctx)
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-time.After(next + rand.N(next/5)): // processes must not ask all at once
		}
	}
}

// load loads the keys once. It returns the time until the next load.
func (k *keySet) load(ctx context.Context) time.Duration {
	k.serial.Lock()
	defer k.serial.Unlock()
	k.mu.Lock()
	if k.loading == nil {
		k.loading = make(chan struct{})
	}
	select {
	case <-k.wake: // this is the load that was requested
	default:
	}
	k.mu.Unlock()
	keys, endpoints, err := k.fetch(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	failedBefore := k.err != nil
	k.err, k.triedAt = err, k.now()
	if err == nil || errors.Is(err, errNoKeys) {
		k.keys, k.endpoints, k.loadedAt = keys, endpoints, k.triedAt
	}
	close(k.loading)
	k.loading = nil
	switch {
	case ctx.Err() != nil:
	case err != nil && !failedBefore:
		k.log.Warn("the keys of an issuer of tokens could not be loaded; tried again every "+cooldown.String(), "issuer", k.url, "oldKeys", len(k.keys), "error", err)
	case err == nil && failedBefore:
		k.log.Info("the keys of an issuer of tokens are loaded again", "issuer", k.url, "keys", len(keys))
	}
	if err != nil {
		return k.cooldown
	}
	return refreshEvery
}

// fetch reads the issuer's discovery document and its keys. With errNoKeys the answer is valid: the issuer has
// withdrawn its keys.
func (k *keySet) fetch(ctx context.Context) ([]jose.JSONWebKey, Endpoints, error) {
	found, err := discover(ctx, k.client, k.url)
	if err != nil {
		return nil, Endpoints{}, err
	}
	var set struct{ Keys *[]json.RawMessage }
	if err := fetch(ctx, k.client, found.Keys, &set); err != nil {
		return nil, Endpoints{}, err
	}
	if set.Keys == nil {
		return nil, Endpoints{}, fmt.Errorf("%s is not a set of keys: it has no list \"keys\"", found.Keys)
	}
	var keys []jose.JSONWebKey
	for _, text := range *set.Keys {
		var key jose.JSONWebKey
		if json.Unmarshal(text, &key) == nil && usable(key) && len(keys) < maxKeys {
			keys = append(keys, key.Public())
		}
	}
	if len(keys) == 0 {
		return nil, found.Endpoints, fmt.Errorf("%s has %d keys, and %w", found.Keys, len(*set.Keys), errNoKeys)
	}
	return keys, found.Endpoints, nil
}

// usable reports whether a key is for signatures, asymmetric and neither weak nor expensive.
func usable(key jose.JSONWebKey) bool {
	if key.Use != "" && key.Use != "sig" || !key.Valid() {
		return false
	}
	switch public := key.Public().Key.(type) {
	case *rsa.PublicKey:
		return public.N.BitLen() >= minRSABits && public.N.BitLen() <= maxRSABits
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false
}

// fits reports whether a key can be the one of a token with the algorithm.
func fits(key jose.JSONWebKey, algorithm string) bool {
	if key.Algorithm != "" && key.Algorithm != algorithm {
		return false
	}
	switch public := key.Key.(type) {
	case *rsa.PublicKey:
		return strings.HasPrefix(algorithm, "RS") || strings.HasPrefix(algorithm, "PS")
	case *ecdsa.PublicKey:
		return algorithm == map[string]string{"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}[public.Params().Name]
	case ed25519.PublicKey:
		return algorithm == "EdDSA"
	}
	return false
}

// find returns the key of a token. If there is none, it waits for a load of the keys, unless the last one is recent. id
// may be empty if only one key fits. While the issuer's current keys are unknown, it returns
// domain.CodeIssuerUnavailable.
func (k *keySet) find(ctx context.Context, id, algorithm string) (jose.JSONWebKey, error) {
	key, ok, loading := k.known(id, algorithm)
	if !ok && loading != nil {
		k.wait(ctx, loading)
		k.mu.Lock()
		key, ok = k.match(id, algorithm)
		k.mu.Unlock()
	}
	if ok {
		return key, nil
	}
	if ctx.Err() != nil {
		return key, ctx.Err()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case loading != nil && k.loading == loading:
		return key, unavailable("the keys of its issuer are still being loaded; try again")
	case k.err != nil && !errors.Is(k.err, errNoKeys) || k.loadedAt.IsZero():
		return key, unavailable("the keys of its issuer could not be loaded; try again, and if it persists, ask the operator")
	}
	return key, refused("its issuer has not published the key that it names (%q)", domain.Clip(id, 100))
}

// unavailable returns the error for a token that can perhaps be verified later.
func unavailable(why string) error {
	return domain.Errorf(domain.CodeIssuerUnavailable, "Authorization", "this token cannot be verified: %s", why)
}

// known returns the key of a token. If there is none, it requests a load, unless the last one is recent, and returns
// the channel that is closed after the load.
func (k *keySet) known(id, algorithm string) (key jose.JSONWebKey, ok bool, loading chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if key, ok = k.match(id, algorithm); ok {
		return key, true, nil
	}
	if k.loading == nil && k.now().Sub(k.triedAt) >= k.cooldown {
		k.loading = make(chan struct{})
		k.wake <- struct{}{} // it has room: load takes it before loading is nil again
	}
	return key, false, k.loading
}

// match returns the key of a token. The lock is held.
func (k *keySet) match(id, algorithm string) (found jose.JSONWebKey, ok bool) {
	for _, key := range k.keys {
		if id != "" && key.KeyID != id || !fits(key, algorithm) {
			continue
		}
		if ok && id == "" {
			return jose.JSONWebKey{}, false // any of several
		}
		found, ok = key, true
	}
	return found, ok
}

// wait waits until a load has ended, but at most for keyPatience. The number of waiting requests is limited; it does
// not wait with a further one.
func (k *keySet) wait(ctx context.Context, loading <-chan struct{}) {
	select {
	case k.waiting <- struct{}{}:
		defer func() { <-k.waiting }()
	default:
		return
	}
	ctx, cancel := context.WithTimeout(ctx, keyPatience)
	defer cancel()
	select {
	case <-loading:
	case <-ctx.Done():
	}
}

func (k *keySet) state() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.err
	if err == nil && k.loadedAt.IsZero() {
		err = errors.New("its keys have not been loaded yet")
	}
	since := k.loadedAt
	if since.IsZero() {
		since = k.createdAt
	}
	return State{URL: k.url, Keys: len(k.keys), LoadedAt: k.loadedAt, Age: k.now().Sub(since), Err: err}
}

func (k *keySet) knownEndpoints() (Endpoints, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.endpoints, !k.loadedAt.IsZero()
}
