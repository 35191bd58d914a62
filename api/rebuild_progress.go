package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/domain"
)

const (
	// progressEvery is how often a followed rebuild is read from the database. Another process may work on it, and
	// saves its progress about as often.
	progressEvery = time.Second
	// commentEvery is how often something is sent while nothing happens, so that no proxy considers the connection
	// dead.
	commentEvery = 15 * time.Second
)

// watchRebuild sends a rebuild whenever it changes, until it ends, the client disconnects, its key is revoked, or the
// process stops.
func (s *Server) watchRebuild(c echo.Context, caller access.Caller) error {
	name := c.Param("name")
	id := c.Param("rebuildId")
	ctx := c.Request().Context()
	seen, err := s.rebuildSeenBy(ctx, caller, name, id)
	if err != nil {
		return err
	}
	response := c.Response()
	header := response.Header()
	header.Set("Content-Type", wire.EventStream)
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // some proxies buffer answers otherwise
	response.WriteHeader(http.StatusOK)

	w := progressWriter{response: response, control: http.NewResponseController(response.Writer), timeout: s.stallTimeout}
	if err := w.send(seen); err != nil || seen.EndedAt != nil {
		return nil // the client has disconnected, or the rebuild has ended
	}
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.ending.Stopped():
			return nil
		case <-tick.C:
		}
		now, err := s.rebuildSeenBy(ctx, caller, name, id)
		if e, ok := errors.AsType[*domain.Error](err); ok && e.Code == domain.CodeNotFound {
			return nil // the projection was removed
		}
		switch {
		case err != nil: // the database is temporarily unavailable
			err = w.idle()
		case now.EndedAt != nil || !now.UpdatedAt.Equal(seen.UpdatedAt.Time):
			seen = now
			err = w.send(now)
		default:
			err = w.idle()
		}
		if err != nil || seen.EndedAt != nil {
			return nil
		}
	}
}

// progressWriter writes server-sent events.
type progressWriter struct {
	response *echo.Response
	control  *http.ResponseController
	timeout  time.Duration
	wrote    time.Time
}

// send writes a rebuild as an event.
func (w *progressWriter) send(rebuild openapi.Rebuild) error {
	event := "progress"
	if rebuild.EndedAt != nil {
		event = "ended"
	}
	rebuild.Definition = nil
	data, err := json.Marshal(rebuild)
	if err != nil {
		return err
	}
	return w.write("event: %s\ndata: %s\n\n", event, data)
}

// idle writes a comment if nothing was written for commentEvery.
func (w *progressWriter) idle() error {
	if time.Since(w.wrote) < commentEvery {
		return nil
	}
	return w.write(": nothing new\n\n")
}

func (w *progressWriter) write(format string, args ...any) error {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.timeout)) // writers of tests may have no deadlines
	if _, err := fmt.Fprintf(w.response, format, args...); err != nil {
		return err
	}
	w.wrote = time.Now()
	return w.control.Flush()
}
