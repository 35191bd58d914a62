// Package signing signs texts with the service's keys, so that whoever has the public part can tell later that the
// service wrote them. Signed texts are notes (golang.org/x/mod/sumdb/note) with Ed25519 signatures. Start with
// Keys.Load, which returns the keys as they are now.
//
// All processes of a database share its keys. The newest one signs; rotation erases the private part of the one before,
// whose public part still verifies what it signed. With encryption at rest, the newest private part is encrypted, and
// the numbers and public parts of all keys are authenticated with it: nobody can add, change or remove a key in the
// database without being noticed. Without it, whoever can read the database can sign, too.
package signing

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/note"

	"github.com/manifold-es/manifold/atrest"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// ringKept is how long a process uses the keys before it looks whether another process has rotated them.
const ringKept = 30 * time.Second

// encryptEvery is how often a process stores the private part again if encryption at rest has another key.
const encryptEvery = 10 * time.Minute

// Keys loads the keys of a database. All methods may be called concurrently. An error that a client can act on is a
// *domain.Error. If the database cannot be reached, its code is domain.CodeUnavailable.
type Keys struct {
	db     *pg.DB
	atRest *atrest.Keys

	mu       sync.Mutex
	loaded   *Ring // nil: it must be loaded again
	loadedAt time.Time
}

// New returns the keys of a database. It encrypts private parts with the keys of encryption at rest; nil: it stores
// them as they are.
func New(db *pg.DB, atRest *atrest.Keys) *Keys { return &Keys{db: db, atRest: atRest} }

// Verifier is the public part of a key.
type Verifier struct {
	Text      string // as note.NewVerifier expects it: the name, a hash, and the key in base64
	CreatedAt time.Time
	Signs     bool // the service signs with it; the others verify only what they signed earlier
}

// Ring is the keys of one moment. It needs no database, so it may be used within a transaction. What one Ring has
// verified must be signed with the same one: otherwise somebody who exchanges the keys in between could have a text of
// his signed.
type Ring struct {
	signer    note.Signer
	verifiers note.Verifiers
	list      []Verifier
}

// ErrUnknownKey means that a text is signed with a key that the Ring does not have.
var ErrUnknownKey = errors.New("it is signed with a key that is not one of the service's")

// Name returns the name of the keys, which is different for each installation, and does not change when they rotate.
func (r *Ring) Name() string { return r.signer.Name() }

// Verifiers returns the public parts of all keys, the newest first.
func (r *Ring) Verifiers() []Verifier { return slices.Clone(r.list) }

// Sign returns the text as a note with a signature. The text must end with a newline, and contain no other control
// characters.
func (r *Ring) Sign(text string) ([]byte, error) {
	signed, err := note.Sign(&note.Note{Text: text}, r.signer)
	if err != nil {
		return nil, fmt.Errorf("sign a text: %w", err)
	}
	return signed, nil
}

// SignJSON returns a note with a signature, whose text is a value as indented JSON.
func (k *Keys) SignJSON(ctx context.Context, value any) (string, error) {
	text, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return "", fmt.Errorf("write what is to be signed: %w", err)
	}
	ring, err := k.Load(ctx)
	if err != nil {
		return "", err
	}
	signed, err := ring.Sign(string(text) + "\n")
	return string(signed), err
}

// Open verifies a note that one of the keys has signed, and returns its text. An error may be ErrUnknownKey: the keys
// of a later moment may have it, if another process has rotated them.
func (r *Ring) Open(signed []byte) (string, error) {
	opened, err := note.Open(signed, r.verifiers)
	if _, unknown := errors.AsType[*note.UnverifiedNoteError](err); unknown {
		err = ErrUnknownKey
	}
	if err != nil {
		return "", fmt.Errorf("verify what was signed: %w", err)
	}
	return opened.Text, nil
}

// Load returns the keys, and makes the first one. They are at most half a minute old.
func (k *Keys) Load(ctx context.Context) (*Ring, error) {
	k.mu.Lock()
	ring, age := k.loaded, time.Since(k.loadedAt)
	k.mu.Unlock()
	if ring != nil && age < ringKept {
		return ring, nil
	}
	return k.Reload(ctx)
}

// Reload is Load of the keys as they are now.
func (k *Keys) Reload(ctx context.Context) (*Ring, error) {
	rows, err := k.read(ctx)
	if err != nil {
		return nil, err
	}
	if rows[0].secret.Key == "" && len(rows[0].secret.Data) > 0 && k.atRest.Current() != "" { // encryption at rest begins
		if err := k.encrypt(ctx); err != nil {
			return nil, err
		}
		if rows, err = k.read(ctx); err != nil {
			return nil, err
		}
		if rows[0].secret.Key == "" {
			return nil, domain.Errorf(domain.CodeUnavailable, "",
				"the signing key was just stored unencrypted by another process; try again")
		}
	}
	ring := &Ring{}
	secret, err := k.atRest.Open(rows[0].secret, place(rows)...)
	if err == nil {
		ring.signer, err = note.NewSigner(string(secret))
	}
	if err != nil {
		return nil, fmt.Errorf("the signing keys cannot be used: the private part of %s cannot be read, "+
			"or a key was changed, added or removed in the database: %w", rows[0].Text, err)
	}
	var verifiers []note.Verifier
	for i, row := range rows {
		verifier, err := note.NewVerifier(row.Text)
		if err != nil {
			return nil, fmt.Errorf("read the signing key %s: %w", row.Text, err)
		}
		row.Signs = i == 0
		verifiers, ring.list = append(verifiers, verifier), append(ring.list, row.Verifier)
	}
	ring.verifiers = note.VerifierList(verifiers...)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.loaded, k.loadedAt = ring, time.Now()
	return ring, nil
}

// Rotate makes a new key, which signs from now on, and erases the private part of the one before. It returns all keys.
// Other processes sign with the one before for up to half a minute more. It works without the private part of the one
// before, and trusts the public parts that the database has: after a loss of the key of encryption at rest, nothing
// else is left. The error is domain.CodeConflict if another rotation comes first.
func (k *Keys) Rotate(ctx context.Context) (*Ring, error) {
	rows, err := k.read(ctx)
	if err != nil {
		return nil, err
	}
	before, err := note.NewVerifier(rows[0].Text)
	if err != nil {
		return nil, fmt.Errorf("read the signing key %d: %w", rows[0].number, err)
	}
	made, err := k.insert(ctx, rows, before.Name())
	switch {
	case err != nil:
		return nil, err
	case !made:
		return nil, domain.Errorf(domain.CodeConflict, "", "the signing keys were just rotated by another request")
	}
	return k.Reload(ctx)
}

// Run keeps the private part encrypted with the current key of encryption at rest, until ctx ends.
func (k *Keys) Run(ctx context.Context) error {
	ticker := time.NewTicker(encryptEvery)
	defer ticker.Stop()
	for {
		if err := k.encrypt(ctx); err != nil && ctx.Err() == nil {
			k.db.Log.Error("the signing key was not encrypted with the current key; keep the old keys", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// stored is a row of signing_keys.
type stored struct {
	number int64
	Verifier
	secret atrest.Stored // empty, unless it is the newest
}

// place is where the private part of the newest key is stored, for atrest. It names all keys, the newest first.
func place(rows []stored) []string {
	names := []string{"signing_keys"}
	for _, row := range rows {
		names = append(names, strconv.FormatInt(row.number, 10), row.Text)
	}
	return names
}

// read returns all keys, the newest first, and makes the first one.
func (k *Keys) read(ctx context.Context) ([]stored, error) {
	for {
		rows, err := pg.Select(ctx, k.db.System, "read the signing keys", func(row pgx.CollectableRow) (s stored, err error) {
			return s, row.Scan(&s.number, &s.Text, (*pg.Moment)(&s.CreatedAt), &s.secret.Data, &s.secret.Key)
		}, `
			select k.number, k.verifier, k.created_at, k.secret, coalesce(k.key_id, '') from signing_keys k order by k.number desc`)
		if err != nil || len(rows) > 0 {
			return rows, err
		}
		id := make([]byte, 8)
		rand.Read(id)
		if _, err := k.insert(ctx, nil, "manifold."+hex.EncodeToString(id)); err != nil {
			return nil, err
		}
	}
}

// insert makes a key after those of rows, unless another process has made one.
func (k *Keys) insert(ctx context.Context, rows []stored, name string) (made bool, err error) {
	secret, verifier, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		return false, fmt.Errorf("make a signing key: %w", err)
	}
	number := int64(1)
	if len(rows) > 0 {
		number += rows[0].number
	}
	added := stored{number: number, Verifier: Verifier{Text: verifier}}
	sealed := k.atRest.Seal([]byte(secret), place(slices.Insert(slices.Clone(rows), 0, added))...)
	err = pgx.BeginFunc(ctx, k.db.System, func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, `
			insert into signing_keys (number, verifier, secret, key_id, created_at)
			values ($1, $2, $3, nullif($4::text, ''), statement_timestamp()) on conflict (number) do nothing`,
			number, verifier, sealed.Data, sealed.Key)
		if made = done.RowsAffected() > 0; err != nil || !made {
			return err
		}
		_, err = tx.Exec(ctx, `
			update signing_keys set secret = null, key_id = null where number < $1 and secret is not null`, number)
		return err
	})
	if err != nil {
		return false, pg.Unavailable(fmt.Errorf("keep a signing key: %w", err))
	}
	return made, nil
}

// encrypt stores the newest private part as encryption at rest says: with its current key, or plainly if none encrypts.
func (k *Keys) encrypt(ctx context.Context) error {
	if k.atRest == nil {
		return nil
	}
	rows, err := k.read(ctx)
	if err != nil || rows[0].secret.Key == k.atRest.Current() {
		return err
	}
	newest := rows[0]
	secret, err := k.atRest.Open(newest.secret, place(rows)...)
	if err != nil {
		return err
	}
	sealed := k.atRest.Seal(secret, place(rows)...)
	// Another process may have replaced it in the meantime.
	done, err := k.db.System.Exec(ctx, `
		update signing_keys set secret = $2, key_id = nullif($3::text, '') where number = $1 and secret = $4`,
		newest.number, sealed.Data, sealed.Key, newest.secret.Data)
	if err != nil {
		return pg.Unavailable(fmt.Errorf("encrypt the signing key: %w", err))
	}
	if newest.secret.Key == "" && done.RowsAffected() > 0 {
		k.db.Log.Warn("the signing key was stored unencrypted, and is encrypted now; "+
			"unless encryption at rest has just begun, somebody has replaced it: compare it with the one that you know",
			"key", newest.Text)
	}
	return nil
}
