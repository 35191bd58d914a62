package api

import (
	"bytes"
	"context"
	"math"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// headerNext says where to continue reading by query.
const headerNext = "Manifold-Next"

// pageReads limits the reads for one page. Each may find nothing, and still take half a second.
const pageReads = 10

// readByQuery is POST /v1/query: the events that a query matches, and the position up to which they are complete. It
// does not use the generated code, since the answer may be a stream.
func (s *Server) readByQuery(c echo.Context, caller access.Caller) error {
	request := c.Request()
	// The query can name no categories, so the key must be allowed to read all of them.
	if err := caller.Allow("", auth.ScopeEventsRead); err != nil {
		return err
	}
	var body bytes.Buffer
	if _, err := body.ReadFrom(request.Body); err != nil {
		return err
	}
	q, err := wire.DecodeQuery(body.Bytes())
	if err != nil {
		return err
	}
	form := wire.FormOf(request)
	count := int64(q.Limit)
	switch {
	case form.Lines && count == 0:
		count = math.MaxInt64
	case count == 0:
		count = defaultPage
	case !form.Lines && count > maxPage:
		return domain.Errorf(domain.CodeInvalidRequest, "count", "a page has at most %d events; for more, ask for a stream with Accept: %s", maxPage, wire.Ndjson)
	}
	p, err := s.periodOf(request.Context(), caller.Tenant, q.Since, q.Until)
	if err != nil {
		return err
	}
	head, err := s.config.Log.Head(request.Context(), caller.Tenant)
	if err != nil {
		return err
	}
	upTo := head.Position
	if q.Before > 0 {
		upTo = min(upTo, q.Before-1)
	}
	if p.bounded {
		upTo = min(upTo, p.last)
	}
	q.After = max(q.After, p.first-1)
	q.Before = upTo + 1
	done, reads := false, 0
	next := func(ctx context.Context, limit, maxBytes int) ([]domain.Event, error) {
		for ; !done && q.After+1 < q.Before && (form.Lines || reads < pageReads); reads++ {
			q.Limit, q.MaxBytes = limit, maxBytes
			events, next, err := s.config.Log.ReadMatching(ctx, caller.Tenant, q.MatchQuery)
			if err != nil {
				return nil, err
			}
			switch {
			case next == 0:
				done = true
			case q.Direction == domain.Backward:
				q.Before = next
			default:
				q.After = next
			}
			if len(events) > 0 {
				return events, nil
			}
		}
		return nil, nil
	}
	header := c.Response().Header()
	header.Set("Cache-Control", "no-store")
	if form.Lines {
		if q.Limit == 0 || q.Direction == domain.Backward { // else the last line may come before that position
			header.Set(headerPosition, strconv.FormatInt(upTo, 10))
		}
		return s.streamEvents(c, caller.ShareOf(), count, next, form)
	}
	ctx, cancel := context.WithTimeout(request.Context(), s.timeout)
	defer cancel()
	page := s.newPage(caller.ShareOf(), form)
	defer page.close()
	more, last, err := page.addEvents(ctx, count, next, func(e *domain.Event) int64 { return e.Position })
	if err != nil {
		return err
	}
	if !more {
		// It has all events that were found. Perhaps there was no time to look further.
		more = !done && q.After+1 < q.Before
		if last = q.After; q.Direction == domain.Backward {
			last = q.Before
		}
	}
	// A page forward is complete up to where it stopped. A page backward begins at the end.
	position := upTo
	if more && q.Direction == domain.Forward {
		position = last
	}
	header.Set(headerPosition, strconv.FormatInt(position, 10))
	end := `],"position":` + strconv.FormatInt(position, 10) + `,"more":` + strconv.FormatBool(more)
	if more {
		header.Set(headerNext, strconv.FormatInt(last, 10))
		end += `,"next":` + strconv.FormatInt(last, 10)
	}
	if form.Kind == "application/json" {
		page.form.Close = end + "}\n"
	}
	s.observeRead(page.events)
	return page.write(c)
}
