package signing_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
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

// atRestKey returns the line of a key of encryption at rest.
func atRestKey(name string) string {
	return name + " " + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(name), 32)[:32]) + "\n"
}

// load returns the keys as they are now.
func load(t *testing.T, keys *signing.Keys) *signing.Ring {
	t.Helper()
	ring, err := keys.Reload(t.Context())
	tablestest.Must(t, err)
	return ring
}

// sign signs a text with the keys as they are now.
func sign(t *testing.T, keys *signing.Keys, text string) []byte {
	t.Helper()
	signed, err := load(t, keys).Sign(text)
	tablestest.Must(t, err)
	return signed
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

// Processes that sign for the first time at once have the same key. After a rotation, all sign with the new one, and
// what was signed before is still verified.
func TestProcessesShareKeysAndRotateThem(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx := t.Context()
	processes := []*signing.Keys{s.SigningKeys, signing.New(s.DB, nil), signing.New(s.DB, nil)}
	signed := make([][]byte, len(processes))
	var all sync.WaitGroup
	for i, process := range processes {
		all.Go(func() {
			ring, err := process.Load(ctx)
			if err == nil {
				signed[i], err = ring.Sign("first\n")
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	keys := load(t, s.SigningKeys).Verifiers()
	if len(keys) != 1 || !keys[0].Signs {
		t.Fatalf("the keys are %+v", keys)
	}
	for _, one := range signed {
		verifies(t, one, "first\n", keys)
	}

	before := load(t, processes[1])
	rotated, err := s.Rotate(ctx)
	tablestest.Must(t, err)
	second := sign(t, s.SigningKeys, "second\n")
	verifies(t, second, "second\n", rotated.Verifiers()[:1])
	if _, err := before.Open(second); !errors.Is(err, signing.ErrUnknownKey) {
		t.Errorf("the keys from before the rotation open it: %v", err)
	}
	keys = load(t, processes[1]).Verifiers()
	if len(keys) != 2 || keys[0] != rotated.Verifiers()[0] || keys[1].Signs || nameOf(keys[0]) != nameOf(keys[1]) {
		t.Errorf("after a rotation the keys are %+v", keys)
	}
	verifies(t, signed[0], "first\n", keys)
	var private int
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	tablestest.Must(t, super.QueryRow(ctx, "select count(secret) from manifold.signing_keys").Scan(&private))
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
	if keys = load(t, s.SigningKeys).Verifiers(); made == 0 || len(keys) != 2+made {
		t.Errorf("%d rotations succeeded and %d met others; there are %d keys", made, conflicts, len(keys))
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
	first := sign(t, s.SigningKeys, "text\n")
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
		tablestest.Must(t, super.QueryRow(ctx, `
			select coalesce(key_id, ''), encode(secret, 'escape') from manifold.signing_keys order by number desc`).Scan(&name, &secret))
		if plain := strings.HasPrefix(secret, "PRIVATE+KEY+"); name != want || plain != (want == "") {
			t.Errorf("it is stored with the key %q, plain: %v; want %q", name, plain, want)
		}
	}
	stored("")
	for _, step := range []struct{ text, want string }{
		{"plain\n" + atRestKey("a"), ""}, {atRestKey("a"), "a"}, {atRestKey("b") + atRestKey("a"), "b"},
		{"plain\n" + atRestKey("b"), ""}, {atRestKey("a"), "a"},
	} {
		keys := run(step.text)
		stored(step.want)
		sign(t, keys, "text\n")
	}
	lost := signing.New(s.DB, nil)
	if _, err := lost.Load(ctx); err == nil || !strings.Contains(err.Error(), "encryption.keys; add it") {
		t.Errorf("without the key it says %v", err)
	}
	_, err := lost.Rotate(ctx)
	tablestest.Must(t, err)
	sign(t, lost, "text\n")
	verifies(t, first, "text\n", load(t, lost).Verifiers())
}

// With encryption at rest, nobody can add, change or remove a key in the database, and a foreign key that is stored
// plainly never signs together with the genuine ones.
func TestKeysAreAuthenticated(t *testing.T) {
	t.Parallel()
	s, db := tablestest.Open(t)
	ctx := t.Context()
	super := db.Pool(t, pgtest.RoleSuperuser, 1)
	keys := signing.New(s.DB, encryption(t, atRestKey("a")))
	for range 3 {
		_, err := keys.Rotate(ctx)
		tablestest.Must(t, err)
	}
	genuine := load(t, keys)
	foreignSecret, foreign, err := note.GenerateKey(rand.Reader, genuine.Name())
	tablestest.Must(t, err)
	execute := func(statement string, args ...any) {
		t.Helper()
		_, err := super.Exec(ctx, statement, args...)
		tablestest.Must(t, err)
	}
	execute("create table kept as select * from manifold.signing_keys")
	if db.Distributed() {
		execute("select create_reference_table('kept')")
	}
	const insert = "insert into manifold.signing_keys (number, verifier, secret, created_at) values ($1, $2, $3, now())"
	for name, change := range map[string]func(){
		"an older key":      func() { execute(insert, 0, foreign, nil) },
		"a newer key":       func() { execute(insert, 9, foreign, []byte{}) },
		"another verifier":  func() { execute("update manifold.signing_keys set verifier = $1 where number = 2", foreign) },
		"a removed key":     func() { execute("delete from manifold.signing_keys where number = 2") },
		"the newest is cut": func() { execute("delete from manifold.signing_keys where number = 4") },
		"another number":    func() { execute("update manifold.signing_keys set number = 7 where number = 4") },
	} {
		change()
		if _, err := keys.Reload(ctx); err == nil || !strings.Contains(err.Error(), "the signing keys cannot be used") {
			t.Errorf("%s is accepted: %v", name, err)
		}
		execute("delete from manifold.signing_keys")
		execute("insert into manifold.signing_keys select * from kept")
	}

	execute(insert, 9, foreign, []byte(foreignSecret))
	exchanged := load(t, keys) // as when encryption at rest begins
	signed, err := exchanged.Sign("text\n")
	tablestest.Must(t, err)
	if _, err := genuine.Open(signed); !errors.Is(err, signing.ErrUnknownKey) {
		t.Errorf("the genuine keys open what a foreign one has signed: %v", err)
	}
	var plain bool
	tablestest.Must(t, super.QueryRow(ctx, `
		select bool_or(secret is not null and key_id is null) from manifold.signing_keys`).Scan(&plain))
	if plain {
		t.Error("a private part is stored plainly")
	}
	// Somebody who knows how this row was encrypted cannot add it to the genuine ones in another place.
	execute("update manifold.signing_keys set number = 0 where number = 9")
	execute("update manifold.signing_keys k set secret = o.secret, key_id = o.key_id from kept o where o.number = k.number")
	if ring, err := keys.Reload(ctx); err == nil {
		t.Errorf("a foreign key is among %+v", ring.Verifiers())
	}
}
