package transfer

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// readLines reads all lines as an importReader gets them. nil means a line that is too long.
func readLines(from io.Reader) (lines [][]byte, err error) {
	r := LineReader{From: from, Blocks: make(chan LineBlock, BlocksAhead), Stopped: make(chan struct{}), Charge: func(int64) error { return nil }}
	go r.Run()
	for block := range r.Blocks {
		if block.TooLong {
			lines = append(lines, nil)
		}
		for line := range bytes.Lines(block.Text) {
			if len(line) > MaxImportLine {
				line = nil
			}
			lines = append(lines, line)
		}
		if block.Err != nil {
			err = block.Err
		}
	}
	return lines, err
}

// piecemeal returns a text in pieces of the given sizes, in rotation.
type piecemeal struct {
	text  []byte
	sizes []int
	turn  int
}

func (p *piecemeal) Read(b []byte) (int, error) {
	size := min(p.sizes[p.turn%len(p.sizes)], len(b), len(p.text))
	p.turn++
	n := copy(b, p.text[:size])
	p.text = p.text[n:]
	if len(p.text) == 0 {
		return n, io.EOF
	}
	return n, nil
}

// The lines of a body do not depend on how it arrives.
func TestLineReader(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var text []byte
		var want [][]byte
		for i := range rapid.IntRange(0, 8).Draw(t, "lines") {
			size := rapid.OneOf(rapid.IntRange(0, 300), rapid.IntRange(0, 3*lineBlockBytes),
				rapid.SampledFrom([]int{lineBlockBytes - 1, lineBlockBytes, MaxImportLine - 1, MaxImportLine, 2 * MaxImportLine, 4 * MaxImportLine})).Draw(t, "size")
			line := append(bytes.Repeat([]byte{'a' + byte(i%26)}, size), '\n')
			text = append(text, line...)
			if len(line) > MaxImportLine {
				line = nil
			}
			want = append(want, line)
		}
		if rapid.Bool().Draw(t, "without an end") && len(want) > 0 {
			text = text[:len(text)-1]
			last := &want[len(want)-1]
			switch {
			case *last != nil:
				*last = (*last)[:len(*last)-1]
			case len(text) == MaxImportLine || bytes.HasSuffix(text[:len(text)-MaxImportLine], []byte{'\n'}):
				*last = text[len(text)-MaxImportLine:]
			}
			if *last != nil && len(*last) == 0 {
				want = want[:len(want)-1]
			}
		}
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(1000, 300_000), rapid.Just(1<<20)), 1, 10).Draw(t, "sizes")
		got, err := readLines(&piecemeal{text: text, sizes: sizes})
		if err != nil {
			t.Fatal(err)
		}
		if len(got) != len(want) {
			t.Fatalf("%d lines, want %d", len(got), len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) || (got[i] == nil) != (want[i] == nil) {
				t.Fatalf("line %d has %d bytes, want %d", i+1, len(got[i]), len(want[i]))
			}
		}
	})
}

func TestLineReaderByByteAndCutOff(t *testing.T) {
	t.Parallel()
	got, err := readLines(iotest.OneByteReader(strings.NewReader("a\n\nbc\nd")))
	if text := string(bytes.Join(got, []byte{'|'})); text != "a\n|\n|bc\n|d" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	got, err = readLines(iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader("a\nb\n"))))
	if len(got) != 0 || err != iotest.ErrTimeout {
		t.Errorf("got %q, %v", got, err)
	}
	// The complete lines before the error are returned.
	got, err = readLines(io.MultiReader(strings.NewReader("a\nb\nc"), iotest.ErrReader(io.ErrUnexpectedEOF)))
	if text := string(bytes.Join(got, []byte{'|'})); text != "a\n|b\n" || err != io.ErrUnexpectedEOF {
		t.Errorf("got %q, %v", text, err)
	}
}

// A reader requests memory before it allocates it, and reports when it is free again, even for a line that never ends.
func TestLineReaderTellsWhatItHolds(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("short\n", 100_000) + strings.Repeat("long", 20<<20/4) + "\n" + strings.Repeat("y", 3*lineBlockBytes) + "\nend"
	held, most := int64(0), int64(0)
	var mu sync.Mutex
	r := LineReader{From: strings.NewReader(text), Blocks: make(chan LineBlock, BlocksAhead), Stopped: make(chan struct{}), Charge: func(bytes int64) error {
		mu.Lock()
		defer mu.Unlock()
		held += bytes
		most = max(most, held)
		return nil
	}}
	go r.Run()
	lines := 0
	for block := range r.Blocks {
		mu.Lock()
		held -= block.Spent
		mu.Unlock()
		lines += bytes.Count(block.Text, []byte("\n"))
	}
	if lines != 100_001 || held > 2*MaxImportLine || most > 4*MaxImportLine {
		t.Errorf("%d lines came; %d bytes are held at the end, and %d were at most", lines, held, most)
	}
}
