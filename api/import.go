package api

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
)

const (
	// maxImportLine bounds a line: an event of full size and what stands around it.
	maxImportLine = domain.MaxEventBytes + 64<<10
	// importBatchBytes bounds what is appended in one go, beside domain.MaxRequestEvents.
	importBatchBytes = 2 << 20
	// importFrameEvery is how often progress is told where there is nothing bad to tell.
	importFrameEvery = 200 * time.Millisecond
	// importPatience is how long an import waits for a log that has too much waiting, or for a database to come back.
	importPatience = 20 * time.Second
)

// importEvents appends lines as they come. One goroutine, this one, reads and checks them; another appends and answers:
// so the log is at work while lines arrive. Lines go to the log in their order; a batch is as many as fit without a
// stream standing in it in two places, since a request appends stream by stream.
func (s *Server) importEvents(c echo.Context, caller caller) error {
	request := c.Request()
	if err := wantContentType(request, ndjson, "application/jsonl", "application/ndjson"); err != nil {
		return err
	}
	query := c.QueryParams()
	control := http.NewResponseController(c.Response())
	body := stallingReader{request.Body, control, s.stallTimeout}
	request.Body = body
	plain, done, err := s.decoders.reader(request)
	if err != nil {
		return err
	}
	defer done()
	// The answer begins before the body has ended; HTTP/1 servers drop the rest of the body unless told.
	if err := control.EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("answer an import while it comes: %w", err)
	}
	response := c.Response()
	response.Header().Set("Content-Type", ndjson)
	response.Header().Set("Cache-Control", "no-store")

	ctx, cancel := context.WithCancelCause(request.Context())
	defer cancel(nil)
	job := &importJob{server: s, tenant: caller.tenant, strict: query.Get("strict") == "true", control: control, response: response}
	batches := make(chan importBatch, 1)
	ended := make(chan error, 1)
	go func() {
		err := guarded(func() error { return job.appendAll(ctx, batches) })
		cancel(err) // whoever reads lines need not go on
		ended <- err
	}()
	reader := importReader{
		lines: bufio.NewReaderSize(plain, 64<<10), name: query.Get("name"), strict: job.strict,
		send: func(batch importBatch) error {
			select {
			case batches <- batch:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		},
	}
	readErr := reader.run()
	close(batches)
	err = <-ended
	if err == nil && !job.stopped {
		err = unreadable(readErr)
	}
	if imported := s.config.Observer.Imported; imported != nil {
		imported(int(job.progress.Appended))
	}
	if err := job.end(err, request, response.Header().Get(headerRequestID)); err != nil {
		return err
	}
	// Some clients see a broken connection, and not the answer, where much of their body was not read.
	_, _ = io.CopyN(io.Discard, body, drained)
	return nil
}

// stallingReader pushes the connection's read deadline on with each read: an import may take hours, but not stand still.
type stallingReader struct {
	io.ReadCloser
	control *http.ResponseController
	timeout time.Duration
}

func (r stallingReader) Read(p []byte) (int, error) {
	_ = r.control.SetReadDeadline(time.Now().Add(r.timeout)) // a test's writer may know no deadlines
	return r.ReadCloser.Read(p)
}

// importLine is a good line.
type importLine struct {
	number int64
	stream string
	event  domain.NewEvent
}

// importBatch is what is appended in one go, and the bad lines among it.
type importBatch struct {
	lines []importLine
	bad   []openapi.BadLine
	read  int64 // lines read up to its end
}

// importReader turns lines into batches.
type importReader struct {
	lines  *bufio.Reader
	name   string
	strict bool
	send   func(importBatch) error

	batch   importBatch
	bytes   int
	streams map[string]bool
	ids     map[domain.EventID]bool
	last    string            // the stream of the batch's last line
	number  int64             // of the line
	seen    map[uint64]uint32 // how often a line without id came, by the first bits of its hash
}

// run reads to the end. What it returns is an error of the body, or of send; bad lines are none.
func (r *importReader) run() error {
	r.seen = map[uint64]uint32{}
	r.clear()
	for {
		text, tooLong, err := r.line()
		if err != nil && err != io.EOF {
			return errors.Join(r.flush(), err)
		}
		end := err == io.EOF
		if end && len(text) == 0 && !tooLong {
			return r.flush()
		}
		r.number++
		r.batch.read = r.number
		bad := ""
		if tooLong {
			bad = fmt.Sprintf("the line has more than %d bytes", maxImportLine)
		} else if text = bytes.TrimSpace(text); len(text) > 0 {
			if line, err := r.parse(text); err != nil {
				bad = err.Error()
			} else if err := r.add(line, len(text)); err != nil {
				return err
			}
		}
		if bad != "" {
			r.batch.bad = append(r.batch.bad, openapi.BadLine{Line: r.number, Reason: bad})
			if r.strict {
				return r.flush()
			}
			if len(r.batch.bad) >= domain.MaxRequestEvents {
				if err := r.flush(); err != nil {
					return err
				}
			}
		}
		if end {
			return r.flush()
		}
	}
}

// line reads one line. A line beyond maxImportLine is passed over. The bytes are the caller's.
func (r *importReader) line() (text []byte, tooLong bool, err error) {
	for {
		part, err := r.lines.ReadSlice('\n')
		if len(text)+len(part) > maxImportLine {
			tooLong, text = true, nil
		}
		if !tooLong {
			text = append(text, part...)
		}
		if err != bufio.ErrBufferFull {
			return text, tooLong, err
		}
	}
}

// add puts a line into the batch, and sends the batch before where the line does not fit into it.
func (r *importReader) add(line importLine, size int) error {
	again := r.streams[line.stream] && line.stream != r.last
	if len(r.batch.lines) >= domain.MaxRequestEvents || r.bytes+size > importBatchBytes || again || r.ids[line.event.ID] {
		read := r.batch.read
		r.batch.read = r.number - 1
		if err := r.flush(); err != nil {
			return err
		}
		r.batch.read = read
	}
	r.batch.lines = append(r.batch.lines, line)
	r.bytes += size
	r.streams[line.stream] = true
	r.ids[line.event.ID] = true
	r.last = line.stream
	return nil
}

func (r *importReader) flush() error {
	if r.batch.read == 0 {
		return nil
	}
	batch := r.batch
	r.clear()
	return r.send(batch)
}

func (r *importReader) clear() {
	r.batch = importBatch{read: r.number}
	r.bytes, r.last = 0, ""
	r.streams, r.ids = map[string]bool{}, map[domain.EventID]bool{}
}

// parse reads a line as schema ImportLine has it.
func (r *importReader) parse(text []byte) (importLine, error) {
	line := importLine{number: r.number}
	d := appendBody{text: text, scan: domain.NewJSONScanner(text)}
	given := map[string]bool{}
	err := d.scan.Object(func(name string) (err error) {
		if given[name] {
			return domain.Errorf(domain.CodeInvalidRequest, name, "it is given twice")
		}
		given[name] = true
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
		case "version", "position", "recordedAt": // export's; an event gets its own here
			_, err = d.scan.Value()
		default:
			err = unknownField(name, "stream, id, type, time, data and metadata")
			name = ""
		}
		return d.mend(name, err)
	})
	if err == nil {
		err = d.scan.End()
	}
	if err != nil {
		return line, d.mend("", err)
	}
	for _, name := range []string{"stream", "type", "data"} {
		if !given[name] {
			return line, domain.Errorf(domain.CodeInvalidRequest, name, "it is needed")
		}
	}
	if size := len(line.event.Data) + len(line.event.Metadata); size > domain.MaxEventBytes {
		return line, domain.Errorf(domain.CodeTooLarge, "data", "data and metadata have %d bytes; an event has at most %d", size, domain.MaxEventBytes)
	}
	if string(line.event.Metadata) == "null" {
		line.event.Metadata = nil
	}
	if line.event.ID.IsZero() {
		if r.name == "" {
			return line, domain.Errorf(domain.CodeInvalidRequest, "id", "the line has no id; give it one, or name the import (?name=), so that it can be repeated")
		}
		line.event.ID = r.derive(text)
	}
	return line, nil
}

// derive gives a line without id the one that it has each time this import comes: by the import's name, the line's
// content, and how often the same line came before.
func (r *importReader) derive(text []byte) domain.EventID {
	sum := sha256.Sum256(text)
	key := binary.BigEndian.Uint64(sum[:8])
	count := r.seen[key]
	r.seen[key] = count + 1
	return domain.DeriveEventID("import", r.name, string(sum[:]), strconv.FormatUint(uint64(count), 10))
}

// importJob appends batches and tells how far it is.
type importJob struct {
	server   *Server
	tenant   domain.TenantID
	strict   bool
	control  *http.ResponseController
	response *echo.Response

	progress openapi.ImportProgress
	told     time.Time
	stopped  bool // strict, and a bad line came
}

// appendAll works until batches are closed, the first error, or in strict mode the first bad line.
func (j *importJob) appendAll(ctx context.Context, batches <-chan importBatch) error {
	j.told = time.Now()
	for {
		var batch importBatch
		var ok bool
		select {
		case batch, ok = <-batches:
		case <-ctx.Done():
			return ctx.Err()
		}
		if !ok {
			return nil
		}
		lines := batch.lines
		if j.strict && len(batch.bad) > 0 {
			j.stopped = true
		}
		if err := j.append(ctx, lines); err != nil {
			return err
		}
		j.bad(batch.bad...)
		j.progress.Lines = batch.read
		if j.stopped {
			return errStrict
		}
		if len(j.progress.Bad) > 0 || time.Since(j.told) >= importFrameEvery {
			if err := j.tell(); err != nil {
				return err
			}
		}
	}
}

// errStrict ends the reading of a strict import behind its first bad line.
var errStrict = errors.New("strict: a bad line came")

func (j *importJob) bad(lines ...openapi.BadLine) {
	j.progress.Bad = append(j.progress.Bad, lines...)
	j.progress.BadLines += int64(len(lines))
}

// append appends lines in one go. Where some are there already and others are not, or one cannot be, it does each half
// by itself: down to the one line that is at fault.
func (j *importJob) append(ctx context.Context, lines []importLine) error {
	if len(lines) == 0 {
		return nil
	}
	appended, err := j.patiently(ctx, lines)
	if err == nil {
		if appended.Duplicate {
			j.progress.Duplicates += int64(len(lines))
		} else {
			j.progress.Appended += int64(len(lines))
		}
		j.progress.Position = max(j.progress.Position, appended.Position)
		return nil
	}
	e, ok := errors.AsType[*domain.Error](err)
	if !ok || !ofTheLines(e.Code) {
		return err
	}
	if len(lines) == 1 {
		j.bad(openapi.BadLine{Line: lines[0].number, Reason: string(e.Code) + ": " + e.Message})
		j.stopped = j.stopped || j.strict
		return nil
	}
	half := len(lines) / 2
	if err := j.append(ctx, lines[:half]); err != nil || j.stopped && j.strict && j.badBefore(lines[half].number) {
		return err
	}
	return j.append(ctx, lines[half:])
}

// badBefore says whether a line before number was found bad.
func (j *importJob) badBefore(number int64) bool {
	for _, bad := range j.progress.Bad {
		if bad.Line < number {
			return true
		}
	}
	return false
}

// ofTheLines says whether a code speaks of the events, not of the service.
func ofTheLines(code domain.Code) bool {
	switch code {
	case domain.CodeEventIDConflict, domain.CodePartialDuplicate, domain.CodeDuplicateID,
		domain.CodeInvalidRequest, domain.CodeInvalidJSON, domain.CodeTooLarge:
		return true
	}
	return false
}

// patiently appends, and tries again for a while where that can help. Repeating is safe: every line has its id.
func (j *importJob) patiently(ctx context.Context, lines []importLine) (domain.Appended, error) {
	var request domain.Append
	for _, line := range lines {
		if n := len(request.Streams); n > 0 && request.Streams[n-1].Stream == line.stream {
			request.Streams[n-1].Events = append(request.Streams[n-1].Events, line.event)
			continue
		}
		request.Streams = append(request.Streams, domain.StreamAppend{
			Stream: line.stream, Expected: domain.Any, Events: []domain.NewEvent{line.event},
		})
	}
	deadline := time.Now().Add(importPatience)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		appended, err := j.server.config.Log.Append(ctx, j.tenant, request)
		if err == nil {
			return appended, nil
		}
		e, ok := errors.AsType[*domain.Error](err)
		if !ok || j.server.problemOf(e.Code).retry == 0 || time.Now().Add(pause).After(deadline) {
			return appended, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return appended, ctx.Err()
		}
	}
}

// tell writes a frame.
func (j *importJob) tell() error {
	frame, err := json.Marshal(j.progress)
	if err != nil {
		return fmt.Errorf("write a frame of an import: %w", err)
	}
	j.progress.Bad = nil
	j.told = time.Now()
	_ = j.control.SetWriteDeadline(time.Now().Add(j.server.stallTimeout))
	if _, err := j.response.Write(append(frame, '\n')); err != nil {
		return fmt.Errorf("%w: %w", context.Canceled, err)
	}
	if err := j.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("%w: %w", context.Canceled, err)
	}
	return nil
}

// end writes the last frame: done, or the error. The status is out by then, or 200 tells of a result in the frame: a
// client has one way to find it.
func (j *importJob) end(err error, request *http.Request, requestID string) error {
	switch {
	case err == nil || errors.Is(err, errStrict):
		j.progress.Done = true
	case errors.Is(err, context.Canceled) && request.Context().Err() != nil:
		return err
	default:
		e, fault := clientError(err)
		if fault {
			j.server.log.Error("an import failed", "requestId", requestID, "error", err)
		}
		problem := j.server.problemFor(e, request, requestID)
		j.progress.Error = &problem
	}
	return j.tell()
}
