package pgtest

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"

	"github.com/xdg-go/scram"
)

// cheapSecret returns what PostgreSQL stores for a password, derived with one iteration instead of 4096. Tests open
// thousands of connections, and for each of them client and server do all iterations.
func cheapSecret(password string) (string, error) {
	const iterations = 1
	client, err := scram.SHA256.NewClient("", password, "")
	if err != nil {
		return "", fmt.Errorf("derive a password's secret: %w", err)
	}
	salt := make([]byte, 16)
	rand.Read(salt)
	keys, err := client.GetStoredCredentialsWithError(scram.KeyFactors{Salt: string(salt), Iters: iterations})
	if err != nil {
		return "", fmt.Errorf("derive a password's secret: %w", err)
	}
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", iterations, encode(salt), encode(keys.StoredKey), encode(keys.ServerKey)), nil
}
