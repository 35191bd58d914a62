package api

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/transfer"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

const (
	defaultPage = 100
	maxPage     = 1000
	// maxPageBytes ends a page early, since a page is held in memory.
	maxPageBytes = 8 << 20

	// A stream is read in slices, so that a slow client holds neither memory nor a snapshot of the database.
	sliceEvents = 2000
	sliceBytes  = 1 << 20
	// sliceRoom is the memory of the largest slice, with an event that exceeds its limit, and with its encoded form.
	sliceRoom = 4 << 20
)

// readStream, readAll and readCategory do not use the generated code, since the answer may be a stream.
func (s *Server) readStream(c echo.Context, caller access.Caller) error {
	request, err := readingOf(c)
	if err != nil {
		return err
	}
	stream := c.Param("streamId")
	if err := caller.AllowStream(stream, auth.ScopeEventsRead); err != nil {
		return err
	}
	newest, err := s.config.Log.StreamSlice(c.Request().Context(), caller.Tenant, stream, domain.StreamQuery{Limit: 1, Direction: domain.Backward})
	if err != nil {
		return err
	}
	last := newest.Version()
	if last == 0 {
		return domain.Errorf(domain.CodeNotFound, "path streamId", "there is no stream %s", stream)
	}
	c.Response().Header().Set("ETag", etag(last))
	first, before := int64(1), int64(0)
	if !request.since.IsZero() || !request.until.IsZero() {
		if first, last, before, err = s.versionsInPeriod(c.Request().Context(), caller.Tenant, stream, request, last); err != nil {
			return err
		}
	}
	from := max(request.from, first)
	if request.direction == domain.Backward {
		if from = last; request.from > 0 {
			from = min(request.from, last)
		}
	}
	begun := false
	next := func(ctx context.Context, limit, maxBytes int) ([]domain.Event, error) {
		if from < first || from > last {
			return nil, nil
		}
		query := domain.StreamQuery{From: from, To: last, Limit: limit, MaxBytes: maxBytes, Direction: request.direction, AsOf: s.config.Log.Recent()}
		if request.direction == domain.Backward {
			query.To = first
		}
		slice, err := s.config.Log.StreamSlice(ctx, caller.Tenant, stream, query)
		events := slice.Events
		if !begun && err == nil {
			begun = true // the header goes out with the first slice
			whole := len(events) < limit && bytesOf(events) < maxBytes/2
			expected := from
			if request.direction == domain.Forward && request.from <= first {
				expected = before + 1
			}
			setRemovedTo(c.Response().Header(), missingVersion(events, expected, last, request.direction, whole))
		}
		from = 0
		if len(events) > 0 {
			from = step(events[len(events)-1].Version, request.direction)
		}
		return events, err
	}
	return s.answerEvents(c, caller.ShareOf(), request, next, func(e *domain.Event) int64 { return e.Version })
}

// versionsInPeriod returns the first and the last version of a stream that were recorded in the period of a read, and
// the newest version before that still exists. last is the stream's newest version.
func (s *Server) versionsInPeriod(ctx context.Context, tenant domain.TenantID, stream string, request reading, last int64) (first, end, before int64, err error) {
	p, err := s.periodOf(ctx, tenant, request.since, request.until)
	if err != nil {
		return 0, 0, 0, err
	}
	until, err := s.config.Log.VersionBefore(ctx, tenant, stream, p.first)
	if err == nil && p.bounded {
		last, err = s.config.Log.VersionBefore(ctx, tenant, stream, p.last+1)
	}
	if err != nil || until == 0 {
		return until + 1, last, 0, err
	}
	slice, err := s.config.Log.StreamSlice(ctx, tenant, stream, domain.StreamQuery{From: until, Limit: 1, Direction: domain.Backward})
	if len(slice.Events) > 0 {
		before = slice.Events[0].Version
	}
	return until + 1, last, before, err
}

// period is the range of positions that were recorded between the since and the until of a read.
type period struct {
	first, last int64 // last: 0 if there is none
	bounded     bool  // whether last is set
	// before is the position of the newest event that still exists before the period. Removed events after it may have
	// been in the period.
	before int64
}

// periodOf returns the period from since (zero: the log's beginning) until a time (zero: the log's end).
func (s *Server) periodOf(ctx context.Context, tenant domain.TenantID, since, until time.Time) (p period, err error) {
	p.first = 1
	if !since.IsZero() {
		before, err := s.config.Log.PositionBefore(ctx, tenant, since)
		if err != nil {
			return p, err
		}
		p.first = before + 1
		events, err := s.config.Log.ReadLog(ctx, tenant, domain.LogQuery{From: max(1, before), Limit: 1, Direction: domain.Backward})
		if err != nil {
			return p, err
		}
		if len(events) > 0 && before > 0 {
			p.before = events[0].Position
		}
	}
	if !until.IsZero() {
		p.bounded = true
		p.last, err = s.config.Log.PositionBefore(ctx, tenant, until)
	}
	return p, err
}

func (s *Server) readAll(c echo.Context, caller access.Caller) error {
	request, err := readingOf(c)
	if err != nil {
		return err
	}
	if err := caller.AllowEach(request.categories, auth.ScopeEventsRead); err != nil {
		return problem.At("query categories", err)
	}
	return s.readLog(c, caller, request)
}

func (s *Server) readCategory(c echo.Context, caller access.Caller) error {
	request, err := readingOf(c)
	if err != nil {
		return err
	}
	category := c.Param("category")
	if err := caller.Allow(category, auth.ScopeEventsRead); err != nil {
		return problem.At("path category", err)
	}
	request.categories = []string{category}
	return s.readLog(c, caller, request)
}

func (s *Server) readLog(c echo.Context, caller access.Caller, request reading) error {
	next, err := s.logSlices(c, caller.Tenant, request)
	if err != nil {
		return err
	}
	return s.answerEvents(c, caller.ShareOf(), request, next, func(e *domain.Event) int64 { return e.Position })
}

// slicer returns the next events of a read, at most limit of them and about maxBytes. It returns none at the end.
type slicer func(ctx context.Context, limit, maxBytes int) ([]domain.Event, error)

// logSlices reads a tenant's log. A forward read ends at the current head, so that even a reader slower than the
// writers finishes. With the first slice it sets the header that reports removed events.
func (s *Server) logSlices(c echo.Context, tenant domain.TenantID, request reading) (slicer, error) {
	ctx := c.Request().Context()
	p, err := s.periodOf(ctx, tenant, request.since, request.until)
	if err != nil {
		return nil, err
	}
	if !p.bounded {
		head, err := s.config.Log.Head(ctx, tenant)
		if err != nil {
			return nil, err
		}
		p.last = head.Position
	}
	if request.to > 0 {
		p.last = min(p.last, request.to)
	}
	from, to := max(request.from, p.first), p.last
	complete := from // removed events from here on are reported
	if request.from <= p.first {
		complete = p.before + 1
	}
	if request.direction == domain.Backward {
		if from, to = p.last, p.first; request.from > 0 {
			from = min(request.from, p.last)
		}
	}
	done := request.direction == domain.Forward && from > to || request.direction == domain.Backward && from < to
	if done && (!request.since.IsZero() || !request.until.IsZero()) {
		// Events of the period may have been removed.
		slice, err := s.config.Log.LogSlice(ctx, tenant, domain.LogQuery{From: max(1, to), To: max(1, to), Limit: 1, Categories: request.categories})
		if err != nil {
			return nil, err
		}
		if slice.RemovedTo >= complete {
			setRemovedTo(c.Response().Header(), slice.RemovedTo)
		}
	}
	begun := false
	return func(ctx context.Context, limit, maxBytes int) ([]domain.Event, error) {
		if done {
			return nil, nil
		}
		slice, err := s.config.Log.LogSlice(ctx, tenant, domain.LogQuery{
			From: from, To: to, Limit: limit, MaxBytes: maxBytes, Direction: request.direction,
			Categories: request.categories, Types: request.types, AsOf: s.config.Log.Recent(),
		})
		if !begun && err == nil {
			begun = true
			if request.direction == domain.Backward || slice.RemovedTo >= complete {
				setRemovedTo(c.Response().Header(), slice.RemovedTo)
			}
		}
		events := slice.Events
		if err != nil || len(events) == 0 {
			done = true
			return nil, err
		}
		from = step(events[len(events)-1].Position, request.direction)
		done = request.direction == domain.Forward && from > to || request.direction == domain.Backward && from < to
		return events, nil
	}, nil
}

// bytesOf returns the size of the events' data, metadata and tags in bytes.
func bytesOf(events []domain.Event) int {
	bytes := 0
	for i := range events {
		bytes += events[i].Bytes()
	}
	return bytes
}

// step returns the place after place in the direction; backward, the place after the first one is 0.
func step(place int64, direction domain.Direction) int64 {
	if direction == domain.Backward {
		return place - 1
	}
	return place + 1
}

// reading holds the parameters of a read request.
type reading struct {
	from       int64     // 0: from the first event in the direction
	to         int64     // the last position, of an export; 0: the head
	since      time.Time // only events recorded then or later; zero: all
	until      time.Time // only events recorded before; zero: all
	count      int64
	direction  domain.Direction
	categories []string
	types      []string
	form       wire.EventForm
}

// readingOf reads the parameters, which are already checked against the contract.
func readingOf(c echo.Context) (reading, error) {
	query := c.QueryParams()
	r := reading{form: wire.FormOf(c.Request())}
	var err error
	if r.from, err = integer(query, "from"); err != nil {
		return r, err
	}
	if r.count, err = integer(query, "count"); err != nil {
		return r, err
	}
	if query.Get("direction") == "backward" {
		r.direction = domain.Backward
	}
	if r.since, err = momentOf(query, "since"); err != nil {
		return r, err
	}
	if r.until, err = momentOf(query, "until"); err != nil {
		return r, err
	}
	if text := query.Get("categories"); text != "" {
		r.categories = strings.Split(text, ",")
	}
	if text := query.Get("types"); text != "" {
		r.types = strings.Split(text, ",")
	}
	switch {
	case r.form.Lines && r.count == 0:
		r.count = math.MaxInt64
	case r.count == 0:
		r.count = defaultPage
	case !r.form.Lines && r.count > maxPage:
		return r, domain.Errorf(domain.CodeInvalidRequest, "query count", "a page has at most %d events; for more, ask for a stream with Accept: %s", maxPage, wire.Ndjson)
	}
	return r, nil
}

// momentOf returns a parameter that is a time; zero if it is missing.
func momentOf(query url.Values, name string) (time.Time, error) {
	text := query.Get(name)
	if text == "" {
		return time.Time{}, nil
	}
	at, err := wire.ParseTime(text)
	if err != nil {
		return at, problem.At("query "+name, err)
	}
	return at, nil
}

func integer(query url.Values, name string) (int64, error) {
	text := query.Get(name)
	if text == "" {
		return 0, nil
	}
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, domain.Errorf(domain.CodeInvalidRequest, "query "+name, "%q is not a whole number of at most 63 bits", domain.Clip(text, 40))
	}
	return number, nil
}

// answerEvents answers with a page or with lines. place returns an event's position or version: the one that
// the request's from counts.
func (s *Server) answerEvents(c echo.Context, tenant domain.TenantID, request reading, next slicer, place func(*domain.Event) int64) error {
	c.Response().Header().Set("Cache-Control", "no-store")
	if request.form.Lines {
		return s.streamEvents(c, tenant, request.count, next, request.form)
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), s.timeout)
	defer cancel()
	page := s.newPage(tenant, request.form)
	defer page.close()
	more, last, err := page.addEvents(ctx, request.count, next, place)
	if err != nil {
		return err
	}
	if more {
		c.Response().Header().Set("Link", nextPage(c.Request().URL, "from", strconv.FormatInt(step(last, request.direction), 10)))
	}
	s.observeRead(page.events)
	return page.write(c)
}

func (s *Server) observeRead(events int) {
	if read := s.config.Observer.Read; read != nil {
		read(events)
	}
}

// nextPage returns the Link header for the same request with one parameter changed.
func nextPage(u *url.URL, name, value string) string {
	query := u.Query()
	query.Set(name, value)
	return "<" + u.EscapedPath() + "?" + query.Encode() + `>; rel="next"`
}

// streamEvents writes events as lines, in constant memory. It reads the next slice while it writes the current one. It
// stops when the client disconnects or stops reading.
func (s *Server) streamEvents(c echo.Context, tenant domain.TenantID, count int64, next slicer, form wire.EventForm) error {
	if c.Request().Method == http.MethodHead {
		c.Response().Header().Set("Content-Type", form.Kind)
		return c.NoContent(http.StatusOK) // the length is unknown without reading everything
	}
	ctx, cancel := context.WithCancel(c.Request().Context())
	type read struct {
		events []domain.Event
		held   int64
		err    error
	}
	room := s.budgets.answers.Account(tenant)
	defer room.Close()
	reads := make(chan read)
	go func() {
		defer close(reads)
		patience := transfer.RoomPatience // for the first slice; later the client already has a part of its answer
		for left := count; left > 0; patience = 0 {
			var r read
			r.err = problem.Guarded(func() (err error) {
				if err := room.Wait(ctx, sliceRoom, patience); err != nil {
					return err
				}
				r.events, err = next(ctx, int(min(left, sliceEvents)), sliceBytes)
				r.held = min(sliceRoom, 2*int64(bytesOf(r.events))+int64(len(r.events))*decodedEvent)
				room.Shrink(sliceRoom - r.held)
				return err
			})
			left -= int64(len(r.events))
			if r.err == nil && len(r.events) == 0 {
				return
			}
			select {
			case reads <- r:
			case <-ctx.Done():
				return
			}
			if r.err != nil {
				return
			}
		}
	}()
	defer func() {
		cancel()
		for range reads { // waits until the reader has ended
		}
	}()

	response := c.Response()
	control := http.NewResponseController(response)
	var encoder wire.EventEncoder
	var buffer []byte
	total := 0
	for r := range reads {
		if r.err != nil {
			return r.err
		}
		response.Header().Set("Content-Type", form.Kind)
		buffer = buffer[:0]
		for i := range r.events {
			buffer = append(form.Encode(&encoder, buffer, &r.events[i]), '\n')
		}
		_ = control.SetWriteDeadline(time.Now().Add(s.stallTimeout))
		if _, err := response.Write(buffer); err != nil {
			return fmt.Errorf("%w: %w", context.Canceled, err)
		}
		if err := control.Flush(); err != nil {
			return fmt.Errorf("%w: %w", context.Canceled, err)
		}
		total += len(r.events)
		room.Shrink(r.held)
	}
	if err := c.Request().Context().Err(); err != nil {
		return err
	}
	s.observeRead(total)
	if total == 0 {
		response.Header().Set("Content-Type", form.Kind)
		response.WriteHeader(http.StatusOK)
	}
	return nil
}
