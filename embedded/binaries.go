package embedded

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// MinimumMajor is the oldest major version of PostgreSQL that Manifold supports.
const MinimumMajor = 14

// Binaries is the folder with one installation's `postgres` and `initdb`.
type Binaries struct {
	Dir   string // absolute
	Major int    // PostgreSQL's major version, such as 17
}

func (b Binaries) path(program string) string { return filepath.Join(b.Dir, program) }

// FindBinaries looks for an installed PostgreSQL of version 14 or later, the newest first: on the PATH, where
// `pg_config --bindir` says, and where the packages of Debian, Red Hat and Homebrew install it. If there is none, it
// downloads one into a folder of the user's cache, and logs that, because it takes a while. major is the required major
// version; 0 accepts any.
//
// The error lists every place that was searched, and why it was rejected.
func FindBinaries(ctx context.Context, major int, log *slog.Logger) (Binaries, error) {
	var tried []string
	for _, dir := range installed(ctx) {
		b, err := inspect(ctx, dir)
		switch {
		case err == nil && major != 0 && b.Major != major:
			err = fmt.Errorf("version %d, but %d is needed", b.Major, major)
		case err == nil && b.Major < MinimumMajor:
			err = fmt.Errorf("version %d, but %d or later is needed", b.Major, MinimumMajor)
		}
		if err == nil {
			return b, nil
		}
		if ctx.Err() != nil {
			return Binaries{}, ctx.Err()
		}
		tried = append(tried, dir+": "+err.Error())
	}
	source, err := defaultSource()
	if err != nil {
		return Binaries{}, err
	}
	b, err := source.download(ctx, major, log)
	if err == nil {
		return b, nil
	}
	if len(tried) == 0 {
		tried = []string{"the PATH, pg_config, /usr/lib/postgresql, /usr/pgsql-*, Homebrew: nothing there"}
	}
	wanted := fmt.Sprintf("PostgreSQL %d or later", MinimumMajor)
	install := "apt-get install postgresql"
	if major != 0 {
		wanted = fmt.Sprintf("PostgreSQL %d", major)
		install = fmt.Sprintf("apt-get install postgresql-%d", major)
	}
	return Binaries{}, fmt.Errorf("no %s on this machine; install it (on Debian: %s), or put its bin folder on the PATH. Tried:\n  %s\n  download: %w",
		wanted, install, strings.Join(tried, "\n  "), err)
}

// installed lists the folders that may contain a PostgreSQL, best first, each once.
func installed(ctx context.Context) []string {
	var dirs []string
	if p, err := exec.LookPath("postgres"); err == nil {
		// A link on the PATH leads to the folder that also contains initdb.
		if target, err := filepath.EvalSymlinks(p); err == nil {
			p = target
		}
		if p, err = filepath.Abs(p); err == nil {
			dirs = append(dirs, filepath.Dir(p))
		}
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",                // Debian, Ubuntu
		"/usr/pgsql-*/bin",                         // PostgreSQL's own RPMs
		"/usr/libexec/postgresql*",                 // Alpine
		"/opt/homebrew/opt/postgresql*/bin",        // Homebrew on ARM
		"/usr/local/opt/postgresql*/bin",           // Homebrew on Intel
		"/home/linuxbrew/.linuxbrew/opt/post*/bin", // Homebrew on Linux
		"/Applications/Postgres.app/Contents/Versions/*/bin",
		"/usr/local/pgsql/bin", // built from source
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			continue // the patterns are constants, and valid
		}
		slices.SortStableFunc(found, func(a, b string) int { return cmp.Compare(lastNumber(b), lastNumber(a)) })
		dirs = append(dirs, found...)
	}
	seen := make(map[string]bool, len(dirs))
	return slices.DeleteFunc(dirs, func(dir string) bool {
		skip := dir == "" || seen[dir]
		seen[dir] = true
		return skip
	})
}

var digits = regexp.MustCompile(`\d+`)

// lastNumber returns the last number in a path, so that version 17 sorts above 9.
func lastNumber(path string) int {
	all := digits.FindAllString(path, -1)
	if len(all) == 0 {
		return 0
	}
	n, err := strconv.Atoi(all[len(all)-1])
	if err != nil {
		return 0
	}
	return n
}

var versionOutput = regexp.MustCompile(`\(PostgreSQL\) (\d+)`)

// inspect reports whether dir has what a server needs, and which version it is.
func inspect(ctx context.Context, dir string) (Binaries, error) {
	b := Binaries{Dir: dir}
	for _, program := range []string{"initdb", "postgres"} {
		if _, err := os.Stat(b.path(program)); errors.Is(err, os.ErrNotExist) {
			return Binaries{}, fmt.Errorf("has no %s", program)
		} else if err != nil {
			return Binaries{}, err
		}
	}
	out, err := exec.CommandContext(ctx, b.path("postgres"), "--version").Output()
	if err != nil {
		return Binaries{}, fmt.Errorf("postgres --version: %w", err)
	}
	m := versionOutput.FindSubmatch(out)
	if m == nil {
		return Binaries{}, fmt.Errorf("postgres --version returned an invalid version: %q", out)
	}
	if b.Major, err = strconv.Atoi(string(m[1])); err != nil {
		return Binaries{}, fmt.Errorf("postgres --version says %q: %w", out, err)
	}
	return b, nil
}
