package pgtest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/manifold-es/manifold/embedded"
)

func TestSweepRemovesWhatNobodyUses(t *testing.T) {
	server := Private(t, Options{})
	folder := func(age time.Duration) string {
		dir, err := tempDir(base())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		if err := os.WriteFile(filepath.Join(dir, "lock"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		touch(t, dir, age)
		return dir
	}
	abandoned, fresh := folder(time.Hour), folder(0)
	touch(t, server.Dir, time.Hour)
	if !embedded.InUse(server.Dir) {
		t.Fatal("a running server's folder is not in use")
	}

	sweep()

	if _, err := os.Stat(abandoned); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the abandoned folder is still there (%v)", err)
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Errorf("a folder that was just made is gone: %v", err)
	}
	if _, err := os.Stat(filepath.Join(server.Dir, "data", "PG_VERSION")); err != nil {
		t.Errorf("a running server's data is gone: %v", err)
	}
}

func touch(t *testing.T, dir string, age time.Duration) {
	t.Helper()
	at := time.Now().Add(-age)
	if err := os.Chtimes(dir, at, at); err != nil {
		t.Fatal(err)
	}
}
