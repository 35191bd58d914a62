package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// downloads lists the versions that the library supports, newest first.
var downloads = []struct {
	major   int
	version embeddedpostgres.PostgresVersion
}{
	{17, embeddedpostgres.V17},
	{16, embeddedpostgres.V16},
	{15, embeddedpostgres.V15},
	{14, embeddedpostgres.V14},
	{18, embeddedpostgres.V18}, // only on request, because we have not tested its download
}

// source is where downloads come from, and where they are stored.
type source struct {
	repository string // a Maven repository's URL
	cache      string // folder
}

// defaultSource stores downloads in the user's cache. Root's are stored where everybody can read them, because the
// account that runs root's server cannot read root's home.
func defaultSource() (source, error) {
	const repository = "https://repo1.maven.org/maven2"
	if os.Geteuid() == 0 {
		return source{repository, "/var/cache/manifold/postgresql"}, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return source{}, fmt.Errorf("find the user's cache: %w", err)
	}
	return source{repository, filepath.Join(dir, "manifold", "postgresql")}, nil
}

// download fetches a PostgreSQL into the cache, or returns the one that an earlier call stored there.
func (s source) download(ctx context.Context, major int, log *slog.Logger) (Binaries, error) {
	var version embeddedpostgres.PostgresVersion
	for _, d := range downloads {
		if major == 0 || d.major == major {
			major, version = d.major, d.version
			break
		}
	}
	if version == "" {
		return Binaries{}, fmt.Errorf("version %d is not offered", major)
	}
	final := filepath.Join(s.cache, fmt.Sprintf("%s-%s-%s", version, runtime.GOOS, runtime.GOARCH))
	if b, err := inspect(ctx, filepath.Join(final, "bin")); err == nil {
		return b, nil
	}
	log.Info("no PostgreSQL is installed; downloading one", "version", string(version), "from", s.repository, "to", final)
	if err := os.MkdirAll(s.cache, 0o755); err != nil {
		return Binaries{}, fmt.Errorf("make the cache: %w", err)
	}
	// Everything is unpacked in a temporary folder and then renamed, so that nobody finds half an installation.
	work, err := os.MkdirTemp(s.cache, "download-")
	if err != nil {
		return Binaries{}, fmt.Errorf("make a folder in the cache: %w", err)
	}
	defer os.RemoveAll(work)
	if err := os.Chmod(work, 0o755); err != nil {
		return Binaries{}, err
	}
	done := make(chan error, 1)
	go func() { done <- s.fetch(version, work) }()
	select {
	case <-ctx.Done(): // the library takes no context, so do not wait for what it still fetches
		return Binaries{}, ctx.Err()
	case err = <-done:
	}
	unpacked := filepath.Join(work, "installation")
	if _, bad := inspect(ctx, filepath.Join(unpacked, "bin")); bad != nil {
		return Binaries{}, errors.Join(err, bad)
	}
	if err := os.RemoveAll(final); err != nil {
		return Binaries{}, fmt.Errorf("remove an unusable download: %w", err)
	}
	if err := os.Rename(unpacked, final); err != nil {
		// Another process may have downloaded it at the same time; its download is as good.
		if b, bad := inspect(ctx, filepath.Join(final, "bin")); bad == nil {
			return b, nil
		}
		return Binaries{}, fmt.Errorf("move the download to its place: %w", err)
	}
	return inspect(ctx, filepath.Join(final, "bin"))
}

// fetch downloads and unpacks into work/installation. The library can only start a server, not merely fetch one. So it
// gets an invalid data folder, and stops with an error right after unpacking. Success is therefore judged by what it
// unpacked, and its error matters only if that is incomplete.
func (s source) fetch(version embeddedpostgres.PostgresVersion, work string) error {
	data := filepath.Join(work, "no-data")
	if err := os.MkdirAll(data, 0o700); err != nil {
		return err
	}
	majorOnly, _, _ := bytes.Cut([]byte(version), []byte("."))
	if err := os.WriteFile(filepath.Join(data, "PG_VERSION"), append(majorOnly, '\n'), 0o600); err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	return embeddedpostgres.NewDatabase(embeddedpostgres.DefaultConfig().
		Version(version).
		Port(uint32(port)).
		BinaryRepositoryURL(s.repository).
		CachePath(s.cache).
		RuntimePath(filepath.Join(work, "runtime")).
		BinariesPath(filepath.Join(work, "installation")).
		DataPath(data).
		Logger(new(bytes.Buffer))).Start()
}
