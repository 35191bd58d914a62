package openapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/labstack/echo/v4"
)

// Response is an operation's answer.
type Response struct {
	status int
	header http.Header
	body   any // nil: no body
}

// OK returns an answer with the status 200.
func OK(body any) *Response { return &Response{status: http.StatusOK, body: body} }

// Created returns an answer with the status 201.
func Created(body any) *Response { return &Response{status: http.StatusCreated, body: body} }

// CreatedIf returns Created if created is set, and OK otherwise.
func CreatedIf(created bool, body any) *Response {
	if created {
		return Created(body)
	}
	return OK(body)
}

// Accepted returns an answer with the status 202.
func Accepted(body any) *Response { return &Response{status: http.StatusAccepted, body: body} }

// NoContent returns an answer with the status 204.
func NoContent() *Response { return &Response{status: http.StatusNoContent} }

// With sets a header unless its value is empty, and returns the answer.
func (r *Response) With(header, value string) *Response {
	if value != "" {
		if r.header == nil {
			r.header = http.Header{}
		}
		r.header.Set(header, value)
	}
	return r
}

// answer decodes a request, calls its operation and sends the answer.
func answer[C, R any](
	c echo.Context, caller C, decode func(echo.Context) (R, error), operation func(context.Context, C, R) (*Response, error),
) error {
	request, err := decode(c)
	if err != nil {
		return err
	}
	response, err := operation(c.Request().Context(), caller, request)
	if err != nil {
		return err
	}
	return response.Send(c)
}

// Send writes the answer, but nothing of a body that is not valid JSON. The characters <, > and & stay as they are,
// since people read answers.
func (r *Response) Send(c echo.Context) error {
	var text bytes.Buffer
	header := c.Response().Header()
	if r.body != nil {
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(r.body); err != nil {
			return err
		}
		header.Set("Content-Type", "application/json")
	}
	for name, values := range r.header {
		header[name] = values
	}
	c.Response().WriteHeader(r.status)
	_, err := text.WriteTo(c.Response())
	return err
}

func invalidParameter(name string, err error) error {
	return echo.NewHTTPError(http.StatusBadRequest, fmt.Sprintf("invalid parameter %s: %s", name, err))
}

// header returns a header of the request; nil if it is missing.
func header(ctx echo.Context, name string) (*string, error) {
	switch values := ctx.Request().Header.Values(name); len(values) {
	case 0:
		return nil, nil
	case 1:
		return &values[0], nil
	default:
		return nil, invalidParameter(name, errors.New("it is given several times"))
	}
}
