package api

import (
	"maps"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
)

// readEvent is GET /v1/events/{eventId}. It does not use the generated code because the client chooses the form of the
// answer.
func (s *Server) readEvent(c echo.Context, caller access.Caller) error {
	text := c.Param("eventId")
	id, err := domain.ParseEventID(text)
	if err != nil {
		return domain.Errorf(domain.CodeInvalidRequest, "path eventId", "%s", err)
	}
	event, err := s.config.Log.Event(c.Request().Context(), caller.Tenant, id)
	if err == nil && caller.Allow(domain.Category(event.Stream), auth.ScopeEventsRead) != nil {
		// The id does not reveal the category, but a refusal would. So a caller that may not read the event gets "not
		// found".
		err = domain.Errorf(domain.CodeNotFound, "", "there is no event %s", id)
	}
	if err != nil {
		return problem.At("path eventId", err)
	}
	s.observeRead(1)
	return s.answerEvent(c, &event)
}

// answerEvent answers with one event. An event never changes, but it may be removed later.
func (s *Server) answerEvent(c echo.Context, event *domain.Event) error {
	var encoder wire.EventEncoder
	c.Response().Header().Set("Cache-Control", "no-store")
	switch request := c.Request(); {
	case wire.Accepts(request, cloudevents.StructuredType):
		return c.Blob(http.StatusOK, cloudevents.StructuredType, append(encoder.CloudEvent(nil, event), '\n'))
	case wire.Accepts(request, cloudevents.BinaryType):
		return answerBinary(c, event)
	}
	return c.Blob(http.StatusOK, "application/json", append(encoder.Event(nil, event), '\n'))
}

// maxBinaryHeaders limits the attributes of a CloudEvent in a binary answer, in bytes. Clients and proxies refuse
// headers that are much longer.
const maxBinaryHeaders = 16 << 10

// answerBinary answers with one event as a CloudEvent in the binary form: its data as the body, and its attributes as
// headers.
func answerBinary(c echo.Context, event *domain.Event) error {
	attributes := http.Header{}
	var encoder cloudevents.Encoder
	body := encoder.SetHeader(attributes, event)
	size := 0
	for name, values := range attributes {
		size += len(name) + len(values[0]) + len(": \r\n")
	}
	if size > maxBinaryHeaders {
		return domain.Errorf(domain.CodeUnsupported, "Accept", "the event's attributes have %d bytes as headers; %d are given at most. Ask with Accept: %s", size, maxBinaryHeaders, cloudevents.StructuredType)
	}
	response := c.Response()
	maps.Copy(response.Header(), attributes)
	if attributes["Content-Type"] == nil {
		response.Header()["Content-Type"] = nil // prevents content sniffing
	}
	// The tenant chooses the data's type. A browser must not show the data as a page of this service.
	response.Header().Set("Content-Security-Policy", "default-src 'none'; sandbox")
	response.WriteHeader(http.StatusOK)
	_, err := response.Write(body)
	return err
}
