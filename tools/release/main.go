// Release builds the files of a release from a git checkout, for each platform:
//
//   - an archive (zip for Windows, otherwise tar.gz) with the program, its licence and change log, and completions for
//     shells;
//   - packages for Debian and Red Hat, for Linux;
//   - the modules in the program (a software bill of materials, SBOM), in CycloneDX's format;
//
// and SHA256SUMS of all of them. The version is the one that Go writes into the program: the commit's tag, or a
// pseudo-version. Times in the files are that of the commit, so the same commit gives the same archives.
//
// Run it in its folder; it finds the repository two folders up.
package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// repository is the root of the repository.
const repository = "../.."

// shells are those for which there are completions.
var shells = [...]string{"bash", "zsh", "fish", "powershell"}

func main() {
	out := flag.String("out", filepath.Join(repository, "dist"), "the folder for the files; an earlier release in it is removed first")
	platforms := flag.String("platforms", "linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64", "what to build for")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := release(*out, strings.Fields(*platforms)); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func release(out string, platforms []string) error {
	committed, err := output("git", "log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(strings.TrimSpace(committed), 10, 64)
	if err != nil {
		return fmt.Errorf("the commit's time: %w", err)
	}
	if out, err = filepath.Abs(out); err != nil {
		return err
	}
	if err := empty(out); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "manifold-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	b := &builder{out: out, work: work, at: time.Unix(seconds, 0).UTC()}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, platform := range platforms {
		if err := b.compile(platform); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
	}
	if err := b.completions(); err != nil {
		return err
	}
	for _, platform := range platforms {
		if err := b.pack(platform); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
	}
	return b.sum()
}

// empty removes an earlier release.
func empty(out string) error {
	files, err := os.ReadDir(out)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(files) > 0 && !slices.ContainsFunc(files, func(f fs.DirEntry) bool { return f.Name() == sums }):
		return fmt.Errorf("%s has files, but no %s, so it is no earlier release; remove it, or give another folder with -out", out, sums)
	}
	return os.RemoveAll(out)
}

// sums is the name of the file with checksums.
const sums = "SHA256SUMS"

// builder builds the files of a release.
type builder struct {
	out, work string
	at        time.Time // of the commit
}

// program returns the path of a platform's program.
func (b *builder) program(platform string) string {
	system, _, _ := strings.Cut(platform, "/")
	return filepath.Join(b.work, strings.ReplaceAll(platform, "/", "_"), programName(system))
}

// programName returns the name of the program's file.
func programName(system string) string {
	if system == "windows" {
		return "manifold.exe"
	}
	return "manifold"
}

// compile builds a platform's program.
func (b *builder) compile(platform string) error {
	system, processor, ok := strings.Cut(platform, "/")
	if !ok {
		return errors.New("a platform is written as linux/amd64")
	}
	build := command("go", "build", "-trimpath", "-buildvcs=true", "-ldflags=-s -w", "-o", b.program(platform), "./cmd/manifold")
	build.Env = append(build.Env, "GOOS="+system, "GOARCH="+processor)
	return run(build)
}

// completions writes the completions of all shells, by this machine's program.
func (b *builder) completions() error {
	program := []string{b.program(runtime.GOOS + "/" + runtime.GOARCH)}
	if _, err := os.Stat(program[0]); err != nil {
		program = []string{"go", "run", "-trimpath", "./cmd/manifold"}
	}
	if err := os.Mkdir(filepath.Join(b.work, "completions"), 0o755); err != nil {
		return err
	}
	for _, shell := range shells {
		text, err := output(program[0], append(program[1:], "completion", shell)...)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(b.work, "completions", "manifold."+shell), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pack writes the files of one platform.
func (b *builder) pack(platform string) error {
	system, processor, _ := strings.Cut(platform, "/")
	program := b.program(platform)
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	version := strings.TrimPrefix(info.Main.Version, "v")
	if version == "" || version == "(devel)" {
		return errors.New("the program has no version; build it from a git checkout")
	}
	name := fmt.Sprintf("manifold_%s_%s_%s", version, system, processor)
	if err := b.archive(name, system, program); err != nil {
		return err
	}
	if system == "linux" {
		if err := b.packages(name, program, version, processor); err != nil {
			return err
		}
	}
	sbom := exec.Command("go", "tool", "cyclonedx-gomod", "bin", "-json", "-noserial", "-notimestamp", "-output", filepath.Join(b.out, name+".cdx.json"), program)
	return run(sbom)
}

// archive writes a compressed archive with one folder.
func (b *builder) archive(name, system, program string) error {
	files := map[string]string{programName(system): program}
	for _, file := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		files[file] = filepath.Join(repository, file)
	}
	for _, shell := range shells {
		files["completions/manifold."+shell] = filepath.Join(b.work, "completions", "manifold."+shell)
	}
	suffix, write := ".tar.gz", b.writeTar
	if system == "windows" {
		suffix, write = ".zip", b.writeZip
	}
	to, err := os.Create(filepath.Join(b.out, name+suffix))
	if err != nil {
		return err
	}
	defer to.Close()
	return errors.Join(write(to, name, files), to.Close())
}

// modeOf returns the mode of a file in an archive.
func modeOf(file string) fs.FileMode {
	if file == "manifold" || file == "manifold.exe" {
		return 0o755
	}
	return 0o644
}

// writeTar writes files, whose paths are given by their names, to a folder in a compressed archive.
func (b *builder) writeTar(to io.Writer, folder string, files map[string]string) error {
	compressed := gzip.NewWriter(to)
	archive := tar.NewWriter(compressed)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		content, err := os.ReadFile(files[file])
		if err != nil {
			return err
		}
		if err := archive.WriteHeader(&tar.Header{Name: folder + "/" + file, Mode: int64(modeOf(file)), Size: int64(len(content)), ModTime: b.at, Format: tar.FormatPAX}); err != nil {
			return err
		}
		if _, err := archive.Write(content); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), compressed.Close())
}

// writeZip is writeTar for Windows.
func (b *builder) writeZip(to io.Writer, folder string, files map[string]string) error {
	archive := zip.NewWriter(to)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		content, err := os.ReadFile(files[file])
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: folder + "/" + file, Method: zip.Deflate, Modified: b.at}
		header.SetMode(modeOf(file))
		entry, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		if _, err := entry.Write(content); err != nil {
			return err
		}
	}
	return archive.Close()
}

// packages writes packages for Debian and Red Hat, as packaging/nfpm.yaml describes them.
func (b *builder) packages(name, program, version, processor string) error {
	values := map[string]string{"VERSION": version, "ARCH": processor, "PROGRAM": program, "COMPLETIONS": filepath.Join(b.work, "completions")}
	for _, format := range []string{"deb", "rpm"} {
		config, err := nfpm.ParseFileWithEnvMapping("packaging/nfpm.yaml", func(name string) string { return values[name] })
		if err != nil {
			return err
		}
		config.MTime = b.at
		info, err := config.Get(format)
		if err != nil {
			return err
		}
		info = nfpm.WithDefaults(info)
		packager, err := nfpm.Get(format)
		if err != nil {
			return err
		}
		var text bytes.Buffer
		if err := packager.Package(info, &text); err != nil {
			return fmt.Errorf("the package %s: %w", format, err)
		}
		if err := os.WriteFile(filepath.Join(b.out, name+"."+format), text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// sum writes the checksums of all files, in the format of sha256sum.
func (b *builder) sum() error {
	var all strings.Builder
	files, err := os.ReadDir(b.out)
	if err != nil {
		return err
	}
	for _, file := range files {
		content, err := fs.ReadFile(os.DirFS(b.out), file.Name())
		if err != nil {
			return err
		}
		fmt.Fprintf(&all, "%x  %s\n", sha256.Sum256(content), file.Name())
	}
	_, err = io.WriteString(os.Stdout, all.String())
	return errors.Join(err, os.WriteFile(filepath.Join(b.out, sums), []byte(all.String()), 0o644))
}

// command returns a command that runs at the root of the repository.
func command(name string, args ...string) *exec.Cmd {
	c := exec.Command(name, args...)
	c.Dir, c.Env = repository, append(os.Environ(), "CGO_ENABLED=0")
	return c
}

// output returns what a command prints.
func output(name string, args ...string) (string, error) {
	c := command(name, args...)
	c.Stderr = os.Stderr
	text, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", strings.Join(c.Args, " "), err)
	}
	return string(text), nil
}

func run(c *exec.Cmd) error {
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("%s: %w", strings.Join(c.Args, " "), err)
	}
	return nil
}
