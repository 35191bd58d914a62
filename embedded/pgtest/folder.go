package pgtest

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/manifold-es/manifold/embedded"
)

const (
	prefix  = "manifold-test-"
	shm     = "/dev/shm"
	shmRoom = 2 << 30 // free bytes that are required to store the files in memory
)

// base is where tests store their files: in memory if there is room, else on disk.
func base() string {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(shm, &fs); err == nil && uint64(fs.Bavail)*uint64(fs.Bsize) >= shmRoom {
		return shm
	}
	return os.TempDir()
}

func tempDir(in string) (string, error) {
	dir, err := os.MkdirTemp(in, prefix)
	if err != nil {
		return "", fmt.Errorf("make a folder for the server: %w", err)
	}
	return dir, nil
}

// sweep removes the files of killed test binaries: each folder that no living process has locked, and that is not just
// being set up. Whatever it cannot remove, such as another user's files, stays, which does no harm here.
func sweep() {
	for _, base := range []string{shm, os.TempDir()} {
		dirs, err := filepath.Glob(filepath.Join(base, prefix+"*"))
		if err != nil {
			continue
		}
		for _, dir := range dirs {
			info, err := os.Stat(dir)
			if err != nil || !info.IsDir() || time.Since(info.ModTime()) < time.Minute || embedded.InUse(dir) {
				continue
			}
			_ = os.RemoveAll(dir)
		}
	}
}
