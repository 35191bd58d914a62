package systemtest

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// importLine is a line of a file to import.
type importLine struct {
	Stream string          `json:"stream"`
	ID     string          `json:"id"`
	Type   string          `json:"type"`
	Time   string          `json:"time,omitempty"`
	Data   json.RawMessage `json:"data"`
}

// realLines are the real events, where they are.
func realLines(t *testing.T) (file string, lines []importLine) {
	t.Helper()
	folder := os.Getenv("MANIFOLD_TEST_DATA")
	if folder == "" {
		folder = filepath.Join("..", "..", "shared", "data")
	}
	file = filepath.Join(folder, "declarations.ndjson.gz")
	in, err := os.Open(file)
	if err != nil {
		t.Skip("the real events are missing (set MANIFOLD_TEST_DATA to their folder):", err)
	}
	defer in.Close()
	unpacked, err := gzip.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	return file, readLines(t, bufio.NewScanner(unpacked))
}

// someRealLines are the first real events, about as many as madeLines.
func someRealLines(t *testing.T) (file string, lines []importLine) {
	t.Helper()
	_, lines = realLines(t)
	lines = lines[:min(len(lines), 10_000)]
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	for _, line := range lines {
		if err := encoder.Encode(line); err != nil {
			t.Fatal(err)
		}
	}
	file = filepath.Join(t.TempDir(), "real.ndjson")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, lines
}

// madeLines are events without ids, many of them the same.
func madeLines(t *testing.T) (file string, lines []importLine) {
	t.Helper()
	var text bytes.Buffer
	for i := range 10_000 {
		fmt.Fprintf(&text, `{"stream":"order-%d","type":"Added","data":{"n":%d}}`+"\n", i%50, i/100%7)
	}
	file = filepath.Join(t.TempDir(), "made.ndjson")
	if err := os.WriteFile(file, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, readLines(t, bufio.NewScanner(&text))
}

func readLines(t *testing.T, in *bufio.Scanner) (lines []importLine) {
	t.Helper()
	for in.Scan() {
		var line importLine
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if in.Err() != nil || len(lines) == 0 {
		t.Fatalf("%d lines: %v", len(lines), in.Err())
	}
	return lines
}

// An import that is cut off, by its own end or by the service's, is repeated until it completes. Then the log must
// equal the file, with each line once and in the file's order.
func TestInterruptedImportResumes(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]func(*testing.T) (string, []importLine){"real events": someRealLines, "lines without ids": madeLines} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, lines := file(t)
			r := chance(t)
			s := serve(t, pgtest.Database(t))
			_, u := newTenant(t, newUser(t, services{s}, operatorKey), "acme")
			p := tenantLoad{user: u, history: newHistory()}
			start := func() (*exec.Cmd, *bytes.Buffer, <-chan error) {
				address, _ := s.state()
				cmd, out := exec.Command(s.program, "import", path, "--name", "same"), new(bytes.Buffer)
				cmd.Env = append(s.environ[:len(s.environ):len(s.environ)], "MANIFOLD_URL=http://"+address, "MANIFOLD_KEY="+u.key)
				cmd.Stdout, cmd.Stderr = out, out
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				ended := make(chan error, 1)
				go func() { ended <- cmd.Wait() }()
				return cmd, out, ended
			}
			for i, kill := range []func(*exec.Cmd){
				func(cmd *exec.Cmd) { _ = cmd.Process.Kill() },
				func(*exec.Cmd) { s.kill() },
			} {
				cmd, out, ended := start()
				// This happens between the end of the last attempt and two thirds of the file.
				p.awaitHead(t, int64(len(lines)*i/3+r.IntN(len(lines)/3)+1))
				kill(cmd)
				if err := <-ended; err == nil {
					t.Logf("import %d had ended before it was killed", i+1)
				}
				if i == 1 {
					if said := out.String(); !strings.Contains(said, "repeat the import") && !strings.Contains(said, " appended") {
						t.Errorf("the import says nothing of being repeated: %s", said)
					}
					s.start()
				}
			}
			for _, last := range []string{" 0 bad", fmt.Sprintf("%d lines: 0 appended, %d duplicates, 0 bad", len(lines), len(lines))} {
				_, out, ended := start()
				if err := <-ended; err != nil || !strings.Contains(out.String(), last) {
					t.Errorf("the import ends with %v and says, instead of %q: %s", err, last, out)
				}
			}
			log, err := p.log(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := sameAsFile(log, lines); err != nil {
				t.Error(err)
			}
		})
	}
}

// awaitHead waits until the log has a position.
func (p *tenantLoad) awaitHead(t *testing.T, position int64) {
	t.Helper()
	late := time.After(patience)
	for {
		var newest client.EventList
		p.must(t, 200, &newest, "GET", "/v1/streams/$all?direction=backward&count=1", nil)
		if len(newest.Events) > 0 && newest.Events[0].Position >= position {
			return
		}
		select {
		case <-time.After(time.Millisecond):
		case <-late:
			t.Fatalf("the log never has position %d", position)
		}
	}
}

func sameAsFile(log []client.Event, lines []importLine) error {
	if len(log) != len(lines) {
		return fmt.Errorf("the log has %d events, the file %d lines", len(log), len(lines))
	}
	ids := make(map[string]bool)
	for i, line := range lines {
		event := log[i]
		if event.Stream != line.Stream || event.Type != line.Type || line.ID != "" && event.Id != line.ID || !sameJSON(event.Data, line.Data) {
			return fmt.Errorf("line %d is %+v; at that position is %+v", i+1, line, event)
		}
		ids[event.Id] = true
	}
	if len(ids) != len(log) {
		return errors.New("an id is there twice")
	}
	return nil
}
