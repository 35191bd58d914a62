package api

import (
	"fmt"
	"io"
	"testing"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/transfer"
	"github.com/manifold-es/manifold/auth"
)

// free always grants memory.
func free(int64) error { return nil }

// offered returns one text per Read, and signals when the next one is requested.
type offered struct {
	texts chan string
	asked chan struct{}
}

func (o *offered) Read(b []byte) (int, error) {
	o.asked <- struct{}{}
	text, ok := <-o.texts
	if !ok {
		return 0, io.EOF
	}
	return copy(b, text), nil
}

// A line does not wait for later ones. Lines that arrive faster than they are appended go in full batches, even if each
// line is for another stream than the previous one.
func TestImportReaderTakesWhatIsThere(t *testing.T) {
	t.Parallel()
	from := &offered{texts: make(chan string), asked: make(chan struct{})}
	lines := transfer.LineReader{From: from, Blocks: make(chan transfer.LineBlock, transfer.BlocksAhead), Stopped: t.Context().Done(), Charge: free}
	batches := make(chan importBatch)
	reader := importReader{blocks: lines.Blocks, batches: batches, name: "a", caller: access.Caller{Credential: auth.Credential{Grants: auth.GrantsOf(auth.ScopeEventsAppend)}}}
	ended := make(chan error, 1)
	go lines.Run()
	go func() {
		ended <- reader.run(t.Context())
		close(batches)
	}()
	sent := 0
	offer := func(n int) {
		text := ""
		for range n {
			text += fmt.Sprintf(`{"stream":"order-%d","type":"Happened","data":%d}`+"\n", sent%2, sent)
			sent++
		}
		from.texts <- text
		<-from.asked // so the earlier lines were flushed
	}
	<-from.asked
	offer(1)
	batch := <-batches
	if len(batch.lines) != 1 || batch.read != 1 {
		t.Fatalf("the first batch has %d lines, up to line %d", len(batch.lines), batch.read)
	}
	// While that line is being appended, more lines arrive than fit into a batch. The same happens again, and then the
	// body ends.
	for _, want := range []int{1000, 1000, 200} {
		for range min(12, 22-sent/100) {
			offer(100)
		}
		if want == 200 {
			close(from.texts)
		}
		batch := <-batches
		if len(batch.lines) != want {
			t.Errorf("a batch has %d lines, want %d", len(batch.lines), want)
		}
		for i, stream := range appendOf(batch.lines).Streams {
			number := batch.read - int64(want) + int64(i)
			if len(stream.Events) != 1 || string(stream.Events[0].Data) != fmt.Sprint(number) {
				t.Fatalf("line %d is appended as %+v", number+1, stream)
			}
		}
	}
	for batch := range batches {
		if len(batch.lines) > 0 {
			t.Errorf("there is one more batch, of %d lines", len(batch.lines))
		}
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
