package atrest_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/atrest"
)

func key(name string, fill byte) string {
	return name + " " + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{fill}, 32)) + "\n"
}

func parse(t *testing.T, text string) *atrest.Keys {
	t.Helper()
	keys, err := atrest.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// The first key encrypts, every key decrypts, and only in the secret's own place.
func TestKeysAreRotated(t *testing.T) {
	t.Parallel()
	secret := []byte("a secret of a webhook")
	old := parse(t, key("2026-01", 1))
	both := parse(t, "# rotated in November\n\n"+key("2026-11", 2)+key("2026-01", 1))
	sealed := old.Seal(secret, "hooks", "a")
	if sealed.Key != "2026-01" || bytes.Contains(sealed.Data, secret) {
		t.Errorf("it is stored as %+v", sealed)
	}
	if again := old.Seal(secret, "hooks", "a"); bytes.Equal(again.Data, sealed.Data) {
		t.Error("two secrets look the same")
	}
	for name, keys := range map[string]*atrest.Keys{"the old key": old, "both": both} {
		if got, err := keys.Open(sealed, "hooks", "a"); err != nil || !bytes.Equal(got, secret) {
			t.Errorf("with %s it is %q, %v", name, got, err)
		}
	}
	if both.Current() != "2026-11" || both.Seal(secret).Key != "2026-11" {
		t.Errorf("the current key is %q", both.Current())
	}
	for _, place := range [][]string{{"hooks", "b"}, {"hooks"}, {"hook", "sa"}, {"hooks", "a", ""}} {
		if _, err := both.Open(sealed, place...); err == nil {
			t.Errorf("it is decrypted at %q", place)
		}
	}
	for name, keys := range map[string]*atrest.Keys{"no key": nil, "another key": parse(t, key("2026-11", 2))} {
		if _, err := keys.Open(sealed, "hooks", "a"); err == nil || !strings.Contains(err.Error(), `"2026-01" is missing from encryption.keys; add it`) {
			t.Errorf("with %s the error is %v", name, err)
		}
	}
	if _, err := parse(t, key("2026-01", 3)).Open(sealed, "hooks", "a"); err == nil {
		t.Error("another key of the same name decrypts it")
	}
}

func TestWithoutKeysSecretsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	none := parse(t, "\n# none\n")
	stored := none.Seal([]byte("s"), "here")
	if none != nil || stored.Key != "" || string(stored.Data) != "s" || none.Current() != "" {
		t.Errorf("it is stored as %+v", stored)
	}
	for _, keys := range []*atrest.Keys{none, parse(t, key("k", 1))} {
		if got, err := keys.Open(stored, "here"); err != nil || string(got) != "s" {
			t.Errorf("it is %q, %v", got, err)
		}
	}
}

// Before the first key encrypts, and to stop encrypting, "plain" comes first.
func TestPlainDecrypts(t *testing.T) {
	t.Parallel()
	sealed := parse(t, key("k", 1)).Seal([]byte("s"), "here")
	keys := parse(t, "plain\n"+key("k", 1))
	if got, err := keys.Open(sealed, "here"); err != nil || string(got) != "s" || keys.Current() != "" {
		t.Errorf("it is %q, %v, with the key %q", got, err, keys.Current())
	}
	if stored := keys.Seal([]byte("s"), "here"); stored.Key != "" || string(stored.Data) != "s" {
		t.Errorf("it is stored as %+v", stored)
	}
	if _, err := atrest.Parse(key("k", 1) + "plain\n"); err == nil {
		t.Error("plain is accepted after a key")
	}
}

func TestBadKeysAreRefused(t *testing.T) {
	t.Parallel()
	secret := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 31))
	for text, want := range map[string]string{
		"alone":                     "line 1: expected a key's name",
		key("a", 1) + "b " + secret: "line 2: the key \"b\" must be 32 bytes in base64",
		"b !!!":                     "must be 32 bytes in base64",
		key("a b", 1):               "expected a key's name",
		key("ä", 1):                 "the key's name must have",
		key("a", 1) + key("a", 2):   "line 2: there are two keys \"a\"",
	} {
		_, err := atrest.Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%q gives %v", text, err)
		}
	}
	var many strings.Builder
	for i := range atrest.MaxKeys + 1 {
		many.WriteString(key("k"+strings.Repeat("x", i%30)+string(rune('a'+i/30)), 1))
	}
	if _, err := atrest.Parse(many.String()); err == nil || !strings.Contains(err.Error(), "more than 100 keys") {
		t.Errorf("many keys give %v", err)
	}
}
