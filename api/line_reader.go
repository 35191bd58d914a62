package api

import (
	"bytes"
	"io"

	"github.com/manifold-es/manifold/domain"
)

const (
	// maxImportLine bounds a line with its end: an event of full size and what stands around it, also as a CloudEvent, whose data may be
	// base64, and whose metadata is text in a text.
	maxImportLine = 2*domain.MaxEventBytes + 64<<10
	// lineBlockBytes is how much is read in one go, where lines are shorter than that.
	lineBlockBytes = 128 << 10
	// blocksAhead is how many blocks wait at most.
	blocksAhead = 4
)

// lineBlock is a part of a body: whole lines, as many as have come. The last one of a body may lack its end.
type lineBlock struct {
	text    []byte // belongs to the receiver
	tooLong bool   // before text stands a line of more than maxImportLine bytes, which was passed over
	err     error  // the body ends here, but for this reason; text is empty then
	spent   int64  // bytes of memory that go when the blocks before this one are done with; text is empty then
}

// lineReader reads a body ahead of who works on its lines.
type lineReader struct {
	from    io.Reader
	blocks  chan lineBlock  // closed at the end
	stopped <-chan struct{} // closed when nobody wants more

	take func(bytes int64) error // is asked before there is memory for a block
}

// run reads to the end, or until stopped is closed and a read that is under way has returned.
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
	start, end := 0, 0 // what has come of a line without its end
	passing := false   // that line is too long: it is not kept
	shared := false    // somebody else has some of the buffer
	for {
		if end == len(buffer) {
			// What was sent is the receiver's, so the rest moves.
			if end-start > maxImportLine {
				passing, start = true, end
			}
			if passing && !shared {
				end = 0 // nobody has any of it
			} else {
				// First that goes which is done with: whoever waits must not wait for itself.
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
			// The rest goes along: it is the last line, and whole.
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

// send reports false where nobody wants more.
func (r *lineReader) send(block lineBlock) bool {
	select {
	case r.blocks <- block:
		return true
	case <-r.stopped:
		return false
	}
}
