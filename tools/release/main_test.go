package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	rpmutils "github.com/sassoftware/go-rpmutils"
)

// The files of a release are complete, and the program in them runs.
func TestRelease(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil || runtime.GOOS != "linux" {
		t.Skip("the packages can be unpacked on Debian only")
	}
	platform := "linux_" + runtime.GOARCH
	out := filepath.Join(t.TempDir(), "dist")
	if err := release(out, []string{"linux/" + runtime.GOARCH}); err != nil {
		t.Fatal(err)
	}
	sums := exec.Command("sha256sum", "--check", "--strict", "SHA256SUMS")
	sums.Dir = out
	if text, err := sums.CombinedOutput(); err != nil || strings.Count(string(text), ": OK\n") != 4 {
		t.Errorf("the checksums: %v\n%s", err, text)
	}
	archives, err := filepath.Glob(filepath.Join(out, "manifold_*_"+platform+".tar.gz"))
	if err != nil || len(archives) != 1 {
		t.Fatal(archives, err)
	}
	name := strings.TrimSuffix(archives[0], ".tar.gz")
	version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(name), "manifold_"), "_"+platform)

	runs(t, unpack(t, archives[0], filepath.Base(name)), version)

	root := t.TempDir()
	if text, err := exec.Command("dpkg-deb", "--extract", name+".deb", root).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	program := filepath.Join(root, "usr/bin/manifold")
	runs(t, program, version)
	// The settings that are installed are understood: only the secrets are missing.
	settings := filepath.Join(root, "etc/manifold/manifold.yaml")
	text, err := os.ReadFile(settings)
	if err == nil {
		err = os.WriteFile(settings, bytes.ReplaceAll(text, []byte("/etc/manifold/"), []byte(root+"/etc/manifold/")), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	serve := exec.CommandContext(t.Context(), program, "serve", "--config", settings)
	serve.Env = []string{}
	text, err = serve.CombinedOutput()
	if err == nil || !strings.Contains(string(text), "/etc/manifold/app") {
		t.Errorf("with the installed settings it ends with %v: %s", err, text)
	}

	packed, err := os.Open(name + ".rpm")
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	rpm, err := rpmutils.ReadRpm(packed)
	if err != nil {
		t.Fatal(err)
	}
	files, err := rpm.Header.GetFiles()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"/usr/bin/manifold", "/usr/lib/systemd/system/manifold.service", "/etc/manifold/manifold.yaml"} {
		if !slices.ContainsFunc(files, func(f rpmutils.FileInfo) bool { return f.Name() == want }) {
			t.Errorf("the package for Red Hat lacks %s", want)
		}
	}

	var sbom struct {
		Components []struct{ Name, Version string }
	}
	text, err = os.ReadFile(name + ".cdx.json")
	if err == nil {
		err = json.Unmarshal(text, &sbom)
	}
	if err != nil || !slices.ContainsFunc(sbom.Components, func(c struct{ Name, Version string }) bool {
		return c.Name == "github.com/jackc/pgx/v5" && c.Version != ""
	}) {
		t.Errorf("the SBOM is, with %v, %.300s", err, text)
	}
}

// The archive for Windows has the same files.
func TestArchiveForWindows(t *testing.T) {
	t.Parallel()
	b := &builder{out: t.TempDir(), work: t.TempDir(), at: time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC)}
	program := b.program("windows/amd64")
	if err := errors.Join(os.MkdirAll(filepath.Dir(program), 0o755), os.WriteFile(program, []byte("MZ"), 0o755), os.Mkdir(filepath.Join(b.work, "completions"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, shell := range shells {
		if err := os.WriteFile(filepath.Join(b.work, "completions", "manifold."+shell), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.archive("manifold_1", "windows", program); err != nil {
		t.Fatal(err)
	}
	archive, err := zip.OpenReader(filepath.Join(b.out, "manifold_1.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	var names []string
	for _, file := range archive.File {
		names = append(names, file.Name)
		if !file.Modified.Equal(b.at) {
			t.Errorf("%s is of %s", file.Name, file.Modified)
		}
	}
	want := "manifold_1/CHANGELOG.md manifold_1/LICENSE manifold_1/README.md manifold_1/completions/manifold.bash manifold_1/completions/manifold.fish " +
		"manifold_1/completions/manifold.powershell manifold_1/completions/manifold.zsh manifold_1/manifold.exe"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("the archive has %s", got)
	}
	if text, err := fs.ReadFile(archive, "manifold_1/manifold.exe"); err != nil || string(text) != "MZ" {
		t.Errorf("the program is %q, %v", text, err)
	}
}

// unpack unpacks an archive with one folder, and returns the program's path.
func unpack(t *testing.T, archive, folder string) string {
	t.Helper()
	packed, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	plain, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "manifold")
	var names []string
	for files := tar.NewReader(plain); ; {
		file, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name, inside := strings.CutPrefix(file.Name, folder+"/")
		if !inside {
			t.Errorf("%s is not in the folder", file.Name)
		}
		names = append(names, name)
		if name != "manifold" {
			continue
		}
		content, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(program, content, file.FileInfo().Mode()); err != nil {
			t.Fatal(err)
		}
	}
	want := "CHANGELOG.md LICENSE README.md completions/manifold.bash completions/manifold.fish completions/manifold.powershell completions/manifold.zsh manifold"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("the archive has %s", got)
	}
	return program
}

// runs checks the program's version.
func runs(t *testing.T, program, version string) {
	t.Helper()
	text, err := exec.Command(program, "version").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(text), "manifold v"+version+", ") {
		t.Errorf("the program of version %s prints, with %v, %s", version, err, text)
	}
}
