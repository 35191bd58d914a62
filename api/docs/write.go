package docs

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/manifold-es/manifold/api/openapi"
)

// Write writes the site, whose links must be Relative, into a folder that is empty or does not exist yet. It returns
// the number of files.
func (s *Site) Write(folder string) (int, error) {
	switch existing, err := os.ReadDir(folder); {
	case err == nil && len(existing) > 0:
		return 0, fmt.Errorf("%s is not empty: choose a new folder, so that no page of an earlier release stays", folder)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return 0, err
	}
	contents := map[string][]byte{"openapi.yaml": openapi.YAML, "asyncapi.yaml": openapi.AsyncYAML}
	for _, name := range slices.Concat(s.Pages(), slices.Collect(maps.Keys(s.loaded)), slices.Collect(maps.Keys(s.images))) {
		name = strings.TrimSuffix(name, ".gz")
		file, _, err := s.File(name)
		if err != nil {
			return 0, err
		}
		if file.Policy != "" {
			name = htmlFile(name)
		}
		if contents[name], err = file.uncompressed(); err != nil {
			return 0, fmt.Errorf("%s: %w", name, err)
		}
	}
	for name, content := range contents {
		target := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return 0, err
		}
		if err := os.WriteFile(target, content, 0o644); err != nil { //nolint:gosec // to be published
			return 0, err
		}
	}
	return len(contents), nil
}

func (f File) uncompressed() ([]byte, error) {
	if !f.Gzipped {
		return f.Content, nil
	}
	reader, err := gzip.NewReader(bytes.NewReader(f.Content))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(reader)
}
