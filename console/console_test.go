package console

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// maxCompressed is how large all files together may be when they are compressed.
const maxCompressed = 300_000

func get(t *testing.T, h *Handler, path, accept string) *http.Response {
	t.Helper()
	request := httptest.NewRequest("GET", path, nil)
	request.Header.Set("Accept-Encoding", accept)
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, request)
	return recorder.Result()
}

func TestEveryPathIsThePage(t *testing.T) {
	t.Parallel()
	h, err := New(func() []string { return []string{"https://id.example.com"} })
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/console", "/console/", "/console/streams/order-1?version=3", "/console/streams/a.js"} {
		response := get(t, h, path, "")
		body, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != 200 || !strings.Contains(string(body), `<div id="app">`) || response.Header.Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: %d %v %s", path, response.StatusCode, response.Header, body)
		}
		csp := response.Header.Get("Content-Security-Policy")
		if strings.Contains(csp, "unsafe") || !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") ||
			!strings.Contains(csp, "connect-src 'self' https://id.example.com;") {
			t.Errorf("%s: the policy is %s", path, csp)
		}
		if strings.Contains(string(body), "<style") || regexp.MustCompile(`<script[^>]*>[^<]|https?:| on[a-z]+=`).Match(body) {
			t.Errorf("%s has inline code or names another origin:\n%s", path, body)
		}
	}
}

func TestFilesAreKeptForGood(t *testing.T) {
	t.Parallel()
	h, err := New(func() []string { return []string{"https://id.example.com"} })
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(get(t, h, "/console", "").Body)
	if err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`/console/assets/[a-z]+-[0-9a-f]{12}\.[a-z]+`).FindAllString(string(page), -1)
	if len(names) != 4 {
		t.Fatalf("the page names %v", names)
	}
	for _, name := range names {
		plain, compressed := get(t, h, name, "br"), get(t, h, name, "br, gzip, zstd")
		if !strings.Contains(plain.Header.Get("Cache-Control"), "immutable") || plain.Header.Get("Content-Encoding") != "" || compressed.Header.Get("Content-Encoding") != "gzip" {
			t.Errorf("%s: %v and %v", name, plain.Header, compressed.Header)
		}
		want, err := io.ReadAll(plain.Body)
		if err != nil {
			t.Fatal(err)
		}
		reader, err := gzip.NewReader(compressed.Body)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(reader); err != nil || string(got) != string(want) {
			t.Errorf("%s differs when it is compressed: %v", name, err)
		}
	}
	if other := get(t, h, "/console/assets/main-000000000000.js", ""); other.StatusCode != 404 || other.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("a file of another release: %d %v", other.StatusCode, other.Header)
	}
}

func TestBundleIsSmall(t *testing.T) {
	t.Parallel()
	h, err := New(func() []string { return []string{"https://id.example.com"} })
	if err != nil {
		t.Fatal(err)
	}
	size := len(h.page.compressed)
	for _, file := range h.files {
		size += len(file.compressed)
	}
	t.Logf("%d bytes compressed", size)
	if size > maxCompressed {
		t.Errorf("the console has %d bytes compressed; it may have %d", size, maxCompressed)
	}
}
