package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// An append without data neither ignores what standard input has nor waits for it.
func TestAppendReadsStandardInputOnlyIfAsked(t *testing.T) {
	t.Parallel()
	requests := make(chan string, 1)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, _ := io.ReadAll(request.Body)
		requests <- string(body)
		_, _ = io.WriteString(w, `{"position":1,"stream":"order-1","version":1,"events":[{"id":"0190d3a4-5b6c-7def-8123-456789abcde0","position":1,"version":1}]}`)
	}))
	t.Cleanup(service.Close)
	path := filepath.Join(t.TempDir(), "data.json")
	if err := os.WriteFile(path, []byte(`{"n":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	silent, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close(); writer.Close() })
	for _, c := range []struct {
		name string
		in   io.Reader // nil: /dev/null
		args []string
		want string // data; empty: the command fails
	}{
		{"a pipe with data", strings.NewReader(`{"n":1}`), nil, ""},
		{"a file with data", file, nil, ""},
		{"a pipe with data that is asked for", strings.NewReader(`{"n":1}`), []string{"-"}, `{"n":1}`},
		{"a pipe with data, and an argument", strings.NewReader(`{"n":1}`), []string{`{"n":2}`}, `{"n":2}`},
		{"an empty pipe", strings.NewReader(""), nil, `{}`},
		{"a pipe to which nothing is written", silent, nil, `{}`},
		{"no input", nil, nil, `{}`},
	} {
		o := run(t, []string{"MANIFOLD_URL=" + service.URL, "MANIFOLD_KEY=k"}, c.in, append([]string{"append", "order-1", "Placed"}, c.args...)...)
		got := ""
		select {
		case got = <-requests:
		default:
		}
		switch {
		case c.want == "" && (o.code != 1 || got != "" || !strings.Contains(o.err, "give - to append that")):
			t.Errorf("%s: it sends %q and ends with %+v", c.name, got, o)
		case c.want != "" && (o.code != 0 || !strings.Contains(got, `"data":`+c.want)):
			t.Errorf("%s: it sends %q and ends with %+v", c.name, got, o)
		}
	}
}
