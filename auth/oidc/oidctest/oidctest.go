// Package oidctest is an OpenID Connect provider for tests. Start starts one on this machine. It publishes keys, issues
// tokens with any claims, and signs users in by authorization code with PKCE and by the device flow. Tests rotate its
// keys and take it down.
package oidctest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Claims are the claims of a token.
type Claims = map[string]any

// Provider is a running provider. Its methods are safe for concurrent use.
type Provider struct {
	URL string // its issuer

	// KeyRequests counts the requests for its keys.
	KeyRequests atomic.Int64

	t      testing.TB
	server *httptest.Server

	mu       sync.Mutex
	keys     []jose.JSONWebKey // private; the last one signs
	down     bool
	hold     chan struct{} // requests for keys wait for it; nil: they do not
	user     Claims        // what the tokens of the next sign-in say
	lifetime time.Duration
	codes    map[string]grant  // by code, device code or refresh token
	pending  map[string]string // device codes by user codes
}

// grant is what a code is exchanged for.
type grant struct {
	client, redirect, challenge string
	claims                      Claims
	approved                    bool
}

// Client is the public client that the provider knows.
const Client = "manifold-client"

// Start starts a provider with one key, for RS256. It ends with the test.
func Start(t testing.TB) *Provider {
	t.Helper()
	p := &Provider{t: t, codes: map[string]grant{}, pending: map[string]string{}, lifetime: time.Hour}
	p.keys = []jose.JSONWebKey{NewKey(t, jose.RS256)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, Claims{
			"issuer": p.URL, "jwks_uri": p.URL + "/keys", "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token",
			"device_authorization_endpoint": p.URL + "/device",
		})
	})
	mux.HandleFunc("GET /keys", p.serveKeys)
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /device", p.beginDevice)
	mux.HandleFunc("GET /approve", func(w http.ResponseWriter, request *http.Request) { p.Approve(request.FormValue("user_code")) })
	mux.HandleFunc("POST /token", p.token)
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if p.isDown() {
			http.Error(w, "the provider is down", http.StatusBadGateway)
			return
		}
		w.Header().Set("Access-Control-Allow-Origin", "*") // public clients run in browsers
		mux.ServeHTTP(w, request)
	}))
	t.Cleanup(p.server.Close)
	p.URL = p.server.URL
	return p
}

// NewKey returns a private key for the algorithm, with a random id.
func NewKey(t testing.TB, algorithm jose.SignatureAlgorithm) jose.JSONWebKey {
	t.Helper()
	var key crypto.PrivateKey
	var err error
	switch algorithm {
	case jose.ES256:
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case jose.EdDSA:
		_, key, err = ed25519.GenerateKey(rand.Reader)
	default:
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	}
	if err != nil {
		t.Fatal(err)
	}
	return jose.JSONWebKey{Key: key, KeyID: rand.Text(), Algorithm: string(algorithm), Use: "sig"}
}

// Sign returns a signed token. header has additional members.
func Sign(t testing.TB, key jose.JSONWebKey, header map[jose.HeaderKey]any, claims any) string {
	t.Helper()
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	return SignText(t, key, header, payload)
}

// SignText is Sign for a payload that may be anything.
func SignText(t testing.TB, key jose.JSONWebKey, header map[jose.HeaderKey]any, payload []byte) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key}, &jose.SignerOptions{ExtraHeaders: header})
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	text, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Token returns a token that is valid for an hour, for the audience "manifold", with more claims. A claim that is nil
// is left out.
func (p *Provider) Token(more Claims) string {
	p.t.Helper()
	return Sign(p.t, p.Key(), map[jose.HeaderKey]any{"typ": "JWT"}, p.Claims(more))
}

// Claims returns the claims of Token.
func (p *Provider) Claims(more Claims) Claims {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	claims := Claims{"iss": p.URL, "aud": "manifold", "sub": "subject-1", "iat": now.Unix(), "exp": now.Add(p.lifetime).Unix()}
	maps.Copy(claims, more)
	maps.DeleteFunc(claims, func(_ string, value any) bool { return value == nil })
	return claims
}

// Key returns the key that signs.
func (p *Provider) Key() jose.JSONWebKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keys[len(p.keys)-1]
}

// Publish replaces the published keys. The last one signs.
func (p *Provider) Publish(keys ...jose.JSONWebKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = keys
}

// SetDown makes every request fail, or no longer.
func (p *Provider) SetDown(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
}

func (p *Provider) isDown() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.down
}

// HoldKeys makes requests for keys wait until release is called.
func (p *Provider) HoldKeys() (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hold := make(chan struct{})
	p.hold = hold
	return sync.OnceFunc(func() {
		p.mu.Lock()
		p.hold = nil
		p.mu.Unlock()
		close(hold)
	})
}

// SetUser sets the claims of the tokens of later sign-ins, and their lifetime.
func (p *Provider) SetUser(claims Claims, lifetime time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.user, p.lifetime = claims, lifetime
}

func (p *Provider) serveKeys(w http.ResponseWriter, _ *http.Request) {
	p.KeyRequests.Add(1)
	p.mu.Lock()
	hold := p.hold
	public := make([]any, len(p.keys))
	for i, key := range p.keys {
		public[i] = key
		if _, symmetric := key.Key.([]byte); !symmetric {
			public[i] = key.Public()
		}
	}
	p.mu.Unlock()
	if hold != nil {
		<-hold
	}
	answer(w, http.StatusOK, Claims{"keys": public})
}

// authorize signs the user in at once, and redirects to the client.
func (p *Provider) authorize(w http.ResponseWriter, request *http.Request) {
	query := request.URL.Query()
	redirect, err := url.Parse(query.Get("redirect_uri"))
	if err != nil || query.Get("client_id") != Client || query.Get("response_type") != "code" || query.Get("code_challenge_method") != "S256" || query.Get("state") == "" {
		http.Error(w, "invalid request", http.StatusBadRequest)
		return
	}
	code := p.add(grant{client: Client, redirect: query.Get("redirect_uri"), challenge: query.Get("code_challenge"), approved: true})
	redirect.RawQuery = url.Values{"code": {code}, "state": {query.Get("state")}}.Encode()
	http.Redirect(w, request, redirect.String(), http.StatusFound)
}

func (p *Provider) beginDevice(w http.ResponseWriter, request *http.Request) {
	if request.FormValue("client_id") != Client {
		answer(w, http.StatusBadRequest, Claims{"error": "invalid_client"})
		return
	}
	code, user := p.add(grant{client: Client}), rand.Text()[:8]
	p.mu.Lock()
	p.pending[user] = code
	p.mu.Unlock()
	answer(w, http.StatusOK, Claims{
		"device_code": code, "user_code": user, "verification_uri": p.URL + "/approve", "verification_uri_complete": p.URL + "/approve?user_code=" + user,
		"expires_in": 60, "interval": 1,
	})
}

// Approve approves the device with the user code.
func (p *Provider) Approve(user string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	code := p.pending[user]
	if g, ok := p.codes[code]; ok {
		g.approved, g.claims = true, maps.Clone(p.user)
		p.codes[code] = g
	}
}

// add stores a grant for the current user, and returns its code.
func (p *Provider) add(g grant) (code string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g.claims == nil {
		g.claims = maps.Clone(p.user)
	}
	code = rand.Text()
	p.codes[code] = g
	return code
}

// take removes and returns the grant of a code, once it is approved.
func (p *Provider) take(code string) (g grant, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if g, known = p.codes[code]; known && g.approved {
		delete(p.codes, code)
	}
	return g, known
}

func (p *Provider) token(w http.ResponseWriter, request *http.Request) {
	code := ""
	kind := request.FormValue("grant_type")
	switch kind {
	case "authorization_code":
		code = request.FormValue("code")
	case "urn:ietf:params:oauth:grant-type:device_code":
		code = request.FormValue("device_code")
	case "refresh_token":
		code = request.FormValue("refresh_token")
	}
	g, known := p.take(code)
	challenge := sha256.Sum256([]byte(request.FormValue("code_verifier")))
	switch {
	case known && !g.approved:
		answer(w, http.StatusBadRequest, Claims{"error": "authorization_pending"})
		return
	case !known, request.FormValue("client_id") != g.client,
		kind == "authorization_code" && (g.redirect != request.FormValue("redirect_uri") || g.challenge != base64.RawURLEncoding.EncodeToString(challenge[:])):
		answer(w, http.StatusBadRequest, Claims{"error": "invalid_grant"})
		return
	}
	refresh := p.add(grant{client: g.client, claims: g.claims, approved: true})
	p.mu.Lock()
	seconds := int(p.lifetime.Seconds())
	p.mu.Unlock()
	answer(w, http.StatusOK, Claims{"access_token": p.Token(g.claims), "token_type": "Bearer", "expires_in": seconds, "refresh_token": refresh})
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have gone
}
