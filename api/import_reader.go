package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
)

// importLine is a valid line.
type importLine struct {
	number  int64
	stream  string
	event   domain.NewEvent
	earlier domain.EventID // the id that an earlier release derived from the content, if this one uses name and number
}

// importBatch is what is appended in one request, and the bad lines in between.
type importBatch struct {
	lines []importLine
	bad   []openapi.BadLine
	read  int64 // lines read up to the end of the batch
	spent int64 // bytes of memory that are free after the append
}

// importReader builds batches of lines. While lines arrive faster than they are appended, it builds full batches. If no
// more lines have arrived and the appender is idle, it passes on a smaller batch, so that no line waits for later ones.
type importReader struct {
	blocks  <-chan lineBlock
	batches chan<- importBatch // accepts a batch when the appender is idle
	name    string
	strict  bool
	caller  caller

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
		r.batch.spent += block.spent
		if block.err != nil {
			return errors.Join(r.flush(ctx), block.err)
		}
		if block.tooLong {
			if ended, err := r.line(ctx, nil, true); ended || err != nil {
				return err
			}
		}
		for text := range bytes.Lines(block.text) {
			if ended, err := r.line(ctx, text, len(text) > maxImportLine); ended || err != nil {
				return err
			}
		}
	}
}

// next waits for the next block. It returns false after the last one.
func (r *importReader) next(ctx context.Context) (block lineBlock, ok bool, err error) {
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
		bad = fmt.Sprintf("the line has more than %d bytes", maxImportLine)
	} else if text = bytes.TrimSpace(text); len(text) > 0 {
		if line, err := r.parse(text); err != nil {
			bad = err.Error()
		} else if err := r.caller.allow(domain.Category(line.stream), domain.ScopeEventsAppend); err != nil {
			bad = inPlace("stream", err).Error()
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
func (r *importReader) add(ctx context.Context, line importLine, size int) error {
	_, again := r.ids[line.event.ID]
	if len(r.batch.lines) >= domain.MaxRequestEvents || r.bytes+size > importBatchBytes && r.bytes > 0 || again {
		if err := r.flush(ctx); err != nil {
			return err
		}
	}
	r.batch.lines = append(r.batch.lines, line)
	r.bytes += size
	r.ids[line.event.ID] = struct{}{}
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
	r.batch = importBatch{read: r.number, lines: make([]importLine, 0, len(r.batch.lines))}
	r.bytes = 0
	clear(r.ids)
}

// importFields records which fields a line has.
type importFields [10]bool

var importFieldNames = [len(importFields{})]string{"stream", "type", "data", "id", "time", "metadata", "version", "position", "recordedAt", "gap"}

// give records a field. known reports whether the field exists, and again whether it was recorded before.
func (f *importFields) give(name string) (known, again bool) {
	for i, n := range importFieldNames {
		if n == name {
			again, f[i] = f[i], true
			return true, again
		}
	}
	return false, false
}

// missing returns the name of a required field that was not given. The first three fields are required.
func (f *importFields) missing() string {
	for i, name := range importFieldNames[:3] {
		if !f[i] {
			return name
		}
	}
	return ""
}

// parse parses a line: either of schema ImportLine, or a CloudEvent.
func (r *importReader) parse(text []byte) (importLine, error) {
	line, err := r.parseLine(text)
	if err == nil || !isCloudEvent(text) {
		return line, err
	}
	line = importLine{number: r.number}
	event, err := cloudevents.Parse(text)
	if err == nil {
		line.stream, line.event, err = event.Original()
	}
	return line, err
}

// isCloudEvent reports whether a line is a JSON object with the member specversion. Every CloudEvent has this member,
// and other lines do not.
func isCloudEvent(text []byte) (is bool) {
	if !bytes.Contains(text, []byte(`"specversion"`)) {
		return false
	}
	scan := domain.NewJSONScanner(text)
	_ = scan.Object(func(name string) error { // an invalid object is not a CloudEvent
		is = is || name == "specversion"
		_, err := scan.Value()
		return err
	})
	return is
}

// parseLine parses a line of schema ImportLine.
func (r *importReader) parseLine(text []byte) (importLine, error) {
	line := importLine{number: r.number}
	d := appendBody{text: text, scan: domain.NewJSONScanner(text)}
	var given importFields
	err := d.scan.Object(func(name string) error {
		known, again := given.give(name)
		if !known {
			return d.mend("", unknownField(name, "stream, id, type, time, data and metadata"))
		}
		if again {
			return domain.Errorf(domain.CodeInvalidRequest, name, "it is given twice")
		}
		var err error
		switch name {
		case "stream":
			if line.stream, err = d.word(name); err == nil {
				err = domain.CheckStream(name, line.stream)
			}
		case "id":
			line.event.ID, err = d.eventID()
		case "type":
			if line.event.Type, err = d.word(name); err == nil {
				err = domain.CheckType(name, line.event.Type)
			}
		case "time":
			line.event.OccurredAt, err = d.time()
		case "data":
			line.event.Data, err = d.scan.Value()
		case "metadata":
			line.event.Metadata, err = d.scan.Value()
		case "gap":
			var gap json.RawMessage
			if gap, err = d.scan.Value(); err == nil && string(gap) != "null" {
				err = domain.Errorf(domain.CodeInvalidRequest, name, "the event has no data, since it was unreadable or redacted when it was exported; leave the line out")
			}
		default: // a field of exports; the import assigns its own value
			_, err = d.scan.Value()
		}
		return d.mend(name, err)
	})
	if err == nil {
		err = d.scan.End()
	}
	if err != nil {
		return line, d.mend("", err)
	}
	if missing := given.missing(); missing != "" {
		return line, domain.Errorf(domain.CodeInvalidRequest, missing, "required, but missing")
	}
	if size := len(line.event.Data) + len(line.event.Metadata); size > domain.MaxEventBytes {
		return line, domain.Errorf(domain.CodeTooLarge, "data", "data and metadata have %d bytes; an event has at most %d", size, domain.MaxEventBytes)
	}
	if string(line.event.Metadata) == "null" {
		line.event.Metadata = nil
	}
	if line.event.ID.IsZero() {
		if r.name == "" {
			return line, domain.Errorf(domain.CodeInvalidRequest, "id", "the line has no id; give it one, or name the import (--name, ?name=), so that it can be repeated")
		}
		line.event.ID = domain.DeriveEventID("import line", r.name, strconv.FormatInt(r.number, 10))
		sum := sha256.Sum256(text)
		line.earlier = domain.DeriveEventID("import", r.name, string(sum[:]), "0")
	}
	return line, nil
}
