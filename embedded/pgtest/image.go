package pgtest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/embedded"
)

// templateName is a migrated database of each server, except those with Options.Empty. Tests' databases are copies of it.
const templateName = "template"

// imageLife is how long an image stays in the user's cache after its last use.
const imageLife = 24 * time.Hour

// startMigrated starts a server with Manifold's roles and the template. initdb and the migrations take three seconds of a
// processor, so the server's folder is extracted from an image in the user's cache, which the first test binary makes.
func startMigrated(cfg embedded.Config) (*embedded.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	binaries, err := embedded.FindBinaries(ctx, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	cfg.Binaries = binaries
	image, err := image(ctx, binaries)
	if errors.Is(err, fs.ErrNotExist) {
		return startAndMigrate(ctx, cfg) // a test of another module
	}
	if err != nil {
		return nil, fmt.Errorf("make the image of a server: %w", err)
	}
	if err := tar(ctx, "-xpf", image, cfg.Dir); err != nil {
		return nil, err
	}
	return embedded.Start(ctx, cfg)
}

// startAndMigrate starts a server in an empty folder, and creates the roles and the template.
func startAndMigrate(ctx context.Context, cfg embedded.Config) (*embedded.Server, error) {
	server, err := embedded.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := createTemplate(ctx, server); err != nil {
		return nil, errors.Join(err, server.Stop(ctx))
	}
	return server, nil
}

// createTemplate forbids connections to the template, so that not even autovacuum uses it when it is copied.
func createTemplate(ctx context.Context, server *embedded.Server) (err error) {
	if err := migrate(ctx, server, templateName); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	_, err = conn.Exec(ctx, "alter database "+templateName+" with allow_connections false")
	return err
}

// image returns the path of the image, an archive, and makes it if necessary. Its name contains a hash of what the image
// depends on. The error wraps fs.ErrNotExist if the working directory is not in Manifold's source.
func image(ctx context.Context, binaries embedded.Binaries) (string, error) {
	key := sha256.New()
	fmt.Fprintln(key, binaries, runtime.GOARCH, os.Geteuid())
	for _, folder := range []string{"embedded", "embedded/pgtest", "migrations"} {
		_, hash, err := Source(folder)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(key, hash)
	}
	images, err := CacheDir()
	if err != nil {
		return "", err
	}
	const prefix = "postgresql-"
	image := filepath.Join(images, prefix+hex.EncodeToString(key.Sum(nil))[:16])
	if now := time.Now(); os.Chtimes(image, now, now) == nil {
		return image, nil
	}
	removeOld(filepath.Join(images, prefix+"*"))
	// Several test binaries may make it at the same time, so each makes a separate file.
	fresh := fmt.Sprintf("%s.%d", image, os.Getpid())
	if err := createImage(ctx, binaries, fresh); err != nil {
		return "", errors.Join(err, os.RemoveAll(fresh))
	}
	return image, os.Rename(fresh, image)
}

// createImage makes the image. The server runs elsewhere, because the account that runs it for root may not reach the
// user's cache. It is not disposable, so that it stops with its data complete.
func createImage(ctx context.Context, binaries embedded.Binaries, image string) error {
	dir, err := tempDir(base())
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server, err := startAndMigrate(ctx, embedded.Config{Dir: dir, Binaries: binaries, Settings: embedded.DisposableSettings()})
	if err != nil {
		return err
	}
	defer os.RemoveAll(server.Dir)
	if err := server.Stop(ctx); err != nil {
		return err
	}
	return tar(ctx, "-cf", image, server.Dir)
}

// tar archives a folder's content with its owners and permissions ("-cf"), or extracts it ("-xpf"). Copying the files one
// by one takes five times as long.
func tar(ctx context.Context, do, archive, dir string) error {
	if output, err := exec.CommandContext(ctx, "tar", do, archive, "-C", dir, ".").CombinedOutput(); err != nil {
		return fmt.Errorf("tar %s %s in %s: %w\n%s", do, archive, dir, err, output)
	}
	return nil
}

// removeOld removes what matches the pattern and was not used for a day.
func removeOld(pattern string) {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return // the pattern is constant, and valid
	}
	for _, path := range found {
		if info, err := os.Stat(path); err == nil && time.Since(info.ModTime()) > imageLife {
			_ = os.RemoveAll(path) // what cannot be removed stays until the next time
		}
	}
}

// CacheDir returns the folder for files that test binaries keep for the next ones, and creates it if missing.
func CacheDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "manifold")
	return dir, os.MkdirAll(dir, 0o755)
}

// Source returns the path of one of Manifold's folders, and a hash of the names and contents of its files except tests. The
// error wraps fs.ErrNotExist if the working directory is not in Manifold's source.
func Source(folder string) (path, hash string, err error) {
	root, err := sourceRoot()
	if err != nil {
		return "", "", err
	}
	path = filepath.Join(root, folder)
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", "", err
	}
	sum := sha256.New()
	for _, entry := range entries {
		if entry.IsDir() || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(path, entry.Name()))
		if err != nil {
			return "", "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", entry.Name(), len(content), content)
	}
	return path, hex.EncodeToString(sum.Sum(nil)), nil
}

// sourceRoot looks for this file below the test's working directory, which is its package's folder, and the folders above.
func sourceRoot() (string, error) {
	const self = "embedded/pgtest/image.go"
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, self)); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%w: no %s in any folder above the test's", fs.ErrNotExist, self)
		}
	}
}
