package embedded

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestBinariesAreFoundOnThePathFirst(t *testing.T) {
	real, err := FindBinaries(t.Context(), 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, program := range []string{"postgres", "initdb"} {
		script := "#!/bin/sh\nexec " + real.path(program) + ` "$@"` + "\n"
		if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	got, err := FindBinaries(t.Context(), real.Major, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if want := (Binaries{Dir: dir, Major: real.Major}); got != want {
		t.Errorf("found %v, want %v", got, want)
	}
}

func TestMissingBinariesAreExplained(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "postgres"), []byte("#!/bin/sh\necho 'postgres (PostgreSQL) 9.6.1'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "initdb"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	_, err := FindBinaries(t.Context(), 99, slog.New(slog.DiscardHandler))
	if err == nil {
		t.Fatal("found a PostgreSQL 99")
	}
	for _, want := range []string{dir + ": version 9, but 99 is needed", "apt-get install postgresql-99", "download: "} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q:\n%v", want, err)
		}
	}
}

func TestOldBinariesDoNotDo(t *testing.T) {
	old := t.TempDir()
	for _, program := range []string{"postgres", "initdb"} {
		if err := os.WriteFile(filepath.Join(old, program), []byte("#!/bin/sh\necho 'postgres (PostgreSQL) 13.4'\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", old+":"+os.Getenv("PATH"))
	b, err := FindBinaries(t.Context(), 0, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if b.Dir == old || b.Major < MinimumMajor {
		t.Errorf("found %v", b)
	}
}

func TestNewestVersionIsSortedFirst(t *testing.T) {
	paths := []string{"/usr/lib/postgresql/9/bin", "/usr/lib/postgresql/17/bin", "/usr/lib/postgresql/14/bin"}
	slices.SortFunc(paths, func(a, b string) int { return lastNumber(b) - lastNumber(a) })
	if want := "/usr/lib/postgresql/17/bin"; paths[0] != want {
		t.Errorf("first is %s, want %s", paths[0], want)
	}
}
