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

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/transfer"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

const (
	// importBatchBytes limits one append, in addition to domain.MaxRequestEvents.
	importBatchBytes = 4 << 20
	// importBytes is the memory of an import without its lines.
	importBytes = 1 << 20
	// importFrameEvery is how often progress is reported while there are no bad lines.
	importFrameEvery = 200 * time.Millisecond
	// importPatience is how long an import waits for an overloaded log, or for a database to come back.
	importPatience = 20 * time.Second
)

// importEvents appends lines as they arrive, in order. Three goroutines work in parallel: one reads the body, this one
// builds batches, and one appends them and reports progress.
func (s *Server) importEvents(c echo.Context, caller access.Caller) error {
	request := c.Request()
	if err := wire.RequireContentType(request, wire.Ndjson, "application/jsonl", "application/ndjson"); err != nil {
		return err
	}
	query := c.QueryParams()
	control := http.NewResponseController(c.Response())
	body := stallingReader{request.Body, control, s.stallTimeout}
	request.Body = body
	account := s.budgets.bodies.Account(caller.Tenant)
	defer account.Close()
	if err := account.Wait(request.Context(), importBytes, transfer.RoomPatience); err != nil {
		return err
	}
	plain, done, err := s.decoders.Reader(request, account)
	if err != nil {
		return err
	}
	defer done()
	// The answer begins before the body has ended. HTTP/1 servers drop the rest of the body unless full duplex is
	// enabled.
	if err := control.EnableFullDuplex(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("answer an import while it comes: %w", err)
	}
	response := c.Response()
	response.Header().Set("Content-Type", wire.Ndjson)
	response.Header().Set("Cache-Control", "no-store")

	var working sync.WaitGroup
	defer working.Wait()
	ctx, cancel := context.WithCancelCause(request.Context())
	defer cancel(nil)
	charge := func(bytes int64) error { return account.Wait(ctx, bytes, importPatience) }
	lines := transfer.LineReader{From: plain, Blocks: make(chan transfer.LineBlock, transfer.BlocksAhead), Stopped: ctx.Done(), Charge: charge}
	working.Go(func() { lines.Run() })
	job := &importJob{
		server: s, tenant: caller.Tenant, account: account, strict: query.Get("strict") != "false", check: query.Get("check") == "true",
		control: control, response: response,
	}
	job.strict = job.strict && !job.check // a check reports all bad lines
	batches := make(chan importBatch)     // unbuffered: only an idle appender takes a batch
	ended := make(chan error, 1)
	working.Go(func() {
		err := problem.Guarded(func() error { return job.appendAll(ctx, batches) })
		cancel(err) // the line reader may stop
		ended <- err
	})
	reader := importReader{
		blocks: lines.Blocks, batches: batches, name: query.Get("name"), strict: job.strict, caller: caller,
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
	if err := job.end(err, request, response.Header().Get(problem.HeaderRequestID)); err != nil {
		return err
	}
	cancel(nil)
	working.Wait()
	// If much of their body was not read, some clients see a broken connection and not the answer.
	_, _ = io.CopyN(io.Discard, body, maxDrained)
	return nil
}

// stallingReader extends the connection's read deadline with each read: an import may take hours, but must not stall.
type stallingReader struct {
	io.ReadCloser
	control *http.ResponseController
	timeout time.Duration
}

func (r stallingReader) Read(p []byte) (int, error) {
	_ = r.control.SetReadDeadline(time.Now().Add(r.timeout)) // writers of tests may have no deadlines
	n, err := r.ReadCloser.Read(p)
	if err == io.EOF {
		_ = r.control.SetReadDeadline(time.Time{}) // the server watches the connection until the last append
	}
	return n, err
}

// importJob appends batches and reports progress.
type importJob struct {
	server   *Server
	tenant   domain.TenantID
	account  *fairshare.Account
	strict   bool
	check    bool // append nothing
	control  *http.ResponseController
	response *echo.Response

	progress   openapi.ImportProgress
	reportedAt time.Time // when the last frame was written
	unreported bool      // there is progress since then
	stopped    bool      // a bad line ended a strict import
}

// appendAll works until batches is closed, until the first error, or in strict mode until the first bad line.
func (j *importJob) appendAll(ctx context.Context, batches <-chan importBatch) error {
	j.reportedAt = time.Now()
	for {
		var batch importBatch
		var ok bool
		var due <-chan time.Time // when to report what was appended since the last frame
		if j.unreported {
			due = time.After(time.Until(j.reportedAt.Add(importFrameEvery)))
		}
		select {
		case batch, ok = <-batches:
		case <-due:
			if err := j.report(); err != nil {
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
		j.progress.Lines, j.unreported = batch.read, true
		if j.stopped {
			return errStrict
		}
		if len(j.progress.Bad) > 0 || time.Since(j.reportedAt) >= importFrameEvery {
			if err := j.report(); err != nil {
				return err
			}
		}
	}
}

// checkName returns an error if an earlier release has already appended one of the lines under the same import name.
// That release derived ids from the content of lines, so this one would append them again.
func (j *importJob) checkName(ctx context.Context, lines []wire.ImportLine) error {
	var earlier []domain.EventID
	for i := range lines {
		if !lines[i].Earlier.IsZero() {
			earlier = append(earlier, lines[i].Earlier)
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
	first := slices.IndexFunc(lines, func(line wire.ImportLine) bool { return there[line.Earlier] != "" })
	return domain.Errorf(domain.CodeConflict, "query name", "line %d is in the log already, by an import of this name of an earlier release, which cannot be continued; import only what is missing, under another name", lines[first].Number)
}

// errStrict stops reading after the first bad line of a strict import.
var errStrict = errors.New("strict: stopped at an invalid line")

func (j *importJob) bad(lines ...openapi.BadLine) {
	j.progress.Bad = append(j.progress.Bad, lines...)
	j.progress.BadLines += int64(len(lines))
}

// append appends lines in one request, or checks them only. If only some of them exist already, or one is invalid, it
// appends each half separately, down to the single bad line.
func (j *importJob) append(ctx context.Context, lines []wire.ImportLine) error {
	if len(lines) == 0 {
		return nil
	}
	var appended domain.Appended
	request := appendOf(lines)
	err := j.patiently(ctx, func() (err error) {
		if j.check {
			appended.Violations, err = j.server.config.Schemas.Validate(ctx, j.tenant, request)
			return err
		}
		appended, err = j.server.config.Appends.Append(ctx, j.tenant, request)
		return err
	})
	if err == nil {
		j.progress.Violations += int64(appended.Violations)
		switch {
		case j.check:
		case appended.Duplicate:
			j.progress.Duplicates += int64(len(lines))
		default:
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
		if !lines[0].Earlier.IsZero() && e.Code == domain.CodeEventIDConflict {
			reason = string(e.Code) + ": an import of this name has brought another event in this line; give other content another name"
		}
		j.bad(openapi.BadLine{Line: lines[0].Number, Reason: reason})
		j.stopped = j.stopped || j.strict
		return nil
	}
	half := len(lines) / 2
	if err := j.append(ctx, lines[:half]); err != nil || j.stopped && j.strict && j.badBefore(lines[half].Number) {
		return err
	}
	return j.append(ctx, lines[half:])
}

// badBefore reports whether a line before number was bad.
func (j *importJob) badBefore(number int64) bool {
	for _, bad := range j.progress.Bad {
		if bad.Line < number {
			return true
		}
	}
	return false
}

// ofTheLines reports whether a code concerns the events and not the service.
func ofTheLines(code domain.Code) bool {
	switch code {
	case domain.CodeEventIDConflict, domain.CodePartialDuplicate, domain.CodeDuplicateID,
		domain.CodeInvalidRequest, domain.CodeInvalidJSON, domain.CodeTooLarge, domain.CodeSchemaViolation, domain.CodeTooCostly:
		return true
	}
	return false
}

// patiently calls the log, and retries for a while if that may help. Repeating an append is safe, because every line
// has an id.
func (j *importJob) patiently(ctx context.Context, call func() error) error {
	deadline := time.Now().Add(importPatience)
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := call()
		if err == nil {
			return nil
		}
		e, ok := errors.AsType[*domain.Error](err)
		if ok && e.RetryAfter > 0 { // a limit of the tenant or the key: the import continues as fast as that allows
			pause = min(e.RetryAfter, 2*time.Second)
			deadline = time.Now().Add(importPatience)
		}
		if !ok || problem.KindOf(e.Code).Retry == 0 || time.Now().Add(pause).After(deadline) {
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

// appendOf builds one append of lines, in order. Consecutive lines of one stream form one part of it.
func appendOf(lines []wire.ImportLine) domain.Append {
	events := make([]domain.NewEvent, len(lines))
	var request domain.Append
	for i, first := 0, 0; i < len(lines); i++ {
		events[i] = lines[i].Event
		if i+1 == len(lines) || lines[i+1].Stream != lines[i].Stream {
			request.Streams = append(request.Streams, domain.StreamAppend{
				Stream: lines[i].Stream, Expected: domain.Any, Events: events[first : i+1 : i+1],
			})
			first = i + 1
		}
	}
	return request
}

// report writes a frame with the progress.
func (j *importJob) report() error {
	frame, err := json.Marshal(j.progress)
	if err != nil {
		return fmt.Errorf("write a frame of an import: %w", err)
	}
	j.progress.Bad = nil
	j.reportedAt, j.unreported = time.Now(), false
	_ = j.control.SetWriteDeadline(time.Now().Add(j.server.stallTimeout))
	if _, err := j.response.Write(append(frame, '\n')); err != nil {
		return fmt.Errorf("%w: %w", context.Canceled, err)
	}
	if err := j.control.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return fmt.Errorf("%w: %w", context.Canceled, err)
	}
	return nil
}

// end writes the last frame: done, or the error. The status has been sent by then. Even if it has not, the answer is
// 200 with the result in the frame, so that clients find the result in one place.
func (j *importJob) end(err error, request *http.Request, requestID string) error {
	if cause := context.Cause(request.Context()); problem.IsRefusal(cause) && errors.Is(err, context.Canceled) {
		err = cause // the key was revoked meanwhile, or its tenant suspended
	}
	switch {
	case err == nil || errors.Is(err, errStrict):
		j.progress.Done = true
	case errors.Is(err, context.Canceled) && request.Context().Err() != nil:
		return err
	default:
		e, fault := problem.Of(err)
		if fault {
			j.server.log.Error("an import failed", "requestId", requestID, "error", err)
		}
		problem := problem.Body(e, request, requestID)
		j.progress.Error = &problem
	}
	return j.report()
}
