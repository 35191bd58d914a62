package systemtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// cutter forwards connections. It cuts each of the first ones after a given number of bytes of answers.
type cutter struct {
	to     string
	listen net.Listener

	mu   sync.Mutex
	cuts []int64
}

func cut(t *testing.T, to string, cuts ...int64) *cutter {
	t.Helper()
	listen, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &cutter{to: to, listen: listen, cuts: cuts}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listen.Accept()
			if err != nil {
				return
			}
			all.Go(func() { c.pass(conn) })
		}
	})
	t.Cleanup(func() {
		listen.Close()
		all.Wait()
	})
	return c
}

func (c *cutter) pass(conn net.Conn) {
	defer conn.Close()
	behind, err := net.Dial("tcp", c.to)
	if err != nil {
		return
	}
	defer behind.Close()
	go func() {
		_, _ = io.Copy(behind, conn) // ends when either is closed
		behind.Close()
	}()
	c.mu.Lock()
	most := int64(1 << 60)
	if len(c.cuts) > 0 {
		most, c.cuts = c.cuts[0], c.cuts[1:]
	}
	c.mu.Unlock()
	_, _ = io.CopyN(conn, behind, most)
}

// told is the output of follow.mjs.
type told struct {
	Served, Socket struct {
		Error            string
		Positions        []int64
		CaughtUp, Breaks int
	}
	Consume struct {
		Error  string
		Events []struct {
			Stream  string
			Version int64
			N       int
			Attempt int
		}
		Acknowledged int
	}
}

// Third-party clients follow a log and consume a group: EventSource and WebSocket of Node's packages and of a
// browser. Connections break meanwhile, but every position arrives once and in order.
func TestForeignClients(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(t *testing.T, folder string, given []byte) []byte{"node": runNode, "chromium": runChromium} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const events, published = 3000, 60
			at := inside(t, configuration(pgtest.Database(t)))
			_, u := newTenant(t, newUser(t, at, operatorKey), "acme")
			u.must(t, http.StatusCreated, nil, "PUT", "/v1/subscriptions/greeters", []byte(`{"source": {"categories": ["greeting"]}, "ordering": "stream"}`))
			var lines bytes.Buffer
			for i := range events {
				fmt.Fprintf(&lines, `{"stream":"order-%d","type":"Added","data":{"n":%d,"text":"ümläut 🙂"}}`+"\n", i%50, i)
			}
			u.must(t, http.StatusOK, nil, "POST", "/v1/import?name=x", lines.Bytes(), "Content-Type", "application/x-ndjson")
			address := string(at.(fixed))
			given := make(map[string]any)
			for name, cuts := range map[string][]int64{"served": {100_000, 150_000}, "socket": {60_000, 200_000}, "consume": nil} {
				var ticket client.Ticket
				u.must(t, http.StatusCreated, &ticket, "POST", "/v1/tickets", nil)
				given[name] = map[string]any{
					"url": "http://" + cut(t, address, cuts...).listen.Addr().String(), "ticket": ticket.Ticket,
					"count": map[bool]int{true: published, false: events + published}[name == "consume"], "group": "greeters",
				}
			}
			text, err := json.Marshal(given)
			if err != nil {
				t.Fatal(err)
			}
			folder, err := filepath.Abs(filepath.Join("testdata", "clients"))
			if err != nil {
				t.Fatal(err)
			}
			var saw told
			if out := run(t, folder, text); json.Unmarshal(out, &saw) != nil {
				t.Fatalf("it tells %s", out)
			}
			for of, seen := range map[string]struct {
				err              string
				positions        []int64
				caughtUp, breaks int
			}{
				"EventSource": {saw.Served.Error, saw.Served.Positions, saw.Served.CaughtUp, saw.Served.Breaks},
				"WebSocket":   {saw.Socket.Error, saw.Socket.Positions, saw.Socket.CaughtUp, saw.Socket.Breaks},
			} {
				inOrder := len(seen.positions) == events+published
				for i, position := range seen.positions {
					inOrder = inOrder && position == int64(i+1)
				}
				if seen.err != "" || !inOrder || seen.breaks < 2 {
					t.Errorf("%s: %s; %d positions (in order: %v), %d breaks", of, seen.err, len(seen.positions), inOrder, seen.breaks)
				}
			}
			versions := make(map[string]int64)
			for _, event := range saw.Consume.Events {
				versions[event.Stream]++
				if event.Version != versions[event.Stream] || event.Attempt != 1 {
					t.Errorf("the group's consumer got %+v as number %d of its stream", event, versions[event.Stream])
				}
			}
			if saw.Consume.Error != "" || saw.Consume.Acknowledged != published || len(saw.Consume.Events) != published {
				t.Errorf("the group's consumer: %s; %d events, %d acknowledged", saw.Consume.Error, len(saw.Consume.Events), saw.Consume.Acknowledged)
			}
		})
	}
}

// needed skips a test if a program is missing, unless MANIFOLD_TEST_CLIENTS requires it.
func needed(t *testing.T, programs ...string) (path string) {
	t.Helper()
	for _, name := range programs {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("MANIFOLD_TEST_CLIENTS") != "" {
		t.Fatalf("%v: none is there", programs)
	}
	t.Skipf("%v: none is there, so nothing was tried with it", programs)
	return ""
}

func runNode(t *testing.T, folder string, given []byte) []byte {
	node := needed(t, "node")
	copied := installPackages(t, folder, "follow.mjs", "node.mjs")
	run := exec.CommandContext(t.Context(), node, "node.mjs", string(given))
	run.Dir = copied
	var stderr bytes.Buffer
	run.Stderr = &stderr
	out, err := output(t, run)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.Bytes())
	}
	return out
}

// installPackages installs a folder's packages next to a copy of the given files, so that the sources stay unchanged.
func installPackages(t *testing.T, folder string, files ...string) (copied string) {
	t.Helper()
	npm := needed(t, "npm")
	copied = t.TempDir()
	for _, name := range append([]string{"package.json", "package-lock.json", ".npmrc"}, files...) {
		content, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(copied, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	install := exec.CommandContext(t.Context(), npm, "ci", "--ignore-scripts", "--no-update-notifier", "--prefer-offline")
	install.Dir = copied
	if out, err := install.CombinedOutput(); err != nil && os.Getenv("MANIFOLD_TEST_CLIENTS") == "" {
		t.Skipf("the packages cannot be installed, so nothing was tried with them: %v\n%s", err, out)
	} else if err != nil {
		t.Fatalf("install the packages: %v\n%s", err, out)
	}
	return copied
}

// output runs a command to its end, for at most three minutes: on a slow machine, scripts that take 20 s take one.
func output(t *testing.T, command *exec.Cmd) ([]byte, error) {
	t.Helper()
	stop := time.AfterFunc(patience, func() { _ = command.Process.Kill() })
	defer stop.Stop()
	return command.Output()
}

func runChromium(t *testing.T, folder string, given []byte) []byte {
	browser := needed(t, "chromium", "chromium-browser", "google-chrome")
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServer(http.Dir(folder)))
	return browse(t, browser, mux, given)
}

// browse opens /page.html of a site in a browser, with what is given as its fragment. It returns what the page posts to
// /told.
func browse(t *testing.T, browser string, mux *http.ServeMux, given []byte) []byte {
	t.Helper()
	saw := make(chan []byte, 1)
	mux.HandleFunc("POST /told", func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		saw <- body
	})
	pages := httptest.NewServer(mux)
	defer pages.Close()
	var said bytes.Buffer
	command := exec.Command(browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--enable-logging=stderr", "--user-data-dir="+t.TempDir(), "--remote-debugging-port=0",
		pages.URL+"/page.html#"+url.PathEscape(string(given)))
	command.Stdout, command.Stderr = &said, &said
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = command.Process.Kill()
		_ = command.Wait() // it was killed
		if t.Failed() {
			lines := slices.Collect(bytes.Lines(said.Bytes()))
			t.Logf("the browser said:\n%s", bytes.Join(lines[max(0, len(lines)-30):], nil))
		}
	}()
	select {
	case body := <-saw:
		return body
	case <-time.After(patience):
		t.Error("the page tells nothing")
		return nil
	}
}
