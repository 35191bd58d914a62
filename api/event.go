package api

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/domain"
)

// readEvent is GET /v1/events/{eventId}. It is written by hand since the answer has a form of the client's choice.
func (s *Server) readEvent(c echo.Context, caller caller) error {
	text, err := pathParam(c, "eventId")
	if err != nil {
		return err
	}
	id, err := domain.ParseEventID(text)
	if err != nil {
		return domain.Errorf(domain.CodeInvalidRequest, "path eventId", "%s", err)
	}
	event, err := s.config.Log.Event(c.Request().Context(), caller.tenant, id)
	if err != nil {
		return inPlace("path eventId", err)
	}
	if err := caller.allow(domain.Category(event.Stream), domain.ScopeEventsRead); err != nil {
		return inPlace("path eventId", err)
	}
	s.observeRead(1)
	return s.answerEvent(c, &event)
}

// answerEvent answers with one event. It never changes, and may go in time.
func (s *Server) answerEvent(c echo.Context, event *domain.Event) error {
	var encoder eventEncoder
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.Blob(http.StatusOK, "application/json", append(encoder.event(nil, event), '\n'))
}
