package systemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"testing"

	"github.com/manifold-es/manifold/embedded/pgtest"
)

// The console is fast and stays small while 2,000 events a second arrive in two tabs, and loses none when the service
// is killed. It takes a minute and a half, so it runs only where it can measure.
func TestConsoleUnderLoad(t *testing.T) {
	if !alone {
		t.Skip("it measures time and memory, which means nothing beside other tests")
	}
	browser, node := needed(t, "chromium", "chromium-browser", "google-chrome"), needed(t, "node")
	folder := installPackages(t, consoleSources, "console.browser.mjs", "console.load.mjs")
	address := freeAddress(t)
	s := serve(t, pgtest.Database(t), "MANIFOLD_LISTEN="+address)
	_, u := newTenant(t, newUser(t, fixed(address), operatorKey), "acme")

	killed, started := make(chan struct{}), make(chan struct{})
	control := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(killed)
		<-started
	}))
	defer control.Close()
	given, err := json.Marshal(map[string]string{
		"url": "http://" + address, "browser": browser, "profile": t.TempDir(), "key": u.key, "restart": control.URL,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	run := exec.CommandContext(ctx, node, "console.load.mjs", string(given))
	run.Dir = folder
	var out, stderr bytes.Buffer
	run.Stdout, run.Stderr = &out, &stderr
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	select {
	case <-killed:
		s.kill()
		s.start()
		close(started)
		err = <-ended
	case err = <-ended:
	}
	var told struct {
		Problems []string
		Figures  struct{ FirstPaint, Frames, Growth, Nodes, Heap, Rate float64 }
	}
	if err != nil || json.Unmarshal(out.Bytes(), &told) != nil {
		t.Fatalf("%v\n%s\n%s", err, out.Bytes(), stderr.Bytes())
	}
	for _, problem := range told.Problems {
		t.Error(problem)
	}
	f := told.Figures
	t.Logf("first paint %.0f ms; %.0f events/s; a frame while scrolling %.0f ms (p95)", f.FirstPaint, f.Rate, f.Frames)
	t.Logf("scripts keep %.1f MB, %.1f MB more after 20 s; %.0f more nodes", f.Heap/1e6, f.Growth/1e6, f.Nodes)
	if f.FirstPaint > 1000 { // docs/performance.md has what it takes on an idle machine
		t.Error("the first paint takes longer than a second")
	}
	if f.Rate < 1800 {
		t.Error("fewer than 1,800 events a second arrived")
	}
	if f.Growth > 1.3e6 || f.Nodes > 1000 { // 32 bytes for each event that arrives in between
		t.Error("the memory grows")
	}
}

// freeAddress returns an address at which a service can listen again after it was killed.
func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
