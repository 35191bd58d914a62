package api

import (
	"context"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

const (
	// maxLatestKeys limits the keys of one request.
	maxLatestKeys = 1000
	// latestAtOnce is how many streams one statement reads, since the size of their newest events is not known in
	// advance.
	latestAtOnce = 200
)

// readLatest is GET /v1/categories/{category}/latest: the newest event of each key, in the order of the keys.
func (s *Server) readLatest(c echo.Context, caller access.Caller) error {
	category := c.Param("category")
	if err := caller.Allow(category, auth.ScopeEventsRead); err != nil {
		return problem.At("path category", err)
	}
	keys, streams, err := latestStreams(category, c.QueryParam("keys"))
	if err != nil {
		return err
	}
	form := wire.FormOf(c.Request())
	at := 0 // how many of the streams have been read
	next := func(ctx context.Context, _, maxBytes int) ([]domain.Event, error) {
		for at < len(streams) {
			asked := streams[at:min(at+latestAtOnce, len(streams))]
			events, err := s.config.Log.Latest(ctx, caller.Tenant, asked, maxBytes)
			if err != nil {
				return nil, err
			}
			if bytesOf(events) < maxBytes {
				at += len(asked)
			} else { // it ended with the last of these
				for streams[at] != events[len(events)-1].Stream {
					at++
				}
				at++
			}
			if len(events) > 0 {
				return events, nil
			}
		}
		return nil, nil
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	if form.Lines {
		return s.streamEvents(c, caller.ShareOf(), int64(len(streams)), next, form)
	}
	ctx, cancel := context.WithTimeout(c.Request().Context(), s.timeout)
	defer cancel()
	page := s.newPage(caller.ShareOf(), form)
	defer page.close()
	if err := page.wait(ctx); err != nil {
		return err
	}
	for !page.full {
		slice, err := next(ctx, 0, min(sliceBytes, maxPageBytes-page.bytes))
		if err != nil {
			return err
		}
		if len(slice) == 0 {
			break
		}
		for i := range slice {
			page.add(&slice[i])
		}
	}
	if at < len(streams) {
		c.Response().Header().Set("Link", nextPage(c.Request().URL, "keys", joinKeys(keys[at:])))
	}
	s.observeRead(page.events)
	return page.write(c)
}

// latestStreams parses the requested keys, and returns them with the streams that they name. It removes duplicate keys.
func latestStreams(category, text string) (keys, streams []string, err error) {
	seen := map[string]bool{}
	for _, key := range splitKeys(text) {
		if key == "" {
			return nil, nil, domain.Errorf(domain.CodeInvalidRequest, "query keys", "a key is empty; give one or more, with a comma between two")
		}
		stream := category + "-" + key
		if err := domain.CheckStream("query keys", stream); err != nil {
			return nil, nil, err
		}
		if seen[stream] {
			continue
		}
		if len(keys) == maxLatestKeys {
			return nil, nil, domain.Errorf(domain.CodeTooLarge, "query keys", "there are more than %d; ask for the others in another request", maxLatestKeys)
		}
		seen[stream] = true
		keys, streams = append(keys, key), append(streams, stream)
	}
	return keys, streams, nil
}

// splitKeys splits a list of keys. A backslash escapes a comma within a key, because no key can contain a backslash.
func splitKeys(text string) []string {
	var keys []string
	var key strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text) && text[i+1] == ',':
			key.WriteByte(',')
			i++
		case text[i] == ',':
			keys = append(keys, key.String())
			key.Reset()
		default:
			key.WriteByte(text[i])
		}
	}
	return append(keys, key.String())
}

// joinKeys is the inverse of splitKeys.
func joinKeys(keys []string) string {
	escaped := make([]string, len(keys))
	for i, key := range keys {
		escaped[i] = strings.ReplaceAll(key, ",", `\,`)
	}
	return strings.Join(escaped, ",")
}
