package oidc

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/manifold-es/manifold/auth/oidc/oidctest"
	"github.com/manifold-es/manifold/domain"
)

// begin starts a Verifier for providers, each with the audience "manifold". Its clock is off by skew.
func begin(t testing.TB, config Config, providers ...*oidctest.Provider) (*Verifier, *atomic.Int64) {
	t.Helper()
	for i, provider := range providers {
		config.Issuers = append(config.Issuers, Issuer{Name: fmt.Sprintf("issuer-%d", i+1), URL: provider.URL, Audience: []string{"manifold"}})
	}
	var skew atomic.Int64
	config.now = func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
	v := New(config)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = v.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return v, &skew
}

// wantRefused fails the test unless the token is refused as unauthenticated, for a reason with these words.
func wantRefused(t *testing.T, v *Verifier, what, token, reason string) {
	t.Helper()
	_, err := v.Verify(t.Context(), token)
	e, ok := errors.AsType[*domain.Error](err)
	if !ok || e.Code != domain.CodeUnauthenticated || !strings.Contains(e.Message, reason) || e.Where != "Authorization" {
		t.Errorf("%s: %v, want a refusal with %q", what, err, reason)
	}
}

func wantAccepted(t *testing.T, v *Verifier, what, token string) Token {
	t.Helper()
	accepted, err := v.Verify(t.Context(), token)
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	return accepted
}

func TestTokensOfSeveralIssuersAreVerified(t *testing.T) {
	t.Parallel()
	one, two := oidctest.Start(t), oidctest.Start(t)
	two.Publish(oidctest.NewKey(t, jose.ES256))
	v, _ := begin(t, Config{Issuers: []Issuer{{Name: "operators", URL: one.URL, Audience: []string{"manifold-operators"}, Algorithms: []string{"RS256"}}}}, one, two)
	for name, token := range map[string]string{
		"issuer-1":  one.Token(oidctest.Claims{"aud": []string{"other", "manifold"}, "sub": "ann"}),
		"issuer-2":  two.Token(oidctest.Claims{"sub": "ann"}),
		"operators": one.Token(oidctest.Claims{"aud": "manifold-operators", "sub": "ann"}),
	} {
		got := wantAccepted(t, v, name, token)
		if got.Issuer != name || got.Subject != "ann" || got.Claims["sub"] != "ann" {
			t.Errorf("%s: %+v", name, got)
		}
		if left := time.Until(got.ExpiresAt); left < 59*time.Minute || left > time.Hour+DefaultSkew {
			t.Errorf("%s expires in %s", name, left)
		}
	}
}

// hostile returns tokens that must be refused, each with a part of the reason.
func hostile(t testing.TB, provider, stranger *oidctest.Provider) map[string][2]string {
	t.Helper()
	key := provider.Key()
	typ := map[jose.HeaderKey]any{"typ": "JWT"}
	token := func(more oidctest.Claims) string { return provider.Token(more) }
	valid := token(nil)
	parts := strings.Split(valid, ".")
	encode := base64.RawURLEncoding.EncodeToString
	now := time.Now().Unix()

	// The public key as the secret of HS256, in the forms in which a confused verifier would have it.
	public := key.Public().Key.(*rsa.PublicKey)
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	confused := func(secret []byte) string {
		return oidctest.Sign(t, jose.JSONWebKey{Key: secret, KeyID: key.KeyID, Algorithm: "HS256"}, typ, provider.Claims(nil))
	}
	ownKey := oidctest.NewKey(t, jose.RS256)
	ownKey.KeyID = key.KeyID
	embedded := ownKey.Public()
	psKey := key
	psKey.Algorithm = "PS256"

	return map[string][2]string{
		"nothing":                        {"", "not a signed JWT"},
		"one part":                       {"a", "not a signed JWT"},
		"empty parts":                    {"..", "not a JWT signed"},
		"four parts":                     {valid + ".a", "not a signed JWT"},
		"an encrypted token":             {"a.b.c.d.e", "not a signed JWT"},
		"spaces":                         {" " + valid, "not a JWT signed"},
		"alg none":                       {encode([]byte(`{"alg":"none","typ":"JWT"}`)) + "." + parts[1] + ".", "not a JWT signed"},
		"alg None, with the signature":   {encode([]byte(`{"alg":"None","kid":"`+key.KeyID+`"}`)) + "." + parts[1] + "." + parts[2], "not a JWT signed"},
		"no alg":                         {encode([]byte(`{"typ":"JWT"}`)) + "." + parts[1] + "." + parts[2], "not a JWT signed"},
		"HS256 with the public key, DER": {confused(der), "not a JWT signed"},
		"HS256 with the public key, PEM": {confused(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), "not a JWT signed"},
		"an algorithm that is possible, but not allowed": {oidctest.Sign(t, psKey, typ, provider.Claims(nil)), "PS256 is not allowed"},
		"another key with the same id":                   {oidctest.Sign(t, ownKey, typ, provider.Claims(nil)), "signature"},
		"its own key in the header":                      {oidctest.Sign(t, ownKey, map[jose.HeaderKey]any{"jwk": embedded}, provider.Claims(nil)), "signature"},
		"the URL of its own key":                         {oidctest.Sign(t, ownKey, map[jose.HeaderKey]any{"jku": "https://evil.example/keys"}, provider.Claims(nil)), "signature"},
		"a critical extension":                           {oidctest.Sign(t, key, map[jose.HeaderKey]any{"crit": []string{"b64"}, "b64": true}, provider.Claims(nil)), ""},
		"the type of a logout token":                     {oidctest.Sign(t, key, map[jose.HeaderKey]any{"typ": "logout+jwt"}, provider.Claims(nil)), "type"},
		"a type that is no text":                         {oidctest.Sign(t, key, map[jose.HeaderKey]any{"typ": 1}, provider.Claims(nil)), "type"},
		"another payload":                                {parts[0] + "." + encode([]byte(`{"iss":"`+provider.URL+`","aud":"manifold","sub":"x","exp":`+fmt.Sprint(now+1000)+`}`)) + "." + parts[2], "signature"},
		"no signature":                                   {parts[0] + "." + parts[1] + ".", "signature"},
		"another issuer":                                 {stranger.Token(nil), "is not accepted here"},
		"another issuer under the name of ours":          {stranger.Token(oidctest.Claims{"iss": provider.URL}), "has not published the key"},
		"our issuer with a slash":                        {token(oidctest.Claims{"iss": provider.URL + "/"}), "is not accepted here"},
		"no issuer":                                      {token(oidctest.Claims{"iss": nil}), "is not accepted here"},
		"issuers in a list":                              {token(oidctest.Claims{"iss": []string{provider.URL}}), "is not accepted here"},
		"another audience":                               {token(oidctest.Claims{"aud": "other"}), "audience"},
		"no audience":                                    {token(oidctest.Claims{"aud": nil}), "audience"},
		"an empty audience":                              {token(oidctest.Claims{"aud": ""}), "audience"},
		"audiences in one text":                          {token(oidctest.Claims{"aud": "other manifold"}), "audience"},
		"an expired one":                                 {token(oidctest.Claims{"exp": now - 31}), "it expired at"},
		"no expiry":                                      {token(oidctest.Claims{"exp": nil}), "no expiry"},
		"an expiry in a text":                            {token(oidctest.Claims{"exp": fmt.Sprint(now + 1000)}), "exp is not a time"},
		"an expiry after all times":                      {token(oidctest.Claims{"exp": math.MaxFloat64}), "exp is not a time"},
		"not yet valid":                                  {token(oidctest.Claims{"nbf": now + 40}), "(nbf)"},
		"from the future":                                {token(oidctest.Claims{"iat": now + 40}), "(iat)"},
		"a strange nbf":                                  {token(oidctest.Claims{"nbf": "now"}), "nbf is not a time"},
		"no subject":                                     {token(oidctest.Claims{"sub": nil}), "sub"},
		"a long subject":                                 {token(oidctest.Claims{"sub": strings.Repeat("s", 256)}), "sub"},
		"a subject with U+0000":                          {token(oidctest.Claims{"sub": "ann\x00"}), "sub"},
		"a subject with two lines":                       {token(oidctest.Claims{"sub": "ann\nbob"}), "sub"},
		"a subject that is written backwards":            {token(oidctest.Claims{"sub": "ann\u202ebob"}), "sub"},
		"bound to a key":                                 {token(oidctest.Claims{"cnf": oidctest.Claims{"jkt": "x"}}), "cnf"},
		"a huge one":                                     {token(oidctest.Claims{"more": strings.Repeat("x", MaxTokenBytes)}), "the limit is"},
		"a huge header":                                  {oidctest.Sign(t, key, map[jose.HeaderKey]any{"more": strings.Repeat("x", 3000)}, provider.Claims(nil)), "not a signed JWT"},
		"duplicate claims":                               {oidctest.SignText(t, key, typ, []byte(`{"iss":"`+provider.URL+`","aud":"manifold","sub":"a","sub":"b","exp":`+fmt.Sprint(now+1000)+`}`)), "each name given once"},
		"nested duplicate claims":                        {oidctest.SignText(t, key, typ, []byte(`{"iss":"`+provider.URL+`","aud":"manifold","sub":"a","o":{"r":1,"r":2},"exp":`+fmt.Sprint(now+1000)+`}`)), "each name given once"},
		"a duplicate alg":                                {encode([]byte(`{"alg":"RS256","alg":"none"}`)) + "." + parts[1] + "." + parts[2], "not a JWT signed"},
		"claims in other letters":                        {oidctest.SignText(t, key, typ, []byte(`{"ISS":"`+provider.URL+`","AUD":"manifold","SUB":"a","EXP":`+fmt.Sprint(now+1000)+`}`)), "is not accepted here"},
		"no claims":                                      {oidctest.SignText(t, key, typ, []byte("null")), "its claims"},
		"claims in a list":                               {oidctest.SignText(t, key, typ, []byte(`[]`)), "its claims"},
		"deep claims":                                    {oidctest.SignText(t, key, typ, []byte(strings.Repeat("[", 6000))), "its claims"},
		"a second value after the claims":                {oidctest.SignText(t, key, typ, []byte(`{"iss":"`+provider.URL+`"} {}`)), "its claims"},
	}
}

func TestHostileTokensAreRefused(t *testing.T) {
	t.Parallel()
	provider, stranger := oidctest.Start(t), oidctest.Start(t)
	v, _ := begin(t, Config{}, provider)
	wantAccepted(t, v, "a valid token", provider.Token(nil))
	before := provider.KeyRequests.Load()
	for what, c := range hostile(t, provider, stranger) {
		wantRefused(t, v, what, c[0], c[1])
	}
	if n := provider.KeyRequests.Load() - before + stranger.KeyRequests.Load(); n != 0 {
		t.Errorf("hostile tokens caused %d requests to issuers", n)
	}
}

func TestClocksMayDiffer(t *testing.T) {
	t.Parallel()
	provider := oidctest.Start(t)
	v, _ := begin(t, Config{Issuers: []Issuer{{Name: "strict", URL: provider.URL, Audience: []string{"strict"}, Skew: time.Second}}}, provider)
	now := time.Now().Unix()
	for what, more := range map[string]oidctest.Claims{
		"expired just now": {"exp": now - 20}, "valid soon": {"nbf": now + 20}, "issued soon": {"iat": now + 20}, "with fractions": {"exp": float64(now) + 100.5},
	} {
		wantAccepted(t, v, what, provider.Token(more))
		if what == "with fractions" {
			continue
		}
		more["aud"] = "strict"
		wantRefused(t, v, what, provider.Token(more), "")
	}
}

// A new key works at once, an old one while it is published, and one that was withdrawn no longer.
func TestKeysRotate(t *testing.T) {
	t.Parallel()
	provider := oidctest.Start(t)
	v, skew := begin(t, Config{}, provider)
	old, oldKey := provider.Token(nil), provider.Key()
	wantAccepted(t, v, "the first key", old)

	provider.Publish(oldKey, oidctest.NewKey(t, jose.RS256))
	next := provider.Token(nil)
	wantRefused(t, v, "a new key within the cooldown", next, "has not published the key")
	skew.Store(int64(cooldown))
	wantAccepted(t, v, "a new key", next)
	wantAccepted(t, v, "the old key", old)
	if n := provider.KeyRequests.Load(); n != 2 {
		t.Errorf("the keys were loaded %d times", n)
	}

	provider.Publish(oidctest.NewKey(t, jose.RS256))
	skew.Store(int64(2 * cooldown))
	wantAccepted(t, v, "the newest key", provider.Token(nil))
	wantRefused(t, v, "a withdrawn key", old, "has not published the key")
}

// Whatever keys tokens name, they are loaded once within the cooldown, and requests do not pile up while they load.
func TestUnknownKeysAreCheap(t *testing.T) {
	t.Parallel()
	provider := oidctest.Start(t)
	v, skew := begin(t, Config{}, provider)
	valid := provider.Token(nil)
	wantAccepted(t, v, "a valid token", valid)
	stranger := oidctest.NewKey(t, jose.RS256)
	claims := provider.Claims(nil)
	var busy atomic.Int64
	flood := func() {
		var requests sync.WaitGroup
		for i := range 2 * maxWaiting {
			named := stranger
			named.KeyID = fmt.Sprint("made up ", i)
			token := oidctest.Sign(t, named, nil, claims)
			requests.Go(func() {
				_, err := v.Verify(t.Context(), token)
				switch {
				case domain.IsCode(err, domain.CodeIssuerUnavailable):
					busy.Add(1)
				case !domain.IsCode(err, domain.CodeUnauthenticated):
					t.Errorf("a made-up key: %v", err)
				}
			})
		}
		requests.Wait()
	}
	flood()
	if n := provider.KeyRequests.Load(); n != 1 {
		t.Errorf("within the cooldown the keys were loaded %d times", n)
	}
	if n := busy.Load(); n != 0 {
		t.Errorf("while no keys are loaded, %d requests were asked to try again", n)
	}
	skew.Store(int64(cooldown))
	release := provider.HoldKeys()
	var flooding sync.WaitGroup
	flooding.Go(flood)
	for late := time.Now().Add(time.Minute); busy.Load() == 0 && time.Now().Before(late); {
		runtime.Gosched() // maxWaiting requests begin to wait without a signal, and the next one is refused
	}
	wantAccepted(t, v, "a valid token during a flood", valid)
	release()
	flooding.Wait()
	if n := provider.KeyRequests.Load(); n != 2 {
		t.Errorf("after the cooldown the keys were loaded %d times in total", n)
	}
	if n := busy.Load(); n == 0 {
		t.Error("nobody was asked to try again while more than maxWaiting requests waited")
	}
}

// A token that cannot wait for the keys is not refused: it may be valid.
func TestTokensMayBeTriedAgainWhileKeysLoad(t *testing.T) {
	t.Parallel()
	provider := oidctest.Start(t)
	v, skew := begin(t, Config{}, provider)
	wantAccepted(t, v, "the first key", provider.Token(nil))
	provider.Publish(oidctest.NewKey(t, jose.RS256))
	token := provider.Token(nil)
	skew.Store(int64(cooldown))
	defer provider.HoldKeys()()
	for range maxWaiting {
		v.sets[0].waiting <- struct{}{} // as many requests wait
	}
	if _, err := v.Verify(t.Context(), token); !domain.IsCode(err, domain.CodeIssuerUnavailable) {
		t.Errorf("while the keys load: %v", err)
	}
}

// The keys of an issuer that publishes none stop working, unlike those of one that does not answer.
func TestTheLastKeyCanBeWithdrawn(t *testing.T) {
	t.Parallel()
	provider := oidctest.Start(t)
	v, _ := begin(t, Config{}, provider)
	token := provider.Token(nil)
	wantAccepted(t, v, "before", token)
	encryption := oidctest.NewKey(t, jose.RS256)
	encryption.Use = "enc"
	provider.Publish(encryption)
	v.Load(t.Context())
	wantRefused(t, v, "after", token, "has not published the key")
	if state := v.States()[0]; state.Keys != 0 || state.Err == nil {
		t.Errorf("the state is %+v", state)
	}
}

// Loads by Run and by Load do not overlap.
func TestLoadMayBeCalledBesideRun(t *testing.T) {
	t.Parallel()
	provider := oidctest.Start(t)
	v, _ := begin(t, Config{}, provider)
	var loads sync.WaitGroup
	for range 20 {
		loads.Go(func() { v.Load(t.Context()) })
	}
	loads.Wait()
	wantAccepted(t, v, "a token", provider.Token(nil))
}

// Two entries of one issuer may give a token different rights, so it must name only one of them.
func TestATokenForTwoEntriesIsRefused(t *testing.T) {
	t.Parallel()
	provider := oidctest.Start(t)
	v, _ := begin(t, Config{Issuers: []Issuer{{Name: "operators", URL: provider.URL, Audience: []string{"manifold-operators"}}}}, provider)
	wantRefused(t, v, "both audiences", provider.Token(oidctest.Claims{"aud": []string{"manifold", "manifold-operators"}}), "operators and issuer-1")
	wantAccepted(t, v, "one audience", provider.Token(oidctest.Claims{"aud": []string{"other", "manifold-operators"}}))
}

// While an issuer is down, its old keys work. Without keys, its tokens cannot be verified, until it is back.
func TestAnIssuerMayBeDown(t *testing.T) {
	t.Parallel()
	provider, late := oidctest.Start(t), oidctest.Start(t)
	late.SetDown(true)
	v, skew := begin(t, Config{cooldown: 20 * time.Millisecond}, provider, late)
	token := provider.Token(nil)
	wantAccepted(t, v, "a token before the outage", token)
	provider.SetDown(true)
	skew.Store(int64(time.Minute))
	unavailable := func(what, token string) {
		t.Helper()
		if _, err := v.Verify(t.Context(), token); !domain.IsCode(err, domain.CodeIssuerUnavailable) {
			t.Errorf("%s: %v", what, err)
		}
	}
	unavailable("an issuer that has never answered", late.Token(nil))
	stranger := oidctest.NewKey(t, jose.RS256)
	unavailable("a new key during an outage", oidctest.Sign(t, stranger, nil, provider.Claims(nil)))
	wantAccepted(t, v, "a token during the outage", token)
	failing := 0
	for _, state := range v.States() {
		if state.Err != nil {
			failing++
		}
	}
	if failing != 2 {
		t.Errorf("the states are %+v", v.States())
	}
	late.SetDown(false)
	for _, err := v.Verify(t.Context(), late.Token(nil)); err != nil; _, err = v.Verify(t.Context(), late.Token(nil)) {
		if t.Context().Err() != nil {
			t.Fatal("the issuer is up, and its tokens are refused:", err)
		}
	}
}

// Keys for other purposes, weak keys, symmetric keys and nonsense are ignored, and do not spoil the others.
func TestUnusableKeysAreIgnored(t *testing.T) {
	t.Parallel()
	provider := oidctest.Start(t)
	good := provider.Key()
	secret := []byte("a secret that is published by mistake")
	encryption := oidctest.NewKey(t, jose.RS256)
	encryption.Use, encryption.Algorithm = "enc", ""
	provider.Publish(jose.JSONWebKey{Key: secret, KeyID: "secret", Algorithm: "HS256"}, encryption, good)
	v, _ := begin(t, Config{}, provider)
	wantAccepted(t, v, "the good key", provider.Token(nil))
	if states := v.States(); states[0].Keys != 1 {
		t.Errorf("the states are %+v", states)
	}
	encryption.Algorithm = "RS256"
	wantRefused(t, v, "the key for encryption", oidctest.Sign(t, encryption, nil, provider.Claims(nil)), "has not published the key")
}

// A token without a key's id works if only one key can be meant.
func TestTokensWithoutAKeyID(t *testing.T) {
	t.Parallel()
	provider := oidctest.Start(t)
	elliptic := oidctest.NewKey(t, jose.ES256)
	rsa := provider.Key()
	provider.Publish(elliptic, rsa)
	v, _ := begin(t, Config{}, provider)
	nameless := rsa
	nameless.KeyID = ""
	token := oidctest.Sign(t, nameless, nil, provider.Claims(nil))
	wantAccepted(t, v, "the only RSA key", token)

	provider.Publish(oidctest.NewKey(t, jose.RS256), rsa)
	several, _ := begin(t, Config{}, provider)
	wantRefused(t, several, "one of two RSA keys", token, "has not published the key")
}

// The documents of an issuer must be its own, and of limited size.
func TestDiscoveryIsChecked(t *testing.T) {
	t.Parallel()
	provider := oidctest.Start(t)
	v, _ := begin(t, Config{Issuers: []Issuer{{Name: "aliased", URL: strings.Replace(provider.URL, "127.0.0.1", "localhost", 1), Audience: []string{"manifold"}}}})
	claims := provider.Claims(oidctest.Claims{"iss": v.sets[0].url})
	if _, err := v.Verify(t.Context(), oidctest.Sign(t, provider.Key(), nil, claims)); !domain.IsCode(err, domain.CodeIssuerUnavailable) {
		t.Errorf("a discovery document of another issuer: %v", err)
	}
	if err := v.States()[0].Err; err == nil || !strings.Contains(err.Error(), provider.URL) {
		t.Errorf("the state has %v", err)
	}
	for text, ok := range map[string]bool{
		"https://id.example.com/realms/a": true, "http://127.0.0.1:8080": true, "http://localhost": true, "http://[::1]:8080": true,
		"http://id.example.com": false, "ftp://id.example.com": false, "https://user@id.example.com": false, "id.example.com": false, "https://": false, "https://id.example.com/#a": false,
	} {
		if err := CheckURL(text); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestClaimsHaveValues(t *testing.T) {
	t.Parallel()
	claims, err := decodeClaims([]byte(`{
		"name": "ann admin", "scope": "openid events:read", "roles": ["a", "b"], "verified": true, "refused": false, "level": 3, "empty": "", "nothing": null,
		"realm_access": {"roles": ["c"]}, "https://example.com/org": "acme", "a/b": {"~": "x"}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, value string
		want        bool
	}{
		{"name", "ann admin", true}, {"name", "admin", false}, {"name", "", true},
		{"scope", "events:read", true}, {"scope", "events", false}, {"scope", "openid events:read", false}, {"scope", "", true},
		{"roles", "b", true}, {"roles", "c", false}, {"roles", "", true}, {"/realm_access/roles", "c", true}, {"/realm_access/roles/0", "c", false},
		{"realm_access", "", true}, {"realm_access.roles", "c", false}, {"verified", "true", true}, {"verified", "", true}, {"refused", "", false}, {"refused", "false", true},
		{"level", "3", true}, {"level", "4", false}, {"empty", "", false}, {"nothing", "", false}, {"missing", "", false}, {"missing", "a", false},
		{"https://example.com/org", "acme", true}, {"/a~1b/~0", "x", true}, {"/a~1b/y", "", false},
	} {
		if got := claims.Has(c.name, c.value); got != c.want {
			t.Errorf("%s has %q: %t", c.name, c.value, got)
		}
	}
}

// No text makes Verify panic, ask an issuer, or accept what the issuer has not signed.
func FuzzVerify(f *testing.F) {
	provider, stranger := oidctest.Start(f), oidctest.Start(f)
	v, _ := begin(f, Config{}, provider)
	valid := provider.Token(nil)
	if _, err := v.Verify(f.Context(), valid); err != nil {
		f.Fatal(err)
	}
	f.Add(valid)
	for _, c := range maps.All(hostile(f, provider, stranger)) {
		f.Add(c[0])
	}
	before := provider.KeyRequests.Load()
	f.Fuzz(func(t *testing.T, token string) {
		got, err := v.Verify(t.Context(), token)
		switch e, ok := errors.AsType[*domain.Error](err); {
		case err == nil && token != valid:
			t.Errorf("%q is accepted as %+v", token, got)
		case err != nil && (!ok || e.Code != domain.CodeUnauthenticated):
			t.Errorf("%q: %v", token, err)
		case provider.KeyRequests.Load() > before+1: // a refresh may come between
			t.Error("tokens cause requests to the issuer")
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	provider := oidctest.Start(b)
	v, _ := begin(b, Config{}, provider)
	groups := make([]string, 200)
	for i := range groups {
		groups[i] = "0190d3a4-5b6c-7def-8123-4567"
	}
	forged := oidctest.NewKey(b, jose.RS256)
	forged.KeyID = provider.Key().KeyID
	for name, token := range map[string]string{
		"small": provider.Token(nil), "200 groups": provider.Token(oidctest.Claims{"groups": groups}), "forged": oidctest.Sign(b, forged, nil, provider.Claims(nil)),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := v.Verify(b.Context(), token); (err == nil) != (name != "forged") {
					b.Fatal(err)
				}
			}
		})
	}
}
