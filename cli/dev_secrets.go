//go:build unix

package cli

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/manifold-es/manifold/migrations"
	"github.com/manifold-es/manifold/service"
)

// devSecrets are the secrets that `manifold dev` generates at its first start and reads again at later ones. They are
// in the file secrets.json in its folder, which only its owner can read.
type devSecrets struct {
	Passwords   map[string]string `json:"passwords"` // by login name
	OperatorKey string            `json:"operatorKey"`
	service.Demo
}

func devSecretsFile(dir string) string { return filepath.Join(dir, "secrets.json") }

// loadDevSecrets reads the file. It creates the file, or the values missing from it.
func loadDevSecrets(dir string) (*devSecrets, error) {
	s := &devSecrets{}
	text, err := os.ReadFile(devSecretsFile(dir))
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		if err := json.Unmarshal(text, s); err != nil {
			return nil, fmt.Errorf("%s is damaged (%w): remove it to generate new keys and passwords", devSecretsFile(dir), err)
		}
	}
	if s.Passwords == nil {
		s.Passwords = make(map[string]string)
	}
	for _, role := range migrations.Roles {
		if s.Passwords[string(role)] == "" {
			s.Passwords[string(role)] = rand.Text()
		}
	}
	if s.OperatorKey == "" {
		s.OperatorKey = "dev-operator-" + rand.Text()
	}
	return s, s.save(dir)
}

// save writes the file atomically.
func (s *devSecrets) save(dir string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(dir, ".secrets-*") // readable by its owner only, from the start
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	if err == nil {
		err = file.Sync()
	}
	if err := errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return os.Rename(file.Name(), devSecretsFile(dir))
}

func (s *devSecrets) passwords() map[migrations.Role]string {
	passwords := make(map[migrations.Role]string)
	for role, password := range s.Passwords {
		passwords[migrations.Role(role)] = password
	}
	return passwords
}
