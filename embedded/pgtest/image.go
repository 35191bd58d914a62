package pgtest

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/manifold-es/manifold/embedded"
	"github.com/manifold-es/manifold/migrations"
)

// templateName is a migrated database of each server, except those with Options.Empty. Tests' databases are copies of
// it.
const templateName = "template"

// imageLife is how long an image stays in the user's cache after its last use.
const imageLife = 24 * time.Hour

// startMigrated starts a server with Manifold's roles and the template. initdb and the migrations take three seconds of
// a processor, so the server's folder is extracted from an image in the user's cache, which the first test binary
// makes.
func startMigrated(cfg embedded.Config) (*embedded.Server, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	image, err := findImage()
	if err != nil {
		return nil, fmt.Errorf("make the image of a server: %w", err)
	}
	cfg.Binaries = image.binaries
	// Another test binary may have swept the folder, or be about to, because making the image can take a minute.
	_ = os.Remove(cfg.Dir)
	if err := os.Mkdir(cfg.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := tar(ctx, "-xpmf", image.path, cfg.Dir); err != nil {
		return nil, err
	}
	server, err := embedded.Start(ctx, cfg)
	if err == nil && server.Dir != cfg.Dir { // root's server cannot reach it, and begins in an empty folder
		if err = createTemplate(ctx, server); err != nil {
			return nil, errors.Join(err, server.Stop(ctx))
		}
	}
	return server, err
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

// sources are this package's, on which an image depends.
//
//go:embed *.go
var sources embed.FS

// image is an archive of a stopped server's folder, and the programs that have made it.
type image struct {
	path     string
	binaries embedded.Binaries
}

// findImage returns the image, and makes it if necessary.
var findImage = sync.OnceValues(func() (image, error) {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	binaries, err := embedded.FindBinaries(ctx, 0, slog.New(slog.DiscardHandler))
	if err != nil {
		return image{}, err
	}
	path, err := imagePath(binaries)
	if err != nil {
		return image{}, err
	}
	if now := time.Now(); os.Chtimes(path, now, now) == nil {
		return image{path, binaries}, nil
	}
	removeOld(filepath.Join(filepath.Dir(path), imagePrefix+"*"))
	// Several test binaries may make it at the same time, so each makes a separate file.
	fresh := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := createImage(ctx, binaries, fresh); err != nil {
		return image{}, errors.Join(err, os.RemoveAll(fresh))
	}
	return image{path, binaries}, os.Rename(fresh, path)
})

const imagePrefix = "postgresql-"

// imagePath returns the path of the image, whose name contains a hash of what the image depends on, as it was when this
// binary was built: the files on disk may be newer. initdb's options are not part of it.
func imagePath(binaries embedded.Binaries) (string, error) {
	key := sha256.New()
	fmt.Fprintln(key, binaries, runtime.GOARCH, os.Geteuid(), embedded.DisposableSettings(), migrations.Fingerprint())
	files, err := sources.ReadDir(".")
	if err != nil {
		return "", err
	}
	for _, file := range files {
		content, err := sources.ReadFile(file.Name())
		if err != nil {
			return "", err
		}
		key.Write(content)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	images := filepath.Join(cache, "manifold")
	if err := os.MkdirAll(images, 0o755); err != nil {
		return "", err
	}
	return filepath.Join(images, imagePrefix+hex.EncodeToString(key.Sum(nil))[:16]), nil
}

// createImage makes the image. The server runs elsewhere, because the account that runs it for root may not reach the
// user's cache. It is not disposable, so that it stops with its data complete.
func createImage(ctx context.Context, binaries embedded.Binaries, path string) error {
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
	if err := os.WriteFile(path, nil, 0o600); err != nil { // it contains the superuser's password
		return err
	}
	return tar(ctx, "-cf", path, server.Dir)
}

// tar archives a folder's content ("-cf"), or extracts it with its owners and permissions, but not its times ("-xpmf"):
// another test binary would sweep an old folder. Copying the files one by one takes five times as long.
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
