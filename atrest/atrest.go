// Package atrest encrypts secrets before a database stores them, so that a copy of the database does not contain them.
// It uses AES-256 in Galois/Counter Mode (NIST SP 800-38D) with random nonces. Start with Parse.
package atrest

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// keyBytes is the length of a key.
const keyBytes = 32

// MaxKeys limits how many keys there may be at a time.
const MaxKeys = 100

// Keys are the keys by which secrets are encrypted, each with a name. The first one encrypts, and all of them decrypt.
// So a new key replaces an old one in steps. If the first line is "plain", no key encrypts, which is the step before
// the first key and after the last one. A nil *Keys stores secrets as they are, too. The methods may be called
// concurrently.
type Keys struct {
	current string // the name of the key that encrypts; empty: none
	byName  map[string]cipher.AEAD
}

// Stored is a secret as the database stores it.
type Stored struct {
	Key  string // the name of its key; empty: it is not encrypted
	Data []byte
}

var keyName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,40}$`)

// Parse reads keys from a text with one key a line: its name, a space, and 32 random bytes in base64. Empty lines and
// lines that begin with # are ignored. The first line may be "plain". Without any line, Parse returns nil. An error
// names the line, and never repeats a key.
func Parse(text string) (*Keys, error) {
	keys := &Keys{byName: make(map[string]cipher.AEAD)}
	number, lines := 0, 0
	for line := range strings.Lines(text) {
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if lines++; lines == 1 && len(fields) == 1 && fields[0] == "plain" {
			continue
		}
		if err := keys.add(fields); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if lines == 1 {
			keys.current = fields[0]
		}
	}
	if lines == 0 {
		return nil, nil
	}
	return keys, nil
}

func (k *Keys) add(fields []string) error {
	if len(fields) != 2 {
		return errors.New("expected a key's name, a space, and the key in base64")
	}
	name := fields[0]
	key, err := base64.StdEncoding.DecodeString(fields[1])
	switch {
	case !keyName.MatchString(name):
		return errors.New("the key's name must have 1 to 40 letters, digits, dots, hyphens and underscores")
	case err != nil || len(key) != keyBytes:
		return fmt.Errorf("the key %q must be %d bytes in base64, as `openssl rand -base64 %d` prints them", name, keyBytes, keyBytes)
	case k.byName[name] != nil:
		return fmt.Errorf("there are two keys %q", name)
	case len(k.byName) == MaxKeys:
		return fmt.Errorf("there are more than %d keys", MaxKeys)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return err
	}
	k.byName[name], err = cipher.NewGCMWithRandomNonce(block)
	return err
}

// Current returns the name of the key that encrypts, or "" if secrets are stored as they are.
func (k *Keys) Current() string {
	if k == nil {
		return ""
	}
	return k.current
}

// Seal encrypts a secret with the current key. place says where the secret is stored, such as the table and the row's
// primary key: only Open with the same place decrypts it, so a row that is copied to another place is useless there.
func (k *Keys) Seal(secret []byte, place ...string) Stored {
	if k.Current() == "" {
		return Stored{Data: secret}
	}
	return Stored{Key: k.current, Data: k.byName[k.current].Seal(nil, nil, secret, additional(place))}
}

// Open decrypts a stored secret.
func (k *Keys) Open(stored Stored, place ...string) ([]byte, error) {
	if stored.Key == "" {
		return stored.Data, nil
	}
	var sealer cipher.AEAD
	if k != nil {
		sealer = k.byName[stored.Key]
	}
	if sealer == nil {
		return nil, fmt.Errorf("the key %q is missing from encryption.keys; add it", stored.Key)
	}
	secret, err := sealer.Open(nil, nil, stored.Data, additional(place))
	if err != nil {
		return nil, fmt.Errorf("the key %q in encryption.keys does not decrypt it, or its row was changed; restore the key that encrypted it", stored.Key)
	}
	return secret, nil
}

// additional returns the data that is authenticated with a secret. Two lists of texts never give the same.
func additional(place []string) []byte {
	var all []byte
	for _, part := range place {
		sum := sha256.Sum256([]byte(part))
		all = append(all, sum[:]...)
	}
	return all
}
