package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

const (
	// importBatchBytes bounds what is appended in one go, beside domain.MaxRequestEvents.
	importBatchBytes = 4 << 20
	// importBytes is what an import has in memory beside its lines.
	importBytes = 1 << 20
	// importFrameEvery is how often progress is told where there is nothing bad to tell.
	importFrameEvery = 200 * time.Millisecond
	// importPatience is how long an import waits for a log that has too much waiting, or for a database to come back.
	importPatience = 20 * time.Second
)

// importEvents appends lines as they come, and to the log they go in their order. Three goroutines work side by side: one
// reads the body, this one turns it into batches, and one appends them and answers.
func (s *Server) importEvents(c echo.Context, caller caller) error {
	request := c.Request()
	if err := wantContentType(request, ndjson, "application/jsonl", "application/ndjson"); err != nil {
		return err
	}
	query := c.QueryParams()
	control := http.NewResponseController(c.Response())
	body := stallingReader{request.Body, control, s.stallTimeout}
	request.Body = body
	account := s.budgets.bodies.Account(caller.tenant)
	defer account.Close()
	if err := account.Wait(request.Context(), importBytes, roomPatience); err != nil {
		return err
	}
	plain, done, err := s.decoders.reader(request, account)
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

	var working sync.WaitGroup
	defer working.Wait()
	ctx, cancel := context.WithCancelCause(request.Context())
	defer cancel(nil)
	take := func(bytes int64) error { return account.Wait(ctx, bytes, importPatience) }
	lines := lineReader{from: plain, blocks: make(chan lineBlock, blocksAhead), stopped: ctx.Done(), take: take}
	working.Go(func() { lines.run() })
	job := &importJob{
		server: s, tenant: caller.tenant, account: account, strict: query.Get("strict") != "false", check: query.Get("check") == "true",
		control: control, response: response,
	}
	job.strict = job.strict && !job.check // who checks wants to know all bad lines
	batches := make(chan importBatch)     // without a buffer: only an appender that has nothing to do takes one
	ended := make(chan error, 1)
	working.Go(func() {
		err := guarded(func() error { return job.appendAll(ctx, batches) })
		cancel(err) // whoever reads lines need not go on
		ended <- err
	})
	reader := importReader{
		blocks: lines.blocks, batches: batches, name: query.Get("name"), strict: job.strict, caller: caller,
	}
	readErr := reader.run(ctx)
	close(batches)
	err = <-ended
	if err == nil && !job.stopped {
		err = readErr
	}
	if imported := s.config.Observer.Imported; imported != nil {
		imported(int(job.progress.Appended))
	}
	if err := job.end(err, request, response.Header().Get(headerRequestID)); err != nil {
		return err
	}
	cancel(nil)
	working.Wait()
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
	n, err := r.ReadCloser.Read(p)
	if err == io.EOF {
		_ = r.control.SetReadDeadline(time.Time{}) // the server still watches the connection, while the last lines are appended
	}
	return n, err
}

// importJob appends batches and tells how far it is.
type importJob struct {
	server   *Server
	tenant   domain.TenantID
	account  *fairshare.Account
	strict   bool
	check    bool // append nothing
	control  *http.ResponseController
	response *echo.Response

	progress openapi.ImportProgress
	told     time.Time // when the last frame was written
	untold   bool      // there is progress since then
	stopped  bool      // strict, and a bad line came
}

// appendAll works until batches are closed, the first error, or in strict mode the first bad line.
func (j *importJob) appendAll(ctx context.Context, batches <-chan importBatch) error {
	j.told = time.Now()
	for {
		var batch importBatch
		var ok bool
		var due <-chan time.Time // the frame for what was appended since the last one
		if j.untold {
			due = time.After(time.Until(j.told.Add(importFrameEvery)))
		}
		select {
		case batch, ok = <-batches:
		case <-due:
			if err := j.tell(); err != nil {
				return err
			}
			continue
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
		if err := j.checkName(ctx, lines); err != nil {
			return err
		}
		if err := j.append(ctx, lines); err != nil {
			return err
		}
		j.account.Shrink(batch.spent)
		j.bad(batch.bad...)
		j.progress.Lines, j.untold = batch.read, true
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

// checkName refuses to go on with an import of which an earlier release has appended one of the lines under the same name: that
// release derived ids from the content of lines, so they would be appended again.
func (j *importJob) checkName(ctx context.Context, lines []importLine) error {
	var earlier []domain.EventID
	for i := range lines {
		if !lines[i].earlier.IsZero() {
			earlier = append(earlier, lines[i].earlier)
		}
	}
	if len(earlier) == 0 {
		return nil
	}
	var there map[domain.EventID]string
	err := j.patiently(ctx, func() (err error) {
		there, err = j.server.config.Log.StreamsOf(ctx, j.tenant, earlier)
		return err
	})
	if err != nil || len(there) == 0 {
		return err
	}
	first := slices.IndexFunc(lines, func(line importLine) bool { return there[line.earlier] != "" })
	return domain.Errorf(domain.CodeConflict, "query name", "line %d is in the log already, by an import of this name of an earlier release, which cannot be continued; import only what is missing, under another name", lines[first].number)
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
	if len(lines) == 0 || j.check {
		return nil
	}
	var appended domain.Appended
	request := appendOf(lines)
	err := j.patiently(ctx, func() (err error) {
		appended, err = j.server.config.Log.Append(ctx, j.tenant, request)
		return err
	})
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
		reason := string(e.Code) + ": " + e.Message
		if !lines[0].earlier.IsZero() && e.Code == domain.CodeEventIDConflict {
			reason = string(e.Code) + ": an import of this name has brought another event in this line; give other content another name"
		}
		j.bad(openapi.BadLine{Line: lines[0].number, Reason: reason})
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

// patiently calls the log, and again for a while where that can help. Repeating an append is safe: every line has its id.
func (j *importJob) patiently(ctx context.Context, call func() error) error {
	deadline := time.Now().Add(importPatience)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := call()
		if err == nil {
			return nil
		}
		e, ok := errors.AsType[*domain.Error](err)
		if !ok || j.server.problemOf(e.Code).retry == 0 || time.Now().Add(pause).After(deadline) {
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// appendOf makes one request of lines, in their order: lines of one stream that follow each other go together.
func appendOf(lines []importLine) domain.Append {
	events := make([]domain.NewEvent, len(lines))
	var request domain.Append
	for i, first := 0, 0; i < len(lines); i++ {
		events[i] = lines[i].event
		if i+1 == len(lines) || lines[i+1].stream != lines[i].stream {
			request.Streams = append(request.Streams, domain.StreamAppend{
				Stream: lines[i].stream, Expected: domain.Any, Events: events[first : i+1 : i+1],
			})
			first = i + 1
		}
	}
	return request
}

// tell writes a frame.
func (j *importJob) tell() error {
	frame, err := json.Marshal(j.progress)
	if err != nil {
		return fmt.Errorf("write a frame of an import: %w", err)
	}
	j.progress.Bad = nil
	j.told, j.untold = time.Now(), false
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
	if cause := context.Cause(request.Context()); isRefusal(cause) && errors.Is(err, context.Canceled) {
		err = cause // the key was revoked meanwhile, or its tenant suspended
	}
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
