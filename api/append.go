package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// Appender appends events. The service's appender also checks them against schemas, and reports each append to
// aggregates.
type Appender interface {
	Append(ctx context.Context, tenant domain.TenantID, request domain.Append) (domain.Appended, error)
}

// appendToStream does not use the generated code. Events' data reaches the log as the bytes that came in, and generic
// decoding is too slow for the operation that is called most.
func (s *Server) appendToStream(c echo.Context, caller access.Caller) error {
	request := c.Request()
	stream := c.Param("streamId")
	if err := caller.AllowStream(stream, auth.ScopeEventsAppend); err != nil {
		return err
	}
	expected, conditional, err := expectation(request.Header)
	if err != nil {
		return err
	}
	form, err := wire.CloudFormOf(request.Header)
	if err != nil {
		return err
	}
	key, err := appendPreamble(request, form)
	if err != nil {
		return err
	}
	account := s.budgets.bodies.Account(caller.Tenant)
	defer account.Close()
	body, err := s.decoders.ReadBody(request, account)
	if err != nil {
		return err
	}
	var events []domain.NewEvent
	err = s.parseInTurn(request.Context(), caller, body, func() (err error) {
		events, err = form.NewEvents(request.Header, stream, body)
		return err
	})
	if err != nil {
		return err
	}
	if err := account.Grow(int64(len(events)) * decodedEvent); err != nil {
		return err
	}
	batch := domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: expected, Events: events}}}
	identify(key, batch)
	wire.KeepTrace(request.Header, batch)
	appended, err := s.config.Appends.Append(request.Context(), caller.Tenant, batch)
	if err != nil {
		return withCondition(conditional, form.PlaceInRequest(err))
	}
	c.Response().Header().Set("ETag", etag(appended.Streams[0].Version))
	return writeAppended(c, appended, func(b []byte) []byte {
		b = appendAppendedStream(b, appended.Streams[0])
		b = b[:len(b)-1] // reopens the object
		b = append(b, `,"position":`...)
		return append(strconv.AppendInt(b, appended.Position, 10), '}')
	})
}

// append appends events to several streams.
func (s *Server) append(c echo.Context, caller access.Caller) error {
	if err := noExpectation(c.Request().Header, "each stream of the body has its own expectedVersion; give it there"); err != nil {
		return err
	}
	key, err := appendPreamble(c.Request(), wire.NoCloudEvents)
	if err != nil {
		return err
	}
	account := s.budgets.bodies.Account(caller.Tenant)
	defer account.Close()
	body, err := s.decoders.ReadBody(c.Request(), account)
	if err != nil {
		return err
	}
	var request domain.Append
	err = s.parseInTurn(c.Request().Context(), caller, body, func() (err error) {
		request, err = wire.DecodeAppend(body)
		return err
	})
	if err != nil {
		return err
	}
	events := 0
	for i := range request.Streams {
		events += len(request.Streams[i].Events)
	}
	if err := account.Grow(int64(events) * decodedEvent); err != nil {
		return err
	}
	for i := range request.Streams {
		if err := caller.Allow(domain.Category(request.Streams[i].Stream), auth.ScopeEventsAppend); err != nil {
			return problem.At(fmt.Sprintf("streams[%d].stream", i), err)
		}
	}
	if len(request.Conditions) > 0 {
		// Whether a condition holds depends on events of all categories.
		if err := caller.Allow("", auth.ScopeEventsRead); err != nil {
			return problem.At("condition", err)
		}
	}
	identify(key, request)
	wire.KeepTrace(c.Request().Header, request)
	appended, err := s.config.Appends.Append(c.Request().Context(), caller.Tenant, request)
	if err != nil {
		return err
	}
	return writeAppended(c, appended, func(b []byte) []byte {
		b = append(b, `{"position":`...)
		b = strconv.AppendInt(b, appended.Position, 10)
		b = append(b, `,"streams":[`...)
		for i, stream := range appended.Streams {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendAppendedStream(b, stream)
		}
		return append(b, "]}"...)
	})
}

// appendPreamble does the checks that both operations share, and returns the idempotency key.
func appendPreamble(request *http.Request, form wire.CloudForm) (key string, err error) {
	if err := noQuery(request); err != nil {
		return "", err
	}
	if form == wire.NoCloudEvents {
		if err := wire.RequireContentType(request, "application/json"); err != nil {
			return "", err
		}
	}
	return idempotencyKey(request.Header)
}

func noQuery(request *http.Request) error {
	if request.URL.RawQuery != "" {
		return domain.Errorf(domain.CodeInvalidRequest, "query", "unknown parameter; this operation has none")
	}
	return nil
}

// idempotencyKey returns the value of the header, or an empty string if it is absent.
func idempotencyKey(header http.Header) (string, error) {
	keys := header["Idempotency-Key"]
	if len(keys) == 0 {
		return "", nil
	}
	if len(keys) > 1 {
		return "", domain.Errorf(domain.CodeInvalidRequest, "Idempotency-Key", "given %d times; give it once", len(keys))
	}
	return keys[0], wire.CheckIdempotencyKey("Idempotency-Key", keys[0])
}

// expectation reads the expected version of the stream from one of the headers. conditional means that it was a
// standard HTTP header, whose failure is a 412.
func expectation(header http.Header) (expected domain.Expected, conditional bool, err error) {
	expected = domain.Any
	given := 0
	for _, name := range expectations {
		values := header[name]
		if len(values) == 0 {
			continue
		}
		if given += len(values); given > 1 {
			return 0, false, domain.Errorf(domain.CodeInvalidRequest, name, "give one of Expected-Version, If-Match and If-None-Match, once")
		}
		value := values[0]
		switch name {
		case "Expected-Version":
			if expected, err = wire.ParseExpected(name, value); err != nil {
				return 0, false, err
			}
		case "If-Match":
			conditional = true
			expected = domain.Exists
			if value != "*" {
				version, ok := strings.CutPrefix(value, `"`)
				version, closed := strings.CutSuffix(version, `"`)
				number, numberErr := strconv.ParseUint(version, 10, 63)
				if !ok || !closed || numberErr != nil || len(version) > 18 {
					return 0, false, domain.Errorf(domain.CodeInvalidRequest, name, `%q is neither * nor a version in quotes such as "4"`, domain.Clip(value, 40))
				}
				expected = domain.Expected(number)
			}
		case "If-None-Match":
			conditional = true
			expected = domain.None
			if value != "*" {
				return 0, false, domain.Errorf(domain.CodeInvalidRequest, name, "%q is not supported; only * is: the stream must not exist", domain.Clip(value, 40))
			}
		}
	}
	return expected, conditional, nil
}

// expectations are the headers that state the expected version of a stream.
var expectations = [...]string{"Expected-Version", "If-Match", "If-None-Match"}

// noExpectation returns an error if the request has one of these headers, which the operation would ignore. instead
// says what to do.
func noExpectation(header http.Header, instead string) error {
	for _, name := range expectations {
		if len(header.Values(name)) > 0 {
			return domain.Errorf(domain.CodeInvalidRequest, name, "not supported here: %s", instead)
		}
	}
	return nil
}

// asked adapts a version conflict to the header that the client used: after If-Match it is a 412.
func withCondition(conditional bool, err error) error {
	if e, ok := errors.AsType[*domain.Error](err); ok && conditional && e.Code == domain.CodeVersionConflict {
		failed := *e
		failed.Code = domain.CodePreconditionFailed
		return &failed
	}
	return err
}

// identify gives events without id an id derived from the idempotency key and their place in the request.
func identify(key string, request domain.Append) {
	if key == "" {
		return
	}
	for _, stream := range request.Streams {
		for i := range stream.Events {
			if event := &stream.Events[i]; event.ID.IsZero() {
				event.ID = domain.DeriveEventID("idempotency", key, stream.Stream, strconv.Itoa(i))
			}
		}
	}
}

func etag(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// writeAppended answers an append. It builds the body without reflection, which would cost more than the rest of the
// handler.
func writeAppended(c echo.Context, appended domain.Appended, body func([]byte) []byte) error {
	size := 64
	for _, stream := range appended.Streams {
		size += 64 + len(stream.Stream) + 96*len(stream.Events)
	}
	b := append(body(make([]byte, 0, size)), '\n')
	response := c.Response()
	response.Header()["Content-Type"] = []string{"application/json"}
	response.Header()["Content-Length"] = []string{strconv.Itoa(len(b))}
	status := http.StatusCreated
	if appended.Duplicate {
		status = http.StatusOK
	}
	if appended.Violations > 0 {
		response.Header().Set("Schema-Violations", strconv.Itoa(appended.Violations))
	}
	response.WriteHeader(status)
	_, err := response.Write(b)
	return err
}

func appendAppendedStream(b []byte, stream domain.AppendedStream) []byte {
	b = append(b, `{"stream":"`...)
	b = append(b, stream.Stream...) // stream names contain nothing to escape
	b = append(b, `","version":`...)
	b = strconv.AppendInt(b, stream.Version, 10)
	b = append(b, `,"events":[`...)
	for i, event := range stream.Events {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"id":"`...)
		b = append(b, event.ID.String()...)
		b = append(b, `","version":`...)
		b = strconv.AppendInt(b, event.Version, 10)
		b = wire.AppendNumber(b, "position", event.Position)
		b = append(b, '}')
	}
	return append(b, "]}"...)
}
