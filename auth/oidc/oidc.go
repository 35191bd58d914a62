// Package oidc verifies the tokens of OpenID Connect issuers: signed JWTs, sent as bearer tokens.
//
// New takes the Issuers that are accepted. Verifier.Run loads and refreshes their keys, and Verifier.Verify turns the
// text of a token into a Token, whose Claims the caller maps to what the token may do. A token must be signed by a key
// that its issuer publishes, with an allowed asymmetric algorithm, for one of the configured audiences, and be valid
// now.
//
// Anyone can send tokens, so a bad one must cost little. Its size is limited, and it never causes a request to an
// issuer, except that a token of an accepted issuer with an unknown key makes the keys load again, at most every 30 s.
package oidc

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Issuer is an issuer whose tokens are accepted. Several may have the same URL, if no audience is in two of them.
type Issuer struct {
	Name       string        // for people, unique
	URL        string        // the claim iss of its tokens; its discovery document is below it
	Audience   []string      // a token must be for one of them
	Algorithms []string      // of Algorithms; none: DefaultAlgorithms
	Skew       time.Duration // by how much clocks may differ; 0: DefaultSkew
}

// Algorithms are the algorithms that can be allowed. All are asymmetric: a symmetric key would have to be shared, and a
// public key could be abused as one.
var Algorithms = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// DefaultAlgorithms are allowed unless an Issuer has others.
var DefaultAlgorithms = []string{"RS256", "ES256"}

// DefaultSkew is by how much clocks may differ unless an Issuer says otherwise.
const DefaultSkew = 30 * time.Second

// Token is a verified token. It must not be modified.
type Token struct {
	Issuer  string // the Name of its Issuer
	Subject string // unique among the issuer's
	Claims  Claims
	// ExpiresAt is when the token stops working: its claim exp, and the Issuer's Skew.
	ExpiresAt time.Time
}

// Config configures a Verifier.
type Config struct {
	Issuers []Issuer
	Log     *slog.Logger // nil: none

	now      func() time.Time // the clock, replaced in tests
	cooldown time.Duration    // replaces cooldown in tests
}

// Verifier verifies tokens. All methods are safe for concurrent use.
type Verifier struct {
	now     func() time.Time
	issuers map[string][]*issuer // by URL
	sets    []*keySet            // of each URL
	names   map[string]*keySet   // by the names of issuers
	client  *http.Client
}

// issuer is an Issuer with its keys.
type issuer struct {
	Issuer
	keys *keySet
}

// New returns a Verifier that has not loaded any keys. The Issuers must have been checked, as package config does.
func New(config Config) *Verifier {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.now == nil {
		config.now = time.Now
	}
	if config.cooldown == 0 {
		config.cooldown = cooldown
	}
	v := &Verifier{now: config.now, issuers: map[string][]*issuer{}, names: map[string]*keySet{}, client: newClient()}
	for _, given := range config.Issuers {
		if len(given.Algorithms) == 0 {
			given.Algorithms = DefaultAlgorithms
		}
		if given.Skew == 0 {
			given.Skew = DefaultSkew
		}
		same := v.issuers[given.URL]
		var keys *keySet
		if len(same) > 0 {
			keys = same[0].keys
		} else {
			keys = newKeySet(given.URL, v.client, config)
			v.sets = append(v.sets, keys)
		}
		v.issuers[given.URL] = append(same, &issuer{given, keys})
		v.names[given.Name] = keys
	}
	return v
}

// Run loads the keys of each issuer, and refreshes them, until ctx ends. It then returns nil. An issuer that does not
// answer is logged and asked again. Its old keys stay valid.
func (v *Verifier) Run(ctx context.Context) error {
	defer v.client.CloseIdleConnections()
	var running sync.WaitGroup
	for _, keys := range v.sets {
		running.Go(func() { keys.run(ctx) })
	}
	running.Wait()
	return nil
}

// Load loads the keys of each issuer once. It is for programs that verify few tokens; others call Run. Beside Run, it
// waits for a load that is under way.
func (v *Verifier) Load(ctx context.Context) {
	defer v.client.CloseIdleConnections()
	var loading sync.WaitGroup
	for _, keys := range v.sets {
		loading.Go(func() { keys.load(ctx) })
	}
	loading.Wait()
}

// State is the state of an issuer's keys.
type State struct {
	Name     string
	URL      string
	Keys     int           // that can verify tokens
	LoadedAt time.Time     // when the keys were last loaded; zero: never
	Age      time.Duration // since LoadedAt, or since New if they were never loaded
	Err      error         // why the latest attempt failed; nil if it succeeded or none has ended
}

// States returns the state of each issuer, sorted by name.
func (v *Verifier) States() []State {
	states := make([]State, 0, len(v.names))
	for _, name := range slices.Sorted(maps.Keys(v.names)) {
		state := v.names[name].state()
		state.Name = name
		states = append(states, state)
	}
	return states
}

// Endpoints returns the endpoints at which clients sign in with the issuer of this name, or false while they are
// unknown.
func (v *Verifier) Endpoints(name string) (Endpoints, bool) {
	keys := v.names[name]
	if keys == nil {
		return Endpoints{}, false
	}
	return keys.knownEndpoints()
}
