package embedded

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// repository serves testdata/installation.txz, whose programs only print their version, as every download of a Maven
// repository. It counts the requests for it.
func repository(t *testing.T) (url string, requests *atomic.Int64) {
	t.Helper()
	installation, err := os.ReadFile("testdata/installation.txz")
	if err != nil {
		t.Fatal(err)
	}
	var jar bytes.Buffer
	archive := zip.NewWriter(&jar)
	file, err := archive.Create("postgres.txz")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Write(installation); err != nil {
		t.Fatal(err)
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
	requests = new(atomic.Int64)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".sha256") {
			sum := sha256.Sum256(jar.Bytes())
			w.Write([]byte(hex.EncodeToString(sum[:])))
			return
		}
		requests.Add(1)
		w.Write(jar.Bytes())
	}))
	t.Cleanup(server.Close)
	return server.URL, requests
}

func TestDownloadIsKept(t *testing.T) {
	t.Parallel()
	url, requests := repository(t)
	from := source{repository: url, cache: filepath.Join(t.TempDir(), "cache")}
	for range 2 {
		b, err := from.download(t.Context(), 17, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if b.Major != 17 || !strings.HasPrefix(b.Dir, from.cache) {
			t.Errorf("downloaded %v", b)
		}
	}
	if n := requests.Load(); n != 1 {
		t.Errorf("%d downloads for two calls", n)
	}
	left, err := filepath.Glob(filepath.Join(from.cache, "download-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestFailedDownloadSaysWhy(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	cache := t.TempDir()
	_, err := source{repository: server.URL, cache: cache}.download(t.Context(), 0, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "no version found") {
		t.Errorf("a repository without PostgreSQL: %v", err)
	}
	if left, err := os.ReadDir(cache); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}
