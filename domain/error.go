package domain

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

// Code lets a client tell errors apart. The set of codes is closed. The API gives each code one HTTP status and one
// documentation page, and a code never changes its meaning.
type Code string

// The codes.
const (
	CodeInvalidRequest     Code = "invalid-request"     // a parameter, header, name or field is invalid
	CodeInvalidJSON        Code = "invalid-json"        // not JSON, or JSON that the log cannot keep
	CodeInvalidDefinition  Code = "invalid-definition"  // a projection or aggregate that cannot work as written
	CodeUnsupported        Code = "unsupported"         // well-formed, but this Manifold or this driver cannot do it
	CodeTooLarge           Code = "too-large"           // an event, request or document above its limit
	CodeTooCostly          Code = "too-costly"          // a query that took longer than allowed
	CodeUnauthenticated    Code = "unauthenticated"     // no key, or an invalid one
	CodeForbidden          Code = "forbidden"           // the key lacks the scope
	CodeTenantSuspended    Code = "tenant-suspended"    // the tenant is suspended or is being deleted
	CodeNotFound           Code = "not-found"           // no such stream, projection, document, ...
	CodeAlreadyExists      Code = "already-exists"      // the name is taken
	CodeVersionConflict    Code = "version-conflict"    // the stream is not at the expected version; CurrentVersion says where it is
	CodeConditionFailed    Code = "condition-failed"    // events match a condition of the append; FailedCondition says which
	CodePreconditionFailed Code = "precondition-failed" // the same, requested by If-Match or If-None-Match
	CodeDuplicateID        Code = "duplicate-id"        // an id occurs twice in one request
	CodeEventIDConflict    Code = "event-id-conflict"   // the id already exists with other content
	CodePartialDuplicate   Code = "partial-duplicate"   // some ids of the request already exist, others do not
	CodeRebuildRunning     Code = "rebuild-running"     // one rebuild at a time for a projection
	CodeConflict           Code = "conflict"            // the current state does not allow it, or it has just changed
	CodeGone               Code = "gone"                // a page token of a build that no longer exists
	CodeEventsRemoved      Code = "events-removed"      // retention removed events that it needs; acceptLoss overrides
	CodeNotCaughtUp        Code = "not-caught-up"       // minPosition was not reached within the time limit
	CodeFaulted            Code = "faulted"             // the projection or aggregate met an event that it cannot fold
	CodeSchemaViolation    Code = "schema-violation"    // an event does not fit the schema of its type; nothing was written
	CodeRefused            Code = "refused"             // an inline projection cannot fold an event; nothing was written
	CodeRejected           Code = "rejected"            // a command's rule does not hold; Reason is the rule's code
	CodeQuotaExceeded      Code = "quota-exceeded"      // the tenant may have no more things of this kind
	CodeTooManyRequests    Code = "too-many-requests"   // too many requests of this tenant are waiting; try again later
	CodeOverloaded         Code = "overloaded"          // too many requests of all tenants are waiting
	CodeOutcomeUnknown     Code = "outcome-unknown"     // it may have been appended; repeat with the same ids to find out
	CodeUnavailable        Code = "unavailable"         // a database does not answer
	CodeIssuerUnavailable  Code = "issuer-unavailable"  // the keys that verify a token are not loaded
)

// Error is an error that a caller can act on. Every other error that a function returns is a fault of the service.
type Error struct {
	Code           Code
	Where          string   // the place in the request, such as "events[3].data" or "Expected-Version"; may be empty
	Message        string   // for people: what is wrong and what to do about it
	CurrentVersion *int64   // with CodeVersionConflict and CodePreconditionFailed: the stream's version
	Stream         string   // the affected stream, if the request has several
	Reason         string   // with CodeRejected: what the command's definition calls it
	Parts          []*Error // the single errors, if Message summarizes several
	Violations     []Violation
	Quota          *QuotaUse     // with CodeQuotaExceeded, if the quota is one of a plan
	RetryAfter     time.Duration // with CodeTooManyRequests, if it is known when a retry may succeed; 0: it is not

	FailedCondition *FailedCondition // with CodeConditionFailed
}

// Violation is one rule of a schema that a value does not satisfy, or that makes a schema incompatible with another
// one.
type Violation struct {
	Where   string // the place in the request, such as "events[3].data"; may be empty
	Pointer string // the place in the value or the schema, as a JSON Pointer; empty: the whole
	Rule    string // the keyword
	Message string // what is wrong
	Fix     string // what to do about it
}

// Placed returns a copy of the error whose places in the request are replaced by what place returns for them.
func (e *Error) Placed(place func(where string) string) *Error {
	placed := *e
	placed.Where = place(e.Where)
	placed.Violations = slices.Clone(e.Violations)
	for i := range placed.Violations {
		placed.Violations[i].Where = place(placed.Violations[i].Where)
	}
	return &placed
}

// Within returns err with a place before its places, if it is an *Error: "definition" makes "definition.on.A" of
// "on.A".
func Within(place string, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	return e.Placed(func(where string) string {
		if where == "" {
			return place
		}
		return place + "." + where
	})
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

// Error returns place and message in one line.
func (e *Error) Error() string {
	if e.Where == "" {
		return e.Message
	}
	return e.Where + ": " + e.Message
}

// ClientMessage returns the text about err that clients may see: the message of an *Error. Other errors, of a database
// or a driver, may contain addresses and logins and belong in the log only.
func ClientMessage(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message
	}
	return "an error that is in the service's log"
}
