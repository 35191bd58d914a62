package projection

import (
	"bytes"
	"context"
	"encoding/base64"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

// drawPageToken draws a token for any place that a document can have in an order with a number of parts.
func drawPageToken(t *rapid.T) pageToken {
	token := pageToken{shared: rapid.Bool().Draw(t, "shared"), build: rapid.Int64Range(1, math.MaxInt64).Draw(t, "build")}
	copy(token.query[:], rapid.SliceOfN(rapid.Byte(), len(token.query), len(token.query)).Draw(t, "question"))
	text := rapid.String().Filter(func(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) })
	token.after.ID = text.Filter(func(id string) bool { return domain.CheckDocumentID("", id) == nil }).Draw(t, "id")
	parts := rapid.IntRange(0, domain.MaxOrderTerms).Draw(t, "parts")
	if parts > 0 && rapid.IntRange(0, 4).Draw(t, "unordered") == 0 {
		token.after.Unordered = true
		return token
	}
	number := rapid.Map(rapid.Float64Range(-math.MaxFloat64, math.MaxFloat64), func(f float64) domain.Scalar {
		return domain.ParseNumber(domain.Scalar{Kind: domain.ScalarDouble, Double: f}.JSON())
	})
	for range parts {
		token.after.Values = append(token.after.Values, rapid.OneOf(
			rapid.Just(domain.Scalar{}),
			rapid.Map(rapid.Bool(), func(b bool) domain.Scalar { return domain.Scalar{Kind: domain.ScalarBool, Bool: b} }),
			rapid.Map(rapid.Int64(), func(i int64) domain.Scalar { return domain.Scalar{Kind: domain.ScalarInt, Int: i} }),
			number,
			rapid.Map(text.Filter(func(text string) bool { return utf8.RuneCountInString(text) <= domain.MaxOrderedCharacters }),
				func(text string) domain.Scalar { return domain.Scalar{Kind: domain.ScalarText, Text: text} }),
		).Draw(t, "value"))
	}
	return token
}

func TestPageTokenRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		token := drawPageToken(t)
		got, err := decodePageToken(token.encode())
		if err != nil {
			t.Fatal(err)
		}
		parts := make([]domain.Order, max(1, len(token.after.Values)))
		if got.shared != token.shared || got.build != token.build || got.query != token.query || got.after.Unordered != token.after.Unordered ||
			len(got.after.Values) != len(token.after.Values) || got.after.Compare(token.after, parts) != 0 {
			t.Fatalf("%+v decodes as %+v", token, got)
		}
		for i, value := range token.after.Values {
			if got.after.Values[i] != value {
				t.Fatalf("the value %+v decodes as %+v", value, got.after.Values[i])
			}
		}
	})
}

// The longest possible token fits the limit of the contract.
func TestPageTokensFitTheirLimit(t *testing.T) {
	t.Parallel()
	token := pageToken{shared: true, build: math.MaxInt64, after: domain.SortKey{ID: strings.Repeat("i", domain.MaxDocumentIDBytes)}}
	for range domain.MaxOrderTerms {
		token.after.Values = append(token.after.Values, domain.Scalar{Kind: domain.ScalarText, Text: strings.Repeat("\U0010ffff", domain.MaxOrderedCharacters)})
	}
	seal := &tokenSeal{key: func(context.Context) ([32]byte, error) { return [32]byte{1}, nil }}
	text, err := seal.seal(t.Context(), pageTokenKind, token.encode())
	if err != nil || len(text) > maxPageTokenBytes {
		t.Fatalf("it has %d bytes, %v", len(text), err)
	}
	raw, err := seal.open(t.Context(), pageTokenKind, text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decodePageToken(raw); err != nil {
		t.Error(err)
	}
	if _, err := seal.open(t.Context(), pageTokenKind, strings.Repeat("A", maxPageTokenBytes+1)); !domain.IsCode(err, domain.CodeInvalidRequest) {
		t.Errorf("a longer one: %v", err)
	}
}

// A changed token is refused, or names another place that a document can have. It never makes a driver fail.
func TestChangedPageTokensAreRefused(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		raw := drawPageToken(t).encode()
		switch at := rapid.IntRange(0, len(raw)-1).Draw(t, "at"); rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			raw[at] = rapid.Byte().Draw(t, "byte")
		case 1:
			raw = raw[:at]
		case 2:
			raw = append(raw[:at:at], append(rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "more"), raw[at:]...)...)
		}
		checkDecoded(t, raw)
	})
	for name, value := range map[string]float64{"NaN": math.NaN(), "infinity": math.Inf(1), "an int as a double": 3, "minus zero": math.Copysign(0, -1)} {
		token := pageToken{build: 1, after: domain.SortKey{ID: "a", Values: []domain.Scalar{{Kind: domain.ScalarDouble, Double: value}}}}
		if _, err := decodePageToken(token.encode()); err == nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	long := pageToken{build: 1, after: domain.SortKey{ID: "a", Values: []domain.Scalar{{Kind: domain.ScalarText, Text: strings.Repeat("a", domain.MaxOrderedCharacters+1)}}}}
	if _, err := decodePageToken(long.encode()); err == nil {
		t.Errorf("a text that cannot be ordered: %v", err)
	}
}

// checkDecoded checks what decodePageToken promises, for any bytes.
func checkDecoded(t rapid.TB, text []byte) {
	t.Helper()
	token, err := decodePageToken(text)
	if err != nil {
		return
	}
	if !bytes.Equal(token.encode(), text) {
		t.Fatalf("%q is read as %+v, which is %q", text, token, token.encode())
	}
	query := domain.DocumentQuery{Limit: 1, After: &token.after, Order: make([]domain.Order, len(token.after.Values))}
	if token.after.Unordered {
		query.Order = make([]domain.Order, 1)
	}
	for _, value := range token.after.Values {
		if math.IsNaN(value.Double) || math.IsInf(value.Double, 0) || value.Number() && domain.ParseNumber(value.JSON()) != value {
			t.Fatalf("%q has the value %+v", text, value)
		}
	}
	if err := query.Check(); err != nil {
		t.Fatalf("%q is no place: %v", text, err)
	}
}

func FuzzPageToken(f *testing.F) {
	for _, seed := range [][]byte{nil, {1}, {0, 0}, (pageToken{build: 7, after: domain.SortKey{ID: "a"}}).encode()} {
		f.Add(seed)
	}
	f.Add(pageToken{shared: true, build: 1 << 40, after: domain.SortKey{ID: "order-1", Values: []domain.Scalar{
		{}, {Kind: domain.ScalarDouble, Double: 0.5}, {Kind: domain.ScalarText, Text: "ü"},
	}}}.encode())
	f.Fuzz(func(t *testing.T, raw []byte) { checkDecoded(t, raw) })
}

// A token found in a log reveals nothing, and nobody can make or change one.
func TestPageTokensAreEncrypted(t *testing.T) {
	t.Parallel()
	key := [32]byte{1}
	seal := &tokenSeal{key: func(context.Context) ([32]byte, error) { return key, nil }}
	rapid.Check(t, func(r *rapid.T) {
		plain := append([]byte("a customer's name "), drawPageToken(r).encode()...)
		text, err := seal.seal(t.Context(), pageTokenKind, plain)
		if err != nil {
			r.Fatal(err)
		}
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil || bytes.Contains(raw, []byte("customer")) {
			r.Fatalf("%q shows its content, %v", text, err)
		}
		if got, err := seal.open(t.Context(), pageTokenKind, text); err != nil || !bytes.Equal(got, plain) {
			r.Fatalf("it opens as %q, %v", got, err)
		}
		raw[rapid.IntRange(0, len(raw)-1).Draw(r, "at")] ^= byte(rapid.IntRange(1, 255).Draw(r, "bits"))
		if _, err := seal.open(t.Context(), pageTokenKind, base64.RawURLEncoding.EncodeToString(raw)); !domain.IsCode(err, domain.CodeInvalidRequest) {
			r.Fatalf("a changed token: %v", err)
		}
		if _, err := seal.open(t.Context(), allTokenKind, text); !domain.IsCode(err, domain.CodeInvalidRequest) {
			r.Fatalf("a token of another list: %v", err)
		}
	})
	other := &tokenSeal{key: func(context.Context) ([32]byte, error) { return [32]byte{2}, nil }}
	text, err := other.seal(t.Context(), pageTokenKind, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	for _, made := range []string{text, "", "AA", "!!!"} {
		if _, err := seal.open(t.Context(), pageTokenKind, made); !domain.IsCode(err, domain.CodeInvalidRequest) {
			t.Errorf("%q: %v", made, err)
		}
	}
}

// Tokens of this release, and unencrypted ones of the previous release, are accepted for the tenant, projection and
// order that they were issued for. Anything else is refused. A key that cannot be read is not the client's error.
func TestPageTokensOfThisAndThePreviousRelease(t *testing.T) {
	t.Parallel()
	key, unavailable := [32]byte{1}, error(nil)
	keyed := func() *Catalog {
		return &Catalog{tokens: tokenSeal{key: func(context.Context) ([32]byte, error) { return key, unavailable }}}
	}
	c := keyed()
	tenant := domain.NewTenantID()
	token := pageToken{shared: true, build: 7, query: queryIDOf(tenant, "orders", "", "total")}
	token.after = domain.SortKey{ID: "order-1", Values: []domain.Scalar{{Kind: domain.ScalarInt, Int: 12}}}
	sealed, err := c.tokens.seal(t.Context(), pageTokenKind, token.encode())
	if err != nil {
		t.Fatal(err)
	}
	ofAll, err := c.tokens.seal(t.Context(), allTokenKind, token.encode())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(c *Catalog, tenant domain.TenantID, name, orderBy, text string) error {
		asked, err := c.compile(t.Context(), tenant, name, DocumentsQuery{PageSize: 1, OrderBy: orderBy, PageToken: text})
		if err == nil && (asked.from.build != 7 || asked.query.After.ID != "order-1") {
			t.Errorf("%q is taken for %+v", text, asked.from)
		}
		return err
	}
	plain := base64.RawURLEncoding.EncodeToString(token.encode())
	for _, text := range []string{sealed, plain} {
		if err := ask(c, tenant, "orders", "total", text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		for what, err := range map[string]error{
			"another tenant":     ask(c, domain.NewTenantID(), "orders", "total", text),
			"another projection": ask(c, tenant, "others", "total", text),
			"another order":      ask(c, tenant, "orders", "total desc", text),
			"no order":           ask(c, tenant, "orders", "", text),
			"a line break":       ask(c, tenant, "orders", "total", text+"\n"),
			"padding":            ask(c, tenant, "orders", "total", text+"="),
			"standard base64":    ask(c, tenant, "orders", "total", text+"+/"),
		} {
			if !domain.IsCode(err, domain.CodeInvalidRequest) {
				t.Errorf("%q for %s: %v", text, what, err)
			}
		}
	}
	// Not the plain one: a shorter one names another document, as any text that a client makes up may.
	for n := 1; n < len(sealed); n++ {
		if err := ask(c, tenant, "orders", "total", sealed[:n]); !domain.IsCode(err, domain.CodeInvalidRequest) {
			t.Errorf("cut to %d characters: %v", n, err)
		}
	}
	if err := ask(c, tenant, "orders", "total", ofAll); !domain.IsCode(err, domain.CodeInvalidRequest) {
		t.Errorf("a token of all tenants' documents: %v", err)
	}

	// A process keeps the key that it has read. One that starts after the key was changed refuses older tokens, but for
	// plain ones.
	key = [32]byte{2}
	rotated := keyed()
	for text, refused := range map[string]bool{sealed: true, plain: false} {
		if err := ask(rotated, tenant, "orders", "total", text); domain.IsCode(err, domain.CodeInvalidRequest) != refused || !refused && err != nil {
			t.Errorf("%q under a new key: %v", text, err)
		}
		if err := ask(c, tenant, "orders", "total", text); err != nil {
			t.Errorf("%q in a process that runs: %v", text, err)
		}
	}
	late := keyed()
	unavailable = domain.Errorf(domain.CodeUnavailable, "", "the database does not answer")
	for range 2 {
		if err := ask(late, tenant, "orders", "total", sealed); !domain.IsCode(err, domain.CodeUnavailable) {
			t.Errorf("without a key: %v", err)
		}
	}
	key, unavailable = [32]byte{1}, nil
	if err := ask(late, tenant, "orders", "total", sealed); err != nil {
		t.Errorf("once the key can be read: %v", err)
	}
}
