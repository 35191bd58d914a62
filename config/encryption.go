package config

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/manifold-es/manifold/atrest"
)

// Encryption says with which keys the secrets of webhooks and the private signing key are encrypted before the database
// stores them. It has at most one source of keys, in the format of atrest.Parse; without one, they are stored as they
// are.
type Encryption struct {
	Keys        Secret   `yaml:"keys" env:"KEYS"`
	KeysFile    string   `yaml:"keysFile" env:"KEYS_FILE"`
	KeysCommand []string `yaml:"keysCommand" env:"KEYS_COMMAND"` // a program and its arguments, which prints them, such as a client of a KMS
}

// keysPatience limits how long KeysCommand may run.
const keysPatience = 30 * time.Second

// runCommand sets the keys that the command prints.
func (e *Encryption) runCommand() error {
	if len(e.KeysCommand) == 0 {
		return nil
	}
	if e.Keys != "" {
		return errors.New("encryption.keysCommand: there are also encryption.keys; keep one")
	}
	ctx, stop := context.WithTimeout(context.Background(), keysPatience)
	defer stop()
	command := exec.CommandContext(ctx, e.KeysCommand[0], e.KeysCommand[1:]...)
	command.WaitDelay = time.Second
	text, err := command.Output()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("encryption.keysCommand: %s did not end within %s", e.KeysCommand[0], keysPatience)
	case err != nil:
		said := ""
		if failed, ok := errors.AsType[*exec.ExitError](err); ok {
			said = ": " + strings.TrimSpace(string(failed.Stderr))
		}
		return fmt.Errorf("encryption.keysCommand: %w%s", err, said)
	case strings.TrimSpace(string(text)) == "":
		return fmt.Errorf("encryption.keysCommand: %s printed no keys", e.KeysCommand[0])
	}
	e.Keys = Secret(text)
	return nil
}

// Parsed returns the keys; nil: there are none.
func (e *Encryption) Parsed() (*atrest.Keys, error) {
	keys, err := atrest.Parse(string(e.Keys))
	switch {
	case err != nil:
		return nil, fmt.Errorf("encryption.keys: %w", err)
	case keys == nil && e.Keys != "":
		return nil, errors.New("encryption.keys: there is no key in it; write one, or \"plain\" to store secrets unencrypted")
	}
	return keys, nil
}
