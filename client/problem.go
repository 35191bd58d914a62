package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// ProblemError is the service's refusal of a request. Its Code says what is wrong; /docs/errors of a service says what
// to do about each.
type ProblemError struct{ Problem }

// Error returns the place, the reason, and the code.
func (e *ProblemError) Error() string {
	text := e.Detail
	if text == "" {
		text = e.Title
	}
	if e.Where != "" {
		text = e.Where + ": " + text
	}
	text += " (" + e.Code + ")"
	for _, v := range e.Violations {
		text += fmt.Sprintf("\n  %s%s: %s; %s", v.Where, v.Pointer, v.Message, v.Fix)
	}
	return text
}

// permanent reports whether a repetition cannot help.
func (e *ProblemError) permanent() bool {
	return e.Status < http.StatusInternalServerError && e.Status != http.StatusTooManyRequests
}

// Read decodes the JSON answer of one of Client's methods:
//
//	stream, err := client.Read[client.StreamMetadata](c.GetStreamMetadata(ctx, "order-1"))
//
// A refusal is a *ProblemError. An answer without a body leaves T as it is.
func Read[T any](response *http.Response, err error) (T, error) {
	var answer T
	if err != nil {
		return answer, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return answer, fmt.Errorf("read the answer: %w", err)
	case response.StatusCode >= http.StatusMultipleChoices && response.StatusCode != http.StatusNotModified:
		return answer, refusal(response.StatusCode, body)
	case len(body) == 0:
		return answer, nil
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return answer, fmt.Errorf("read the answer: %w", err)
	}
	return answer, nil
}

// refusal returns the error for an answer with an error status. One without a problem comes from a proxy.
func refusal(status int, body []byte) *ProblemError {
	var e ProblemError
	if json.Unmarshal(body, &e.Problem) == nil && e.Code != "" {
		return &e
	}
	e.Problem = Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Code: "unavailable",
		Detail: fmt.Sprintf("the service answered %d: %.200q", status, body),
	}
	switch {
	case status == http.StatusUnauthorized:
		e.Code = "unauthenticated"
	case status == http.StatusForbidden:
		e.Code = "forbidden"
	case status == http.StatusNotFound:
		e.Code = "not-found"
	case status == http.StatusTooManyRequests:
		e.Code = "too-many-requests"
	case status < http.StatusInternalServerError:
		e.Code = "invalid-request"
	}
	return &e
}
