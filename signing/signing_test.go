package signing_test

import (
	"bytes"
	"encoding/base64"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/manifold-es/manifold/atrest"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/signing"
	"github.com/manifold-es/manifold/tables/tablestest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func encryption(t *testing.T, text string) *atrest.Keys {
	t.Helper()
	keys, err := atrest.Parse(text)
	tablestest.Must(t, err)
	return keys
}

// verifies fails the test unless one of the keys verifies a signed text.
func verifies(t *testing.T, signed []byte, text string, keys []signing.Verifier) {
	t.Helper()
	var verifiers []note.Verifier
	for _, key := range keys {
		verifier, err := note.NewVerifier(key.Text)
		tablestest.Must(t, err)
		verifiers = append(verifiers, verifier)
	}
	opened, err := note.Open(signed, note.VerifierList(verifiers...))
	if err != nil || opened.Text != text || len(opened.Sigs) != 1 {
		t.Errorf("%q is not verified: %v", signed, err)
	}
}

// Processes that sign for the first time at once have the same key. After a rotation, all sign with the new one, and what
// was signed before is still verified.
func TestProcessesShareKeysAndRotateThem(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx := t.Context()
	processes := []*signing.Keys{s.SigningKeys, signing.New(s.DB, nil), signing.New(s.DB, nil)}
	signed := make([][]byte, len(processes))
	var all sync.WaitGroup
	for i, process := range processes {
		all.Go(func() {
			var err error
			if signed[i], err = process.Sign(ctx, "first\n"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	keys, err := s.Verifiers(ctx)
	tablestest.Must(t, err)
	if len(keys) != 1 || !keys[0].Signs {
		t.Fatalf("the keys are %+v", keys)
	}
	for _, one := range signed {
		verifies(t, one, "first\n", keys)
	}

	rotated, err := s.Rotate(ctx)
	tablestest.Must(t, err)
	second, err := s.Sign(ctx, "second\n")
	tablestest.Must(t, err)
	verifies(t, second, "second\n", []signing.Verifier{rotated})
	keys, err = s.Verifiers(ctx)
	tablestest.Must(t, err)
	if len(keys) != 2 || keys[0] != rotated || keys[1].Signs || nameOf(keys[0]) != nameOf(keys[1]) {
		t.Errorf("after a rotation the keys are %+v", keys)
	}
	verifies(t, signed[0], "first\n", keys)
	var private int
	tablestest.Must(t, db.Pool(t, pgtest.RoleSuperuser, 1).QueryRow(ctx, "select count(secret) from manifold.signing_keys").Scan(&private))
	if private != 1 {
		t.Errorf("%d private parts are stored", private)
	}

	var made, conflicts int
	var mu sync.Mutex
	for _, process := range processes {
		all.Go(func() {
			_, err := process.Rotate(ctx)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				made++
			case tablestest.CodeOf(err) == domain.CodeConflict:
				conflicts++
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	if keys, err = s.Verifiers(ctx); err != nil || made == 0 || len(keys) != 2+made {
		t.Errorf("%d rotations succeeded and %d met others; there are %d keys, %v", made, conflicts, len(keys), err)
	}
}

func nameOf(v signing.Verifier) string {
	name, _, _ := strings.Cut(v.Text, "+")
	return name
}

// The private part is encrypted when there is a key, encrypted again when there is another, and plain again at the end.
// Without its key nothing is signed, and a rotation repairs that.
func TestPrivatePartIsEncryptedAtRest(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx := t.Context()
	first, err := s.Sign(ctx, "text\n")
	tablestest.Must(t, err)
	key := func(name string) string {
		return name + " " + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(name), 32)[:32]) + "\n"
	}
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	run := func(text string) *signing.Keys {
		t.Helper()
		keys := signing.New(s.DB, encryption(t, text))
		tablestest.Must(t, signing.Encrypt(ctx, keys))
		return keys
	}
	stored := func(want string) {
		t.Helper()
		var name, secret string
		tablestest.Must(t, super.QueryRow(ctx, "select coalesce(key_id, ''), encode(secret, 'escape') from manifold.signing_keys order by number desc").Scan(&name, &secret))
		if plain := strings.HasPrefix(secret, "PRIVATE+KEY+"); name != want || plain != (want == "") {
			t.Errorf("it is stored with the key %q, plain: %v; want %q", name, plain, want)
		}
	}
	stored("")
	for _, step := range []struct{ text, want string }{
		{"plain\n" + key("a"), ""}, {key("a"), "a"}, {key("b") + key("a"), "b"}, {"plain\n" + key("b"), ""}, {key("a"), "a"},
	} {
		keys := run(step.text)
		stored(step.want)
		_, err := keys.Sign(ctx, "text\n")
		tablestest.Must(t, err)
	}
	lost := signing.New(s.DB, nil)
	if _, err := lost.Sign(ctx, "text\n"); err == nil || !strings.Contains(err.Error(), "encryption.keys; add it") {
		t.Errorf("without the key it says %v", err)
	}
	_, err = lost.Rotate(ctx)
	tablestest.Must(t, err)
	_, err = lost.Sign(ctx, "text\n")
	tablestest.Must(t, err)
	keys, err := lost.Verifiers(ctx)
	tablestest.Must(t, err)
	verifies(t, first, "text\n", keys)
}
