package transfer

import (
	"bytes"
	"io"

	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/domain"
)

const (
	// MaxImportLine limits a line, including its end. It allows an event of maximum size with its other fields, even as
	// a CloudEvent, whose data may be base64 and whose metadata is JSON text within a string.
	MaxImportLine = 2*domain.MaxEventBytes + 64<<10
	// lineBlockBytes is how much is read at once, if lines are shorter.
	lineBlockBytes = 128 << 10
	// BlocksAhead is how many blocks may wait.
	BlocksAhead = 4
)

// LineBlock is a part of a body: whole lines, as many as have arrived. The last line of a body may lack its line break.
type LineBlock struct {
	Text    []byte // owned by the receiver
	TooLong bool   // a line of more than maxImportLine bytes before text was skipped
	Err     error  // the body ended, for this reason; text is then empty
	Spent   int64  // bytes of memory that are free once the earlier blocks are done; text is then empty
}

// LineReader reads a body ahead of the goroutine that handles its lines.
type LineReader struct {
	From    io.Reader
	Blocks  chan LineBlock  // closed at the end
	Stopped <-chan struct{} // closed when no more blocks are wanted

	Charge func(bytes int64) error // called before memory for a block is allocated
}

// Run reads to the end, or until stopped is closed and the current read has returned.
func (r *LineReader) Run() {
	defer close(r.Blocks)
	if err := problem.Guarded(r.read); err != nil {
		r.send(LineBlock{Err: err})
	}
}

func (r *LineReader) read() error {
	if err := r.Charge(lineBlockBytes); err != nil {
		return err
	}
	buffer := make([]byte, lineBlockBytes)
	start, end := 0, 0 // the part of an incomplete line in the buffer
	skipping := false  // that line is too long and is skipped
	shared := false    // the receiver has a part of the buffer
	for {
		if end == len(buffer) {
			// The receiver owns what was sent, so the rest moves to a new buffer.
			if end-start > MaxImportLine {
				skipping, start = true, end
			}
			if skipping && !shared {
				end = 0 // nothing of the buffer was sent
			} else {
				// Announce the memory that becomes free first: the import must not wait for its own memory.
				if !r.send(LineBlock{Spent: int64(len(buffer))}) {
					return nil
				}
				size := max(lineBlockBytes, 2*(end-start))
				if err := r.Charge(int64(size)); err != nil {
					return err
				}
				fresh := make([]byte, size)
				end = copy(fresh, buffer[start:end])
				buffer, shared = fresh, false
			}
			start = 0
		}
		n, err := r.From.Read(buffer[end:])
		arrived := buffer[end : end+n]
		block := LineBlock{}
		if skipping {
			line := bytes.IndexByte(arrived, '\n') + 1
			if line > 0 || err != nil {
				block.TooLong, skipping = true, false
			}
			if line == 0 {
				line = n
			}
			arrived = arrived[line:]
			start = end + line
		}
		end += n
		if line := bytes.LastIndexByte(arrived, '\n') + 1; line > 0 {
			upTo := end - len(arrived) + line
			block.Text, start = buffer[start:upTo:upTo], upTo
		}
		if err == io.EOF {
			// The rest is the last line, and complete.
			from := start - len(block.Text)
			block.Text = buffer[from:end:end]
			start = end
		}
		shared = shared || len(block.Text) > 0
		if (block.TooLong || len(block.Text) > 0) && !r.send(block) {
			return nil
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-r.Stopped:
			return nil
		default:
		}
	}
}

// send returns false if no more blocks are wanted.
func (r *LineReader) send(block LineBlock) bool {
	select {
	case r.Blocks <- block:
		return true
	case <-r.Stopped:
		return false
	}
}
