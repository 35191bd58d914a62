package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/config"
)

const encryptionKey = "2026-11 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

// The keys come from the environment, a file, or a program, and from one of them only.
func TestEncryptionKeys(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file, settings := filepath.Join(folder, "keys"), filepath.Join(folder, "manifold.yaml")
	if err := os.WriteFile(file, []byte("# new\n"+encryptionKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	load := func(yaml string, environ ...string) (config.Config, error) {
		t.Helper()
		if err := os.WriteFile(settings, []byte("database: {url: 'postgres://db/manifold'}\n"+yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		return config.Load(settings, environ)
	}
	for _, c := range []struct {
		yaml    string
		environ []string
		current string
	}{
		{"", nil, ""},
		{fmt.Sprintf("encryption: {keys: %q}\n", encryptionKey), nil, "2026-11"},
		{fmt.Sprintf("encryption: {keysFile: %q}\n", file), nil, "2026-11"},
		{fmt.Sprintf("encryption: {keysCommand: [cat, %q]}\n", file), nil, "2026-11"},
		{"", []string{"MANIFOLD_ENCRYPTION_KEYS=" + encryptionKey}, "2026-11"},
		{"", []string{"MANIFOLD_ENCRYPTION_KEYS_COMMAND=cat," + file}, "2026-11"},
	} {
		loaded, err := load(c.yaml, c.environ...)
		if err != nil {
			t.Errorf("%q %q: %v", c.yaml, c.environ, err)
			continue
		}
		if keys, err := loaded.Encryption.Parsed(); err != nil || keys.Current() != c.current {
			t.Errorf("%q %q: the key is %q, %v", c.yaml, c.environ, keys.Current(), err)
		}
		if text := fmt.Sprintf("%+v %s", loaded, loaded.Encryption.Keys); strings.Contains(text, "AAAA") {
			t.Errorf("%q: the configuration shows the key", c.yaml)
		}
	}
	for yaml, want := range map[string]string{
		"encryption: {keys: '# none'}\n":                                                "encryption.keys: there is no key in it",
		"encryption: {keys: short}\n":                                                   "encryption.keys: line 1: expected a key's name",
		fmt.Sprintf("encryption: {keys: %q, keysFile: %q}\n", encryptionKey, file):      "encryption.keys: both this and encryption.keysFile are given",
		fmt.Sprintf("encryption: {keysFile: %q, keysCommand: [cat]}\n", file):           "encryption.keysCommand: there are also encryption.keys",
		"encryption: {keysCommand: [sh, -c, 'echo no permission >&2; exit 3']}\n":       "encryption.keysCommand: exit status 3: no permission",
		"encryption: {keysCommand: ['true']}\n":                                         "encryption.keysCommand: true printed no keys",
		fmt.Sprintf("encryption: {keysCommand: [%q]}\n", filepath.Join(folder, "none")): "encryption.keysCommand: ",
	} {
		if _, err := load(yaml); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want %s", yaml, err, want)
		}
	}
}
