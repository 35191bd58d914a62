package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

func writeFile(t *testing.T, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// recorded is what an import cannot keep: when the events were recorded.
var recorded = regexp.MustCompile(`"recordedAt":"[^"]*"`)

func TestImportAndExport(t *testing.T) {
	t.Parallel()
	acme, umbrella := sharedTenant(t, "acme"), sharedTenant(t, "umbrella")
	var lines bytes.Buffer
	for i := range 5000 {
		fmt.Fprintf(&lines, `{"stream":"order-%d","type":"ItemAdded","time":"2026-01-02T03:04:05.%06dZ","data":{"n":%d},"metadata":{"user":"ü"}}`+"\n", i%70, i, i)
	}
	var zipped, squeezed bytes.Buffer
	z := gzip.NewWriter(&zipped)
	s, err := zstd.NewWriter(&squeezed)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []interface {
		Write([]byte) (int, error)
		Close() error
	}{z, s} {
		if _, err := w.Write(lines.Bytes()); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// The same import in three forms is one import.
	if out := must(t, acme, "import", writeFile(t, "a.ndjson", lines.Bytes()), "--name", "orders"); !strings.Contains(out, "5000 lines: 5000 appended, 0 duplicates, 0 bad") {
		t.Errorf("import: %s", out)
	}
	for _, again := range [][]byte{zipped.Bytes(), squeezed.Bytes()} {
		if out := must(t, acme, "import", writeFile(t, "a", again), "--name", "orders"); !strings.Contains(out, "5000 lines: 0 appended, 5000 duplicates, 0 bad") {
			t.Errorf("the same again: %s", out)
		}
	}

	// What was exported, in whatever form, imports to the same log.
	export := filepath.Join(t.TempDir(), "export.zst")
	must(t, acme, "export", "--output", export, "--compress", "zstd")
	must(t, umbrella, "import", export)
	ours, theirs := recorded.ReplaceAllString(must(t, acme, "export"), ""), recorded.ReplaceAllString(must(t, umbrella, "export"), "")
	if ours != theirs || strings.Count(ours, "\n") != 5000 {
		t.Errorf("%d lines were exported, and %d of what was imported from them; they differ: %t", strings.Count(ours, "\n"), strings.Count(theirs, "\n"), ours != theirs)
	}
	if rest := must(t, acme, "export", "--from", "4999"); strings.Count(rest, "\n") != 2 || !strings.Contains(rest, `"position":5000`) {
		t.Errorf("from 4999 on it exports %s", rest)
	}
	// A file's name says how it is compressed, unless it is said otherwise.
	for name, begin := range map[string]string{"a.gz": "\x1f\x8b", "a.zst": "\x28\xb5\x2f\xfd", "a.ndjson": "{"} {
		file := filepath.Join(filepath.Dir(export), name)
		must(t, acme, "export", file)
		content, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(content), begin) {
			t.Errorf("%s begins with %.10q, %v", name, content, err)
		}
		if out := must(t, acme, "import", file); !strings.Contains(out, "0 appended, 5000 duplicates, 0 bad") {
			t.Errorf("%s, imported again: %s", name, out)
		}
	}
	must(t, acme, "export", filepath.Join(filepath.Dir(export), "b.gz"), "--compress", "none")
	if content, err := os.ReadFile(filepath.Join(filepath.Dir(export), "b.gz")); err != nil || !strings.HasPrefix(string(content), "{") {
		t.Errorf("without compression it begins with %.10q, %v", content, err)
	}
	for _, wrong := range [][]string{{"export", "a", "--output", "b"}, {"export", "--compress", "lzma"}} {
		if o := run(t, acme, nil, wrong...); o.code != 1 || o.err == "" {
			t.Errorf("%v gives %+v", wrong, o)
		}
	}
	// A part of the log: categories, positions, a period.
	must(t, acme, "publish", "invoice", "1", "--key", "1")
	invoice := must(t, acme, "export", "--categories", "invoice")
	at := strings.TrimSuffix(strings.TrimPrefix(recorded.FindString(invoice), `"recordedAt":"`), `"`)
	for _, c := range []struct {
		flags  []string
		events int
		first  string
	}{
		{[]string{"--categories", "invoice"}, 1, `"position":5001`},
		{[]string{"--categories", "order,invoice", "--from", "5000"}, 2, `"position":5000`},
		{[]string{"--categories", "order", "--from", "5000"}, 1, `"position":5000`},
		{[]string{"--categories", "order", "--to", "3"}, 3, `"position":1`},
		{[]string{"--since", at}, 1, `"position":5001`},
		{[]string{"--until", at, "--from", "4999"}, 2, `"position":4999`},
		{[]string{"--since", at, "--categories", "order"}, 0, ""},
	} {
		out := must(t, acme, append([]string{"export"}, c.flags...)...)
		if first, _, _ := strings.Cut(out, "\n"); strings.Count(out, "\n") != c.events || !strings.Contains(first, c.first) {
			t.Errorf("%q exports %d events, the first of which is %.200s", c.flags, strings.Count(out, "\n"), first)
		}
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(export), ".manifold-*")); err != nil || len(left) > 0 {
		t.Errorf("the export leaves %v, %v", left, err)
	}
}

func TestImportReportsBadLines(t *testing.T) {
	t.Parallel()
	text := `{"stream":"order-1","type":"A","data":1}
not json
{"stream":"order-1","type":"B","data":2}
{"stream":"no id","type":"C","data":3}

{"stream":"order-1","type":"D","data":4}
`
	acme := sharedTenant(t, "acme")
	o := run(t, acme, strings.NewReader(text), "import", "-", "--name", "x", "--strict=false")
	if o.code != 1 || !strings.Contains(o.err, "line 2: ") || !strings.Contains(o.err, "line 4: ") || strings.Contains(o.err, "line 5") || !strings.Contains(o.out, "3 appended, 0 duplicates, 2 bad") {
		t.Errorf("import: %+v", o)
	}
	if log := must(t, acme, "export"); strings.Count(log, "\n") != 3 || !strings.Contains(log, `"D"`) {
		t.Errorf("the log is\n%s", log)
	}
	umbrella := sharedTenant(t, "umbrella")
	o = run(t, umbrella, strings.NewReader(text), "import", "-", "--name", "x")
	if o.code != 1 || !strings.Contains(o.out+o.err, "line 2") {
		t.Errorf("a strict import: %+v", o)
	}
	if log := must(t, umbrella, "export"); strings.Contains(log, `"B"`) || strings.Contains(log, `"D"`) {
		t.Errorf("a strict import continues after a bad line:\n%s", log)
	}
	if o := run(t, acme, nil, "import", "/there/is/none"); o.code != 1 || !strings.Contains(o.err, "/there/is/none") {
		t.Errorf("a file that does not exist: %+v", o)
	}
	if o := run(t, []string{acme[0], "MANIFOLD_KEY=wrong"}, strings.NewReader(text), "import", "-", "--name", "x"); o.code != 1 || !strings.Contains(o.err, "unauthenticated") {
		t.Errorf("with a wrong key: %+v", o)
	}
}

// A file is checked as a whole before anything of it is appended.
func TestImportChecksFilesFirst(t *testing.T) {
	t.Parallel()
	acme := sharedTenant(t, "acme")
	good := strings.Repeat(`{"stream":"order-1","type":"A","data":1}`+"\n", 3000)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write([]byte(good)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(zipped.Bytes())
	damaged[len(damaged)-6] ^= 1 // of the checksum
	nothing := func(what string) {
		t.Helper()
		if log := must(t, acme, "export"); log != "" {
			t.Errorf("%s: %d lines are in the log", what, strings.Count(log, "\n"))
		}
	}
	for what, c := range map[string]struct {
		file string
		args []string
		says string
	}{
		"a bad last line": {writeFile(t, "a", []byte(good+"no json\n")), []string{"--name", "a"}, "line 3001: "},
		"a damaged file":  {writeFile(t, "b.gz", damaged), []string{"--name", "a"}, "nothing was appended"},
		"no name":         {writeFile(t, "c", []byte(good)), nil, "name the import (--name"},
	} {
		if o := run(t, acme, nil, append([]string{"import", c.file}, c.args...)...); o.code != 1 || !strings.Contains(o.out+o.err, c.says) {
			t.Errorf("%s: %+v", what, o)
		}
		nothing(what)
	}
	file := writeFile(t, "d.gz", zipped.Bytes())
	if out := must(t, acme, "import", "--check", "--name", "a", file); !strings.Contains(out, "3000 lines checked: all are good") {
		t.Errorf("a check says %s", out)
	}
	nothing("a check")
	if out := must(t, acme, "import", "--name", "a", file); !strings.Contains(out, "3000 appended") {
		t.Errorf("an import says %s", out)
	}
	if o := run(t, acme, nil, "import", "--name", "a", writeFile(t, "e", []byte(`{"stream":"order-2","type":"A","data":1}`))); o.code != 1 || !strings.Contains(o.err, "give other content another name") {
		t.Errorf("other content under the same name: %+v", o)
	}
	if out := must(t, acme, "import", "--name", "b", "--skip-check", file); strings.Contains(out, "checked") || !strings.Contains(out, "3000 appended") {
		t.Errorf("without a check it says %s", out)
	}
}
