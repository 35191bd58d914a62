package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/transfer"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// importBatch is what is appended in one request, and the bad lines in between.
type importBatch struct {
	lines []wire.ImportLine
	bad   []openapi.BadLine
	read  int64 // lines read up to the end of the batch
	spent int64 // bytes of memory that are free after the append
}

// importReader builds batches of lines. While lines arrive faster than they are appended, it builds full batches. If no
// more lines have arrived and the appender is idle, it passes on a smaller batch, so that no line waits for later ones.
type importReader struct {
	blocks  <-chan transfer.LineBlock
	batches chan<- importBatch // accepts a batch when the appender is idle
	name    string
	strict  bool
	caller  access.Caller

	batch  importBatch
	bytes  int
	ids    map[domain.EventID]struct{} // of the batch
	number int64                       // of the line
}

// run reads to the end, or to the first bad line of a strict import. It returns an error of the body, or the cause of
// ctx. Bad lines are not errors.
func (r *importReader) run(ctx context.Context) error {
	r.ids = map[domain.EventID]struct{}{}
	for {
		block, ok, err := r.next(ctx)
		if err != nil {
			return err
		}
		if !ok {
			return r.flush(ctx)
		}
		r.batch.spent += block.Spent
		if block.Err != nil {
			return errors.Join(r.flush(ctx), block.Err)
		}
		if block.TooLong {
			if ended, err := r.line(ctx, nil, true); ended || err != nil {
				return err
			}
		}
		for text := range bytes.Lines(block.Text) {
			if ended, err := r.line(ctx, text, len(text) > transfer.MaxImportLine); ended || err != nil {
				return err
			}
		}
	}
}

// next waits for the next block. It returns false after the last one.
func (r *importReader) next(ctx context.Context) (block transfer.LineBlock, ok bool, err error) {
	select {
	case block, ok = <-r.blocks:
		return block, ok, nil
	default:
	}
	for {
		idle := r.batches
		if len(r.batch.lines)+len(r.batch.bad) == 0 && r.batch.spent == 0 {
			idle = nil
		}
		select {
		case block, ok = <-r.blocks:
			return block, ok, nil
		case idle <- r.batch:
			r.clear()
		case <-ctx.Done():
			return block, false, context.Cause(ctx)
		}
	}
}

// line handles one line. ended means that it is bad and the import strict.
func (r *importReader) line(ctx context.Context, text []byte, tooLong bool) (ended bool, err error) {
	r.number++
	bad := ""
	if tooLong {
		bad = fmt.Sprintf("the line has more than %d bytes", transfer.MaxImportLine)
	} else if text = bytes.TrimSpace(text); len(text) > 0 {
		if line, err := wire.ParseImportLine(text, r.name, r.number); err != nil {
			bad = err.Error()
		} else if err := r.caller.Allow(domain.Category(line.Stream), auth.ScopeEventsAppend); err != nil {
			bad = problem.At("stream", err).Error()
		} else if err := r.add(ctx, line, len(text)); err != nil {
			return false, err
		}
	}
	r.batch.read = r.number
	if bad == "" {
		return false, nil
	}
	r.batch.bad = append(r.batch.bad, openapi.BadLine{Line: r.number, Reason: bad})
	if r.strict || len(r.batch.bad) >= domain.MaxRequestEvents {
		err = r.flush(ctx)
	}
	return r.strict, err
}

// add adds a line to the batch. If the line does not fit, add flushes the batch first.
func (r *importReader) add(ctx context.Context, line wire.ImportLine, size int) error {
	_, duplicate := r.ids[line.Event.ID]
	if len(r.batch.lines) >= domain.MaxRequestEvents || r.bytes+size > importBatchBytes && r.bytes > 0 || duplicate {
		if err := r.flush(ctx); err != nil {
			return err
		}
	}
	r.batch.lines = append(r.batch.lines, line)
	r.bytes += size
	r.ids[line.Event.ID] = struct{}{}
	return nil
}

// flush passes the batch to the appender after the previous batch was appended.
func (r *importReader) flush(ctx context.Context) error {
	select {
	case r.batches <- r.batch:
		r.clear()
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *importReader) clear() {
	r.batch = importBatch{read: r.number, lines: make([]wire.ImportLine, 0, len(r.batch.lines))}
	r.bytes = 0
	clear(r.ids)
}
