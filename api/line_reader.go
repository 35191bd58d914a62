package api

import (
	"bytes"
	"io"

	"github.com/manifold-es/manifold/domain"
)

const (
	// maxImportLine limits a line, including its end. It allows an event of maximum size with its other fields, even as
	// a CloudEvent, whose data may be base64 and whose metadata is JSON text within a string.
	maxImportLine = 2*domain.MaxEventBytes + 64<<10
	// lineBlockBytes is how much is read at once, if lines are shorter.
	lineBlockBytes = 128 << 10
	// blocksAhead is how many blocks may wait.
	blocksAhead = 4
)

// lineBlock is a part of a body: whole lines, as many as have arrived. The last line of a body may lack its line break.
type lineBlock struct {
	text    []byte // owned by the receiver
	tooLong bool   // a line of more than maxImportLine bytes before text was skipped
	err     error  // the body ended, for this reason; text is then empty
	spent   int64  // bytes of memory that are free once the earlier blocks are done; text is then empty
}

// lineReader reads a body ahead of the goroutine that handles its lines.
type lineReader struct {
	from    io.Reader
	blocks  chan lineBlock  // closed at the end
	stopped <-chan struct{} // closed when no more blocks are wanted

	take func(bytes int64) error // called before memory for a block is allocated
}

// run reads to the end, or until stopped is closed and the current read has returned.
func (r *lineReader) run() {
	defer close(r.blocks)
	if err := guarded(r.read); err != nil {
		r.send(lineBlock{err: err})
	}
}

func (r *lineReader) read() error {
	if err := r.take(lineBlockBytes); err != nil {
		return err
	}
	buffer := make([]byte, lineBlockBytes)
	start, end := 0, 0 // the part of an incomplete line in the buffer
	passing := false   // that line is too long and is skipped
	shared := false    // the receiver has a part of the buffer
	for {
		if end == len(buffer) {
			// The receiver owns what was sent, so the rest moves to a new buffer.
			if end-start > maxImportLine {
				passing, start = true, end
			}
			if passing && !shared {
				end = 0 // nothing of the buffer was sent
			} else {
				// Announce the memory that becomes free first: the import must not wait for its own memory.
				if !r.send(lineBlock{spent: int64(len(buffer))}) {
					return nil
				}
				size := max(lineBlockBytes, 2*(end-start))
				if err := r.take(int64(size)); err != nil {
					return err
				}
				fresh := make([]byte, size)
				end = copy(fresh, buffer[start:end])
				buffer, shared = fresh, false
			}
			start = 0
		}
		n, err := r.from.Read(buffer[end:])
		came := buffer[end : end+n]
		block := lineBlock{}
		if passing {
			line := bytes.IndexByte(came, '\n') + 1
			if line > 0 || err != nil {
				block.tooLong, passing = true, false
			}
			if line == 0 {
				line = n
			}
			came = came[line:]
			start = end + line
		}
		end += n
		if line := bytes.LastIndexByte(came, '\n') + 1; line > 0 {
			upTo := end - len(came) + line
			block.text, start = buffer[start:upTo:upTo], upTo
		}
		if err == io.EOF {
			// The rest is the last line, and complete.
			from := start - len(block.text)
			block.text = buffer[from:end:end]
			start = end
		}
		shared = shared || len(block.text) > 0
		if (block.tooLong || len(block.text) > 0) && !r.send(block) {
			return nil
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		select {
		case <-r.stopped:
			return nil
		default:
		}
	}
}

// send returns false if no more blocks are wanted.
func (r *lineReader) send(block lineBlock) bool {
	select {
	case r.blocks <- block:
		return true
	case <-r.stopped:
		return false
	}
}
