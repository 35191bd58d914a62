package migrations

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"

	"github.com/xdg-go/scram"
)

// scramIterations is PostgreSQL's default.
const scramIterations = 4096

// scramVerifier returns what PostgreSQL stores for a password: SCRAM-SHA-256$iterations:salt$StoredKey:ServerKey. The
// server can check a password with the verifier, but nobody can log in with it.
func scramVerifier(password string) (string, error) {
	client, err := scram.SHA256.NewClient("", password, "")
	if err != nil { // like PostgreSQL, use the password unchanged if SASLprep refuses it
		if client, err = scram.SHA256.NewClientUnprepped("", password, ""); err != nil {
			return "", fmt.Errorf("make a SCRAM verifier: %w", err)
		}
	}
	salt := make([]byte, 16)
	rand.Read(salt)
	keys, err := client.GetStoredCredentialsWithError(scram.KeyFactors{Salt: string(salt), Iters: scramIterations})
	if err != nil {
		return "", fmt.Errorf("make a SCRAM verifier: %w", err)
	}
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", scramIterations, encode(salt), encode(keys.StoredKey), encode(keys.ServerKey)), nil
}
