package domain

import (
	"errors"
	"fmt"
)

// Code is a closed set: what a client can tell errors apart by. The API gives each one HTTP status and one
// documentation page; a code never changes its meaning.
type Code string

// The codes.
const (
	CodeInvalidRequest     Code = "invalid-request"     // a parameter, header, name or field is not as it must be
	CodeInvalidJSON        Code = "invalid-json"        // not JSON, or JSON that the log cannot keep
	CodeInvalidDefinition  Code = "invalid-definition"  // a projection or aggregate that cannot work as written
	CodeUnsupported        Code = "unsupported"         // well-formed, but this Manifold or this driver cannot do it
	CodeTooLarge           Code = "too-large"           // an event, request or document above its limit
	CodeTooCostly          Code = "too-costly"          // a query that took longer than a query may
	CodeUnauthenticated    Code = "unauthenticated"     // no key, or one that does not work
	CodeForbidden          Code = "forbidden"           // the key lacks the scope
	CodeTenantSuspended    Code = "tenant-suspended"    // the tenant is suspended or is being deleted
	CodeNotFound           Code = "not-found"           // no such stream, projection, document, ...
	CodeAlreadyExists      Code = "already-exists"      // the name is taken
	CodeVersionConflict    Code = "version-conflict"    // the stream is not at the expected version; CurrentVersion says where it is
	CodePreconditionFailed Code = "precondition-failed" // the same, asked by If-Match or If-None-Match
	CodeDuplicateID        Code = "duplicate-id"        // one id twice in one request
	CodeEventIDConflict    Code = "event-id-conflict"   // the id is there already, with other content
	CodePartialDuplicate   Code = "partial-duplicate"   // some ids of the request are there already, others are not
	CodeRebuildRunning     Code = "rebuild-running"     // one rebuild at a time for a projection
	CodeConflict           Code = "conflict"            // the state of the thing stands against it, or somebody else has changed it just now
	CodeGone               Code = "gone"                // a page token of a build that is no longer there
	CodeEventsRemoved      Code = "events-removed"      // retention has removed events that it needs; acceptLoss does without them
	CodeNotCaughtUp        Code = "not-caught-up"       // minPosition was not reached within the time limit
	CodeFaulted            Code = "faulted"             // the projection or aggregate met an event that it cannot fold
	CodeRefused            Code = "refused"             // an inline projection cannot fold an event of the append: nothing of it was written
	CodeQuotaExceeded      Code = "quota-exceeded"      // the tenant has as many things of a kind as it may have
	CodeTooManyRequests    Code = "too-many-requests"   // this tenant has too much waiting; try again later
	CodeOverloaded         Code = "overloaded"          // the service as a whole has too much waiting
	CodeOutcomeUnknown     Code = "outcome-unknown"     // it may have been appended; repeat with the same ids to find out
	CodeUnavailable        Code = "unavailable"         // a database does not answer
)

// Error is an error that a caller can act on. Everything else that a function returns is a fault of the service.
type Error struct {
	Code           Code
	Where          string   // the place in the request, such as "events[3].data" or "Expected-Version"; may be empty
	Message        string   // what was wrong and what to do about it, for people
	CurrentVersion *int64   // with CodeVersionConflict and CodePreconditionFailed: the stream's version
	Stream         string   // the stream meant, where a request has several
	Parts          []*Error // where Message sums several errors up: each by itself
}

// Errorf returns an *Error; where may be empty.
func Errorf(code Code, where, format string, args ...any) *Error {
	return &Error{Code: code, Where: where, Message: fmt.Sprintf(format, args...)}
}

// IsCode reports whether err is, or wraps, an *Error with the given code.
func IsCode(err error, code Code) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Code == code
}

// Error gives place and message in one line.
func (e *Error) Error() string {
	if e.Where == "" {
		return e.Message
	}
	return e.Where + ": " + e.Message
}

// ClientMessage is what clients are told of an error: the message of an *Error. What a database or a driver says by itself
// may name addresses and logins: that is for the log.
func ClientMessage(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message
	}
	return "an error that the service's log tells"
}
