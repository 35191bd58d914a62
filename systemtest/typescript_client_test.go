package systemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	esbuild "github.com/evanw/esbuild/pkg/api"

	"github.com/manifold-es/manifold"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// typeScriptClient is the folder of the TypeScript client.
var typeScriptClient = filepath.Join("..", "client", "typescript")

// packed packs the TypeScript client as it is published, and installs the package in a new folder. All tests of the
// client share it.
var packed = sync.OnceValues(func() (folder string, err error) {
	source, err := os.MkdirTemp(binaries, "source-")
	if err != nil {
		return "", err
	}
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc", "tsconfig.json", "README.md"} {
		content, err := os.ReadFile(filepath.Join(typeScriptClient, name))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(source, name), content, 0o600); err != nil {
			return "", err
		}
	}
	if err := os.CopyFS(filepath.Join(source, "src"), os.DirFS(filepath.Join(typeScriptClient, "src"))); err != nil {
		return "", err
	}
	folder, err = os.MkdirTemp(binaries, "packed-")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(folder, "package.json"), []byte(`{"type": "module", "private": true}`), 0o600); err != nil {
		return "", err
	}
	npm := func(in string, args ...string) error {
		command := exec.Command("npm", append(args, "--no-update-notifier", "--no-audit", "--no-fund")...)
		command.Dir = in
		if out, err := command.CombinedOutput(); err != nil {
			return &packError{strings.Join(args, " "), out, err}
		}
		return nil
	}
	if err := npm(source, "pack", "--pack-destination", folder); err != nil {
		return "", err
	}
	tarballs, err := filepath.Glob(filepath.Join(folder, "*.tgz"))
	if err != nil || len(tarballs) != 1 {
		return "", &packError{"pack", []byte(strings.Join(tarballs, " ")), err}
	}
	return folder, npm(folder, "install", "--offline", "--ignore-scripts", tarballs[0])
})

// packError is a command of npm that failed.
type packError struct {
	command string
	out     []byte
	err     error
}

func (e *packError) Error() string { return "npm " + e.command + ": " + string(e.out) }
func (e *packError) Unwrap() error { return e.err }

// installed returns the folder in which the client's package is installed. It skips the test if npm is missing.
func installed(t *testing.T) string {
	t.Helper()
	needed(t, "npm")
	folder, err := packed()
	switch {
	case err != nil && os.Getenv("MANIFOLD_TEST_CLIENTS") == "":
		t.Skipf("the client cannot be packed, so it was not tested: %v", err)
	case err != nil:
		t.Fatal(err)
	}
	return folder
}

// restartable is a service in the test's process that can be restarted at the same address.
type restartable struct {
	config  config.Config
	process *manifold.Process
}

// startRestartable starts a service. It stops with the test.
func startRestartable(t *testing.T) *restartable {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &restartable{config: configuration(pgtest.Database(t))}
	r.config.Listen = listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if r.process, err = manifold.Start(t.Context(), r.config, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.process.Stop(ctx); err != nil {
			t.Errorf("stop: %v", err)
		}
	})
	return r
}

// ServeHTTP restarts the service, and answers when it is up again.
func (r *restartable) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	err := r.process.Stop(request.Context())
	if err == nil {
		// Not the request's context: the service has to outlive it.
		r.process, err = manifold.Start(context.Background(), r.config, slog.New(slog.DiscardHandler))
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// The package that `npm pack` makes works in Node.js, also when connections break and the service restarts.
func TestTypeScriptClientInNode(t *testing.T) {
	t.Parallel()
	node, folder := needed(t, "node"), installed(t)
	service := startRestartable(t)
	control := httptest.NewServer(service)
	defer control.Close()
	_, u := newTenant(t, newUser(t, fixed(service.config.Listen), operatorKey), "acme")
	script := filepath.Join(folder, "client.test.mjs")
	copyFile(t, filepath.Join(typeScriptClient, "test", "client.test.mjs"), script)
	run := exec.CommandContext(t.Context(), node, "--test-reporter=spec", script)
	run.Dir = folder
	run.Env = append(os.Environ(), "MANIFOLD_URL=http://"+service.config.Listen, "MANIFOLD_KEY="+u.key, "MANIFOLD_RESTART="+control.URL)
	if out, err := output(t, run); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// The examples of the client's README run in its order, and each prints what stands below it.
func TestTypeScriptClientExamples(t *testing.T) {
	t.Parallel()
	node, folder := needed(t, "node"), installed(t)
	at := inside(t, configuration(pgtest.Database(t)))
	_, u := newTenant(t, newUser(t, at, operatorKey), "acme")
	page, err := os.ReadFile(filepath.Join(typeScriptClient, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```js\n(.*?)^```\n\n```text\n(.*?)^```$").FindAllSubmatch(page, -1)
	if len(blocks) != strings.Count(string(page), "```js\n") || len(blocks) < 5 {
		t.Fatalf("%d of the examples have an output", len(blocks))
	}
	for _, block := range blocks {
		script := filepath.Join(folder, "example.mjs")
		if err := os.WriteFile(script, block[1], 0o600); err != nil {
			t.Fatal(err)
		}
		run := exec.CommandContext(t.Context(), node, script)
		run.Dir = folder
		run.Env = append(os.Environ(), "MANIFOLD_URL=http://"+string(at.(fixed)), "MANIFOLD_KEY="+u.key, "NO_COLOR=1")
		var stderr bytes.Buffer
		run.Stderr = &stderr
		if out, err := output(t, run); err != nil || !bytes.Equal(out, block[2]) {
			t.Fatalf("%s%v: it prints\n%s%s", block[1], err, out, stderr.Bytes())
		}
	}
}

// The package works in a browser as it is, without a bundler. The page's own origin passes requests on to the service;
// the service itself is another origin.
func TestTypeScriptClientInBrowser(t *testing.T) {
	t.Parallel()
	browser, folder := needed(t, "chromium", "chromium-browser", "google-chrome"), installed(t)
	at := inside(t, configuration(pgtest.Database(t)))
	_, u := newTenant(t, newUser(t, at, operatorKey), "acme")
	service := &url.URL{Scheme: "http", Host: string(at.(fixed))}
	mux := http.NewServeMux()
	mux.Handle("/v1/", httputil.NewSingleHostReverseProxy(service))
	mux.Handle("/client/", http.StripPrefix("/client/", http.FileServer(http.Dir(filepath.Join(folder, "node_modules", "@manifold-es", "client", "dist")))))
	mux.Handle("/", http.FileServer(http.Dir(filepath.Join(typeScriptClient, "test"))))
	given, err := json.Marshal(map[string]string{"key": u.key, "service": service.String()})
	if err != nil {
		t.Fatal(err)
	}
	var saw map[string]any
	if out := browse(t, browser, mux, given); json.Unmarshal(out, &saw) != nil {
		t.Fatalf("it tells %s", out)
	}
	want := map[string]any{
		"code": "version-conflict", "events": 3.0, "handled": 3.0, "inFlight": 0.0,
		"sse": "1,2,3", "sse of another origin": "1,2,3", "sse refused": "invalid-request",
		"websocket": "1,2,3", "websocket of another origin": "1,2,3", "websocket refused": "invalid-request",
	}
	for name, value := range want {
		if saw[name] != value {
			t.Errorf("%s: %v, want %v", name, saw[name], value)
		}
	}
	if saw["error"] != nil {
		t.Error(saw["error"])
	}
}

// Bundlers take the client's sources as they are, for browsers too: nothing in them imports a module of Node.js.
func TestTypeScriptClientCanBeBundled(t *testing.T) {
	t.Parallel()
	result := esbuild.Build(esbuild.BuildOptions{
		EntryPoints: []string{filepath.Join(typeScriptClient, "src", "index.ts")}, Bundle: true, MinifySyntax: true,
		Platform: esbuild.PlatformBrowser, Format: esbuild.FormatESModule, Target: esbuild.ES2022,
	})
	if len(result.Errors)+len(result.Warnings) > 0 || len(result.OutputFiles) != 1 {
		t.Errorf("%v %v: %d files", result.Errors, result.Warnings, len(result.OutputFiles))
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	content, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, content, 0o600); err != nil {
		t.Fatal(err)
	}
}
