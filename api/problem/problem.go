// Package problem turns errors into answers: problem details (RFC 9457) with a status, a code and advice.
//
// Kinds is the table of all codes. Of converts any error to one for the client, and Write answers with it. Answer,
// Refuse, RawRefusal and NotReady are for requests that reach no operation.
package problem

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
)

// The codes that only HTTP has, in addition to domain's.
const (
	codeMethodNotAllowed     domain.Code = "method-not-allowed"
	CodeUnsupportedMediaType domain.Code = "unsupported-media-type"
	CodeInternal             domain.Code = "internal"
)

// Kind is the API's description of a code.
type Kind struct {
	Code   domain.Code
	Status int
	Retry  int    // Retry-After in seconds; 0: a retry does not help
	Title  string // the same for each error of the code
	Advice string // for /docs/errors
}

// Kinds returns the table that maps codes to HTTP, in the order of /docs/errors.
func Kinds() []Kind {
	return []Kind{
		{domain.CodeInvalidRequest, 400, 0, "Invalid request", "The field where names the parameter, header or body field; detail says what it must be. Correct the request."},
		{domain.CodeInvalidJSON, 400, 0, "Invalid JSON", "The body is not JSON, or contains what PostgreSQL cannot store: U+0000, lone surrogates, numbers that are too long, or nesting that is too deep. where and the byte offset in detail say where."},
		{domain.CodeDuplicateID, 400, 0, "Duplicate event id in the request", "Give each event of a request its own id."},
		{domain.CodeUnauthenticated, 401, 0, "Authentication required", "Send Authorization: Bearer with a key that has neither expired nor been revoked."},
		{domain.CodeForbidden, 403, 0, "The key does not allow this", "Use a key with one of the scopes that detail names."},
		{domain.CodeTenantSuspended, 403, 0, "The tenant is suspended", "The operator has suspended the tenant or is deleting it."},
		{domain.CodeQuotaExceeded, 403, 0, "Quota exceeded", "detail names the kind and the quota, and quota has how much there is of it, if it is one of the tenant's plan. Remove things of that kind that are no longer needed."},
		{domain.CodeNotFound, 404, 0, "Not found", "Check the path: names are case-sensitive, and each tenant sees only its own data."},
		{codeMethodNotAllowed, 405, 0, "Method not allowed", "The Allow header lists the methods of this path."},
		{domain.CodeVersionConflict, 409, 0, "The stream is not at the expected version", "Another client appended first, or the expectation was wrong; currentVersion gives the stream's version. Read the new events, decide again, and append with the new version."},
		{domain.CodeConditionFailed, 409, 0, "Events match a condition of the append", "failedCondition lists the failed conditions and up to ten of the newest events that they match. Read the log up to its position, decide again, and append with after set to that position."},
		{domain.CodeEventIDConflict, 409, 0, "The event id is already used", "An event with this id and other content exists. An id names one event permanently: give the new event a new id."},
		{domain.CodePartialDuplicate, 409, 0, "Some events of the request already exist", "Repeat the original request unchanged, or send the new events in a separate request."},
		{domain.CodeAlreadyExists, 409, 0, "The name is already used", "Choose another name, or change the existing resource."},
		{domain.CodeRebuildRunning, 409, 0, "A rebuild is running", "A projection has one rebuild at a time: wait for it or cancel it."},
		{domain.CodeConflict, 409, 0, "Conflict with the current state", "detail names the conflict: the state of the resource, or a concurrent change. Read the current state, and repeat the request if you still want the change."},
		{domain.CodeFaulted, 409, 0, "An event cannot be folded", "The definition does not fit an existing event or a command, which detail names; where gives the expression. Change the definition."},
		{domain.CodeEventsRemoved, 409, 0, "Required events were removed", "Retention has removed events or is removing them; detail says which. With acceptLoss, the operation uses the remaining events and reports what was missing."},
		{domain.CodeGone, 410, 0, "The page has expired", "The documents were rebuilt since the first page. Start again with the first page."},
		{domain.CodePreconditionFailed, 412, 0, "If-Match or If-None-Match failed", "The same as version-conflict, for requests with If-Match or If-None-Match."},
		{domain.CodeTooLarge, 413, 0, "Too large", "detail names the limit. Split the request, or store large content elsewhere and append a reference to it."},
		{CodeUnsupportedMediaType, 415, 0, "Unsupported media type or encoding", "detail names the supported ones."},
		{domain.CodeInvalidDefinition, 422, 0, "Invalid definition", "where names the expression; detail gives the line, the column and the error."},
		{domain.CodeSchemaViolation, 422, 0, "An event violates its schema", "Nothing was appended. violations lists up to ten places: where in the request, pointer in the data, the rule and a fix. Correct the events, or put a schema that accepts them."},
		{domain.CodeRefused, 422, 0, "An inline projection cannot fold an event", "Nothing was appended. detail names the projection, the event and the expression; where gives the event's place in the request. Correct the event or the definition."},
		{domain.CodeRejected, 422, 0, "The command is rejected", "A rule of the command does not hold for the stream's state, and nothing was appended. reason is the rule's code, and detail its message."},
		{domain.CodeUnsupported, 422, 0, "Not supported by this installation", "The request is well-formed, but the feature or driver is not available, or the projection's database cannot answer such a query; where and detail name the place."},
		{domain.CodeTooCostly, 422, 0, "The request is too costly", "For a query: declare an index on a field that the filter compares or that comes first in the order, or narrow the filter; with explain=true the operator sees the database's plan. For a fold: detail says what to reduce."},
		{domain.CodeTooManyRequests, 429, 1, "Too many requests of this tenant", "Retry later, with increasing pauses, and not before Retry-After. The fields RateLimit-Policy and RateLimit have the limits of the tenant and of the key."},
		{CodeInternal, 500, 0, "Internal error", "The service's log has the cause under requestId. An append can safely be repeated with the same event ids."},
		{domain.CodeOverloaded, 503, 1, "The service is overloaded", "Retry later, with increasing pauses."},
		{domain.CodeOutcomeUnknown, 503, 1, "The outcome is unknown", "The database did not answer in time. Repeat the request: an append with the same ids or Idempotency-Key is appended once, and an acknowledgement counts once."},
		{domain.CodeUnavailable, 503, 1, "A database is unavailable", "Retry later, with increasing pauses."},
		{domain.CodeIssuerUnavailable, 503, 1, "The token cannot be verified now", "The keys of the token's issuer are not loaded. Retry later, with increasing pauses."},
		{domain.CodeNotCaughtUp, 503, 1, "The position is not reached yet", "Retry, wait longer with timeout, or read without minPosition."},
	}
}

// kindsByCode returns the table by code.
func kindsByCode() map[domain.Code]Kind {
	byCode := make(map[domain.Code]Kind)
	for _, p := range Kinds() {
		byCode[p.Code] = p
	}
	return byCode
}

var byCode = kindsByCode()

// KindOf returns a code's entry in the table.
func KindOf(code domain.Code) Kind {
	if p, ok := byCode[code]; ok {
		return p
	}
	return byCode[CodeInternal]
}

// Of converts any error to a *domain.Error. fault means that the service failed; clients do not see the
// details.
func Of(err error) (_ *domain.Error, fault bool) {
	if e, ok := errors.AsType[*domain.Error](err); ok {
		return e, false
	}
	if e, ok := errors.AsType[*domain.JSONError](err); ok {
		return domain.Errorf(domain.CodeInvalidJSON, "", "%s", e.Error()), false
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return domain.Errorf(domain.CodeTooLarge, "body", "the body has more than %d bytes", e.Limit), false
	}
	if e, ok := errors.AsType[*echo.HTTPError](err); ok {
		switch e.Code {
		case http.StatusNotFound:
			return domain.Errorf(domain.CodeNotFound, "", "unknown path; /docs/api lists the operations"), false
		case http.StatusMethodNotAllowed:
			return domain.Errorf(codeMethodNotAllowed, "", "this path does not support the method; see the Allow header"), false
		case http.StatusUnsupportedMediaType:
			return domain.Errorf(CodeUnsupportedMediaType, "Content-Type", "the body must be application/json"), false
		case http.StatusBadRequest:
			if inner, ok := errors.AsType[*json.UnmarshalTypeError](e.Internal); ok {
				return domain.Errorf(domain.CodeInvalidRequest, inner.Field, "unexpected %s", inner.Value), false
			}
			return domain.Errorf(domain.CodeInvalidRequest, "", "%v", e.Message), false
		}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return domain.Errorf(domain.CodeUnavailable, "", "the request timed out; its outcome is unknown"), false
	}
	return domain.Errorf(CodeInternal, "", "the service's log has the cause under this request's id"), true
}

// Body builds the body of an error response.
func Body(e *domain.Error, request *http.Request, requestID string) openapi.Problem {
	body := Part(e)
	body.RequestId = requestID
	if traceparent := request.Header.Get("Traceparent"); len(traceparent) <= 64 {
		body.Traceparent = traceparent
	}
	return body
}

// Part builds the description of an error within a successful response.
func Part(e *domain.Error) openapi.Problem {
	kind := KindOf(e.Code)
	var violations []openapi.Violation
	for _, v := range e.Violations {
		violations = append(violations, openapi.Violation{Where: v.Where, Pointer: v.Pointer, Rule: v.Rule, Message: v.Message, Fix: v.Fix})
	}
	var quota *openapi.QuotaUse
	if e.Quota != nil {
		quota = &openapi.QuotaUse{Quota: string(e.Quota.Quota), Used: &e.Quota.Used, Limit: &e.Quota.Limit}
	}
	return openapi.Problem{
		Violations: violations, Quota: quota,
		Type: "/docs/errors#" + string(kind.Code), Title: kind.Title, Status: kind.Status, Code: string(kind.Code),
		Detail: e.Message, Where: e.Where, CurrentVersion: e.CurrentVersion, Stream: e.Stream, Reason: e.Reason, FailedCondition: failedCondition(e.FailedCondition),
	}
}

// failedCondition converts the reason of a failed condition; nil for nil.
func failedCondition(failed *domain.FailedCondition) *openapi.FailedCondition {
	if failed == nil {
		return nil
	}
	answer := openapi.FailedCondition{Position: failed.Position, Conditions: failed.Conditions, Events: make([]openapi.ConflictingEvent, len(failed.Events))}
	for i, e := range failed.Events {
		answer.Events[i] = openapi.ConflictingEvent{Id: e.ID.String(), Stream: e.Stream, Version: e.Version, Position: e.Position, Type: e.Type, Tags: e.Tags}
	}
	return &answer
}

// Write answers a request with an error.
func Write(w http.ResponseWriter, request *http.Request, requestID string, e *domain.Error) {
	kind := KindOf(e.Code)
	header := w.Header()
	// Headers that a handler set for its success do not belong to the problem.
	for _, name := range []string{"Etag", "Link", "Location", "Content-Encoding", "Content-Length", "Manifold-Removed-To", "Schema-Violations"} {
		header.Del(name)
	}
	header.Set("Content-Type", "application/problem+json")
	header.Set("Cache-Control", "no-store")
	if kind.Status == http.StatusUnauthorized {
		header.Set("WWW-Authenticate", `Bearer realm="manifold"`)
	}
	if after := RetryAfter(e); after > 0 {
		header.Set("Retry-After", strconv.FormatInt(after, 10))
	}
	var body bytes.Buffer
	encoder := json.NewEncoder(&body)
	encoder.SetEscapeHTML(false) // people read it
	if err := encoder.Encode(Body(e, request, requestID)); err != nil {
		panic(err) // it has only texts and numbers
	}
	w.WriteHeader(kind.Status)
	if request.Method != http.MethodHead {
		_, _ = w.Write(body.Bytes()) // an error means that the client has disconnected
	}
}

// RetryAfter returns the seconds after which a retry may succeed; 0: a retry does not help.
func RetryAfter(e *domain.Error) int64 {
	return max(int64(KindOf(e.Code).Retry), int64((e.RetryAfter+time.Second-1)/time.Second))
}

// At returns an error whose Where is the place in the request that names the category or stream. It does not change
// err, which other requests may share.
func At(where string, err error) error {
	if e, ok := errors.AsType[*domain.Error](err); ok {
		placed := *e
		placed.Where = where
		return &placed
	}
	return err
}

// OfEntry returns the error of a command that is an entry of a body. The entry has fields, named by the prefix and a
// name, where a request with one command has headers.
func OfEntry(prefix string, err error) error {
	e, ok := errors.AsType[*domain.Error](err)
	switch {
	case ok && e.Where == "Authorization":
		return At(prefix+"stream", err)
	case ok && e.Where == "Expected-Version":
		return At(prefix+"expectedVersion", err)
	case ok && e.Where == "query minPosition":
		return At(prefix+"minPosition", err)
	}
	return err
}

// IsRefusal reports whether an error means that a key is invalid, or does not allow what it is used for.
func IsRefusal(err error) bool {
	e, ok := errors.AsType[*domain.Error](err)
	if !ok {
		return false
	}
	switch e.Code {
	case domain.CodeUnauthenticated, domain.CodeForbidden, domain.CodeTenantSuspended:
		return true
	}
	return false
}
