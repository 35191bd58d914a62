package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/wire"
)

// maxPendingLines is how many bytes of lines are sent at a time.
const maxPendingLines = 32 << 10

// lines writes an answer as lines of JSON, some at a time. The client may stop reading for stallTimeout.
type lines struct {
	response *echo.Response
	control  *http.ResponseController
	timeout  time.Duration
	pending  bytes.Buffer
	encoder  *json.Encoder
	wrote    time.Time
}

func (s *Server) newLines(c echo.Context) *lines {
	response := c.Response()
	response.Header().Set("Content-Type", wire.Ndjson)
	response.Header().Set("Cache-Control", "no-store")
	l := &lines{response: response, control: http.NewResponseController(response), timeout: s.stallTimeout, wrote: time.Now()}
	l.encoder = json.NewEncoder(&l.pending)
	l.encoder.SetEscapeHTML(false)
	return l
}

// add writes a value as a line. It may remain pending until flush.
func (l *lines) add(value any) error {
	if err := l.encoder.Encode(value); err != nil || l.pending.Len() < maxPendingLines {
		return err
	}
	return l.flush()
}

// keepAlive sends pending lines, or an empty one if nothing was sent for commentEvery.
func (l *lines) keepAlive() error {
	if l.pending.Len() == 0 {
		if time.Since(l.wrote) < commentEvery {
			return nil
		}
		l.pending.WriteByte('\n')
	}
	if err := l.flush(); err != nil {
		return err
	}
	if err := l.control.Flush(); err != nil {
		return fmt.Errorf("%w: %w", context.Canceled, err)
	}
	return nil
}

// flush writes pending lines. Its error is context.Canceled if the client does not read them.
func (l *lines) flush() error {
	_ = l.control.SetWriteDeadline(time.Now().Add(l.timeout)) // writers of tests may have no deadlines
	l.wrote = time.Now()
	if _, err := l.pending.WriteTo(l.response); err != nil {
		return fmt.Errorf("%w: %w", context.Canceled, err)
	}
	return nil
}
