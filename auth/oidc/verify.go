package oidc

import (
	"context"
	"encoding/base64"
	"math"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/go-jose/go-jose/v4"
	josejson "github.com/go-jose/go-jose/v4/json"

	"github.com/manifold-es/manifold/domain"
)

const (
	// MaxTokenBytes is the length of the longest accepted token.
	MaxTokenBytes = 12 << 10
	// maxHeaderBytes limits the header of a token, before base64. It has only names.
	maxHeaderBytes = 2 << 10
	// maxSubjectBytes limits the claim sub, as OpenID Connect does.
	maxSubjectBytes = 255
)

// IsToken reports whether a text has the form of a signed token: three parts with dots between them.
func IsToken(text string) bool { return strings.Count(text, ".") == 2 }

// refused returns the error for a token that does not work.
func refused(format string, args ...any) error {
	return domain.Errorf(domain.CodeUnauthenticated, "Authorization", "this token does not work: "+format, args...)
}

// Verify verifies a token. It returns domain.CodeUnauthenticated for a token that is not valid here, and
// domain.CodeIssuerUnavailable if the issuer may have published the token's key, but its keys are not loaded. It waits
// briefly while the issuer's keys are being loaded.
func (v *Verifier) Verify(ctx context.Context, token string) (Token, error) {
	signed, err := parse(token)
	if err != nil {
		return Token{}, err
	}
	// The claims are not verified yet. They only choose with which keys to verify them.
	claims, err := decodeClaims(signed.UnsafePayloadWithoutVerification())
	if err != nil {
		return Token{}, err
	}
	by, err := v.issuerOf(claims)
	if err != nil {
		return Token{}, err
	}
	header := signed.Signatures[0].Protected
	if !slices.Contains(by.Algorithms, header.Algorithm) {
		return Token{}, refused("its algorithm %s is not allowed for its issuer; allowed are %s", header.Algorithm, strings.Join(by.Algorithms, ", "))
	}
	key, err := by.keys.find(ctx, header.KeyID, header.Algorithm)
	if err != nil {
		return Token{}, err
	}
	if _, err := signed.Verify(key); err != nil {
		return Token{}, refused("its signature is not its issuer's")
	}
	return by.check(claims, v.now())
}

// asymmetric are the Algorithms. The parser refuses tokens with others.
var asymmetric = func() []jose.SignatureAlgorithm {
	all := make([]jose.SignatureAlgorithm, len(Algorithms))
	for i, name := range Algorithms {
		all[i] = jose.SignatureAlgorithm(name)
	}
	return all
}()

// parse parses a token and checks its header.
func parse(token string) (*jose.JSONWebSignature, error) {
	if len(token) > MaxTokenBytes {
		return nil, refused("it has %d bytes, the limit is %d; ask the issuer for a token with fewer claims", len(token), MaxTokenBytes)
	}
	encoded, _, _ := strings.Cut(token, ".")
	if !IsToken(token) || len(encoded) > base64.RawURLEncoding.EncodedLen(maxHeaderBytes) {
		return nil, refused("it is not a signed JWT")
	}
	signed, err := jose.ParseSignedCompact(token, asymmetric)
	if err != nil {
		return nil, refused("it is not a JWT signed with one of %s", strings.Join(Algorithms, ", "))
	}
	header := signed.Signatures[0].Protected.ExtraHeaders
	for _, name := range []jose.HeaderKey{"crit", "b64"} { // a JWT has its claims in base64, and we know no extensions
		if _, given := header[name]; given {
			return nil, refused("its header has %s", name)
		}
	}
	// Another type is a statement for another purpose, such as a logout token (RFC 8725, section 3.11).
	kind, given := header[jose.HeaderType]
	name, _ := kind.(string)
	if name = strings.TrimPrefix(strings.ToLower(name), "application/"); given && name != "jwt" && name != "at+jwt" {
		return nil, refused("its type %q is not that of an access token", domain.Clip(name, 60))
	}
	return signed, nil
}

// decodeClaims decodes the payload of a token. Names are compared exactly, and must not be given twice: otherwise
// another program could see other claims.
func decodeClaims(payload []byte) (Claims, error) {
	var claims Claims
	if err := josejson.Unmarshal(payload, &claims); err != nil || claims == nil {
		return nil, refused("its claims are not a JSON object with each name given once")
	}
	return claims, nil
}

// issuerOf returns the issuer that the claims name, for their audience. Several issuers may have one URL; a token for
// the audiences of two of them is refused, because they may give it different rights.
func (v *Verifier) issuerOf(claims Claims) (*issuer, error) {
	url, _ := claims.Text("iss")
	same := v.issuers[url]
	if len(same) == 0 {
		return nil, refused("its issuer %q is not accepted here", domain.Clip(url, 200))
	}
	var found *issuer
	for _, by := range same {
		switch {
		case !slices.ContainsFunc(by.Audience, func(audience string) bool { return audience != "" && claims.Has("aud", audience) }):
		case found != nil:
			return nil, refused("its audiences are those of two issuers in the configuration, %s and %s, so what it may do is ambiguous; ask the issuer for a token for one of them", found.Name, by.Name)
		default:
			found = by
		}
	}
	if found == nil {
		return nil, refused("its audience is another service; ask the issuer for a token for this one")
	}
	return found, nil
}

// check checks the other claims of a token whose signature was verified.
func (i *issuer) check(claims Claims, now time.Time) (Token, error) {
	expires, given, err := claims.moment("exp")
	switch {
	case err != nil:
		return Token{}, err
	case !given:
		return Token{}, refused("it has no expiry (exp)")
	case !now.Before(expires.Add(i.Skew)):
		return Token{}, refused("it expired at %s; get another", expires.Format(time.RFC3339))
	}
	for _, name := range []string{"nbf", "iat"} {
		from, _, err := claims.moment(name)
		if err != nil {
			return Token{}, err
		}
		if now.Add(i.Skew).Before(from) {
			return Token{}, refused("it is valid from %s (%s), and the service's time is %s", from.Format(time.RFC3339), name, now.UTC().Format(time.RFC3339))
		}
	}
	subject, _ := claims.Text("sub")
	if subject == "" || len(subject) > maxSubjectBytes || strings.ContainsFunc(subject, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Token{}, refused("its claim sub is not a name of 1 to %d bytes without control characters", maxSubjectBytes)
	}
	if _, bound := claims["cnf"]; bound {
		return Token{}, refused("it is bound to a key of its client (cnf), which this service cannot check; ask the issuer for a bearer token")
	}
	return Token{Issuer: i.Name, Subject: subject, Claims: claims, ExpiresAt: expires.Add(i.Skew)}, nil
}

// maxSeconds is the largest time of a claim: the end of the year 9999.
const maxSeconds = 253402300799

// moment returns the value of a claim that is a time in seconds since 1970, if it is given.
func (c Claims) moment(name string) (at time.Time, given bool, err error) {
	value, given := c[name]
	if !given {
		return time.Time{}, false, nil
	}
	seconds, ok := value.(float64)
	if !ok || math.Abs(seconds) > maxSeconds {
		return time.Time{}, true, refused("its claim %s is not a time", name)
	}
	return time.Unix(int64(seconds), 0).UTC(), true, nil
}
