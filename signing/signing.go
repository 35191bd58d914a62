// Package signing signs texts with the service's keys, so that whoever has the public part can tell later that the service
// wrote them. Signed texts are notes (golang.org/x/mod/sumdb/note) with Ed25519 signatures. Start with Keys.
//
// All processes of a database share its keys. The newest one signs. Its private part is stored encrypted if encryption at
// rest has a key; without that, whoever can read the database can sign, too. Rotation erases the private part of the old
// key, whose public part still verifies what it signed.
package signing

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/atrest"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/pg"
)

// signerKept is how long a process signs with a key before it looks whether another process has rotated it.
const signerKept = 30 * time.Second

// encryptEvery is how often a process stores the private part again if encryption at rest has another key.
const encryptEvery = 10 * time.Minute

// Keys signs with the keys of a database. All methods may be called concurrently. An error that a client can act on is a
// *domain.Error. If the database cannot be reached, its code is domain.CodeUnavailable.
type Keys struct {
	db   *pg.DB
	keys *atrest.Keys

	mu        sync.Mutex
	signer    note.Signer
	loadedAt  time.Time
	verifiers note.Verifiers // nil: not loaded yet
}

// New returns the keys of a database. It encrypts their private parts with keys; nil: it stores them as they are.
func New(db *pg.DB, keys *atrest.Keys) *Keys { return &Keys{db: db, keys: keys} }

// Verifier is the public part of a key.
type Verifier struct {
	Text      string // as note.NewVerifier expects it: the name, a hash, and the key in base64
	CreatedAt time.Time
	Signs     bool // the service signs with it; the others verify only what they signed earlier
}

// stored is a row of signing_keys.
type stored struct {
	number   int64
	verifier string
	secret   atrest.Stored
}

// place is where a private part is stored, for atrest.
func (s stored) place() []string { return []string{"signing_keys", s.verifier} }

// Sign returns the text as a note with a signature. The text must end with a newline, and contain no other control
// characters.
func (k *Keys) Sign(ctx context.Context, text string) ([]byte, error) {
	signer, err := k.current(ctx)
	if err != nil {
		return nil, err
	}
	signed, err := note.Sign(&note.Note{Text: text}, signer)
	if err != nil {
		return nil, fmt.Errorf("sign a text: %w", err)
	}
	return signed, nil
}

// Name returns the name of the keys, which is different for each installation, and does not change when they rotate.
func (k *Keys) Name(ctx context.Context) (string, error) {
	signer, err := k.current(ctx)
	if err != nil {
		return "", err
	}
	return signer.Name(), nil
}

// Verifiers returns the public parts of all keys, the newest first.
func (k *Keys) Verifiers(ctx context.Context) ([]Verifier, error) {
	if _, err := k.newest(ctx); err != nil { // there is one afterwards
		return nil, err
	}
	verifiers, err := pg.Select(ctx, k.db.System, "list the signing keys", func(row pgx.CollectableRow) (v Verifier, err error) {
		return v, row.Scan(&v.Text, (*pg.Moment)(&v.CreatedAt))
	}, "select k.verifier, k.created_at from signing_keys k order by k.number desc")
	if len(verifiers) > 0 {
		verifiers[0].Signs = true
	}
	return verifiers, err
}

// Rotate makes a new key, which signs from now on, and erases the private part of the one before. Other processes sign
// with that for up to half a minute more. The error is domain.CodeConflict if another rotation comes first.
func (k *Keys) Rotate(ctx context.Context) (Verifier, error) {
	before, err := k.newest(ctx)
	if err != nil {
		return Verifier{}, err
	}
	verifier, err := note.NewVerifier(before.verifier)
	if err != nil {
		return Verifier{}, fmt.Errorf("read the signing key %d: %w", before.number, err)
	}
	made, err := k.insert(ctx, before.number+1, verifier.Name())
	switch {
	case err != nil:
		return Verifier{}, err
	case !made:
		return Verifier{}, domain.Errorf(domain.CodeConflict, "", "the signing keys were just rotated by another request")
	}
	k.mu.Lock()
	k.signer = nil
	k.mu.Unlock()
	verifiers, err := k.Verifiers(ctx)
	if err != nil {
		return Verifier{}, err
	}
	return verifiers[0], nil
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

// current returns what signs.
func (k *Keys) current(ctx context.Context) (note.Signer, error) {
	k.mu.Lock()
	signer, age := k.signer, time.Since(k.loadedAt)
	k.mu.Unlock()
	if signer != nil && age < signerKept {
		return signer, nil
	}
	row, err := k.newest(ctx)
	if err != nil {
		return nil, err
	}
	secret, err := k.keys.Open(row.secret, row.place()...)
	if err == nil {
		signer, err = note.NewSigner(string(secret))
	}
	if err != nil {
		return nil, fmt.Errorf("read the private part of the signing key %s: %w", row.verifier, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.signer, k.loadedAt = signer, time.Now()
	return signer, nil
}

// newest returns the newest key, and makes the first one.
func (k *Keys) newest(ctx context.Context) (stored, error) {
	for {
		var row stored
		err := k.db.System.QueryRow(ctx, `
			select k.number, k.verifier, k.secret, coalesce(k.key_id, '') from signing_keys k order by k.number desc limit 1`).
			Scan(&row.number, &row.verifier, &row.secret.Data, &row.secret.Key)
		if err == nil {
			return row, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return row, pg.Unavailable(fmt.Errorf("read the signing key: %w", err))
		}
		id := make([]byte, 8)
		rand.Read(id)
		if _, err := k.insert(ctx, 1, "manifold."+hex.EncodeToString(id)); err != nil {
			return row, err
		}
	}
}

// insert makes a key, unless another process has made the one with this number.
func (k *Keys) insert(ctx context.Context, number int64, name string) (made bool, err error) {
	secret, verifier, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		return false, fmt.Errorf("make a signing key: %w", err)
	}
	row := stored{number: number, verifier: verifier}
	row.secret = k.keys.Seal([]byte(secret), row.place()...)
	err = pgx.BeginFunc(ctx, k.db.System, func(tx pgx.Tx) error {
		done, err := tx.Exec(ctx, `
			insert into signing_keys (number, verifier, secret, key_id, created_at) values ($1, $2, $3, nullif($4::text, ''), statement_timestamp())
			on conflict (number) do nothing`, number, verifier, row.secret.Data, row.secret.Key)
		if made = done.RowsAffected() > 0; err != nil || !made {
			return err
		}
		_, err = tx.Exec(ctx, "update signing_keys set secret = null, key_id = null where number < $1 and secret is not null", number)
		return err
	})
	if err != nil {
		return false, pg.Unavailable(fmt.Errorf("keep a signing key: %w", err))
	}
	return made, nil
}

// encrypt stores the private part as encryption at rest says: with its current key, or plainly if none encrypts.
func (k *Keys) encrypt(ctx context.Context) error {
	if k.keys == nil {
		return nil
	}
	row, err := k.newest(ctx)
	if err != nil || row.secret.Key == k.keys.Current() {
		return err
	}
	secret, err := k.keys.Open(row.secret, row.place()...)
	if err != nil {
		return err
	}
	sealed := k.keys.Seal(secret, row.place()...)
	// Another process may have replaced it in the meantime.
	_, err = k.db.System.Exec(ctx, "update signing_keys set secret = $2, key_id = nullif($3::text, '') where number = $1 and secret = $4",
		row.number, sealed.Data, sealed.Key, row.secret.Data)
	if err != nil {
		return pg.Unavailable(fmt.Errorf("encrypt the signing key: %w", err))
	}
	return nil
}

// Open verifies a note that these keys have signed, and returns its text.
func (k *Keys) Open(ctx context.Context, signed []byte) (string, error) {
	k.mu.Lock()
	verifiers := k.verifiers
	k.mu.Unlock()
	if verifiers != nil {
		if opened, err := note.Open(signed, verifiers); err == nil {
			return opened.Text, nil
		}
	}
	verifiers, err := k.loadVerifiers(ctx) // another process may have rotated the key
	if err != nil {
		return "", err
	}
	opened, err := note.Open(signed, verifiers)
	if err != nil {
		return "", fmt.Errorf("verify what was signed: %w", err)
	}
	return opened.Text, nil
}

// loadVerifiers reads the verifiers for Open.
func (k *Keys) loadVerifiers(ctx context.Context) (note.Verifiers, error) {
	keys, err := k.Verifiers(ctx)
	if err != nil {
		return nil, err
	}
	var list []note.Verifier
	for _, key := range keys {
		verifier, err := note.NewVerifier(key.Text)
		if err != nil {
			return nil, fmt.Errorf("read the signing key %s: %w", key.Text, err)
		}
		list = append(list, verifier)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.verifiers = note.VerifierList(list...)
	return k.verifiers, nil
}
