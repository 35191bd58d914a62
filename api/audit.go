package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/audit"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// auditPath precedes the paths of operations on audit logs.
const auditPath = "/audit"

type auditKey struct{}

// ofAuditLog reports whether a request concerns the audit log of its caller's tenant, instead of its log.
func ofAuditLog(ctx context.Context) bool { return ctx.Value(auditKey{}) != nil }

// routeAudit returns a request for an audit log as one for a log, which ofAuditLog recognizes. Links in its answer have
// the path of the audit log. Other requests stay as they are.
func routeAudit(request *http.Request) *http.Request {
	if !strings.HasPrefix(request.URL.Path, auditPath+"/v1/") {
		return request
	}
	request = request.WithContext(context.WithValue(request.Context(), auditKey{}, true))
	path := *request.URL
	path.Path, path.RawPath = strings.TrimPrefix(path.Path, auditPath), strings.TrimPrefix(path.RawPath, auditPath)
	request.URL = &path
	return request
}

// linkAudit makes the links of an answer lead to the audit log.
func linkAudit(c echo.Context) {
	c.Response().Before(func() {
		header := c.Response().Header()
		if link := header.Get("Link"); strings.HasPrefix(link, "</v1/") {
			header.Set("Link", "<"+auditPath+link[1:])
		}
		if location := header.Get("Location"); strings.HasPrefix(location, "/v1/") {
			header.Set("Location", auditPath+location)
		}
	})
}

// actorOf returns the caller of a request as audit logs name it.
func actorOf(of auth.Credential) audit.Actor {
	actor := audit.Actor{Kind: "key", Name: audit.Clean(of.Name), Issuer: of.Issuer, Subject: audit.Clean(of.Subject), Role: string(of.Role)}
	switch {
	case of.IsToken():
		actor.Kind = "token"
	case of.Operator:
		actor.Kind = "operator"
	default:
		actor.Key = of.KeyID.String()
	}
	return actor
}

// address returns the address of a request's client, or the zero Addr.
func (s *Server) address(ctx context.Context) netip.Addr {
	if s.config.Address == nil {
		return netip.Addr{}
	}
	return s.config.Address(ctx)
}

// origin says where a request came from.
func (s *Server) origin(c echo.Context) audit.Origin {
	request := c.Request()
	origin := audit.Origin{RequestID: c.Response().Header().Get(problem.HeaderRequestID), UserAgent: audit.MaskText(request.UserAgent())}
	if address := s.address(request.Context()); address.IsValid() {
		origin.Address = address.String()
	}
	if traceparent := request.Header.Get("Traceparent"); len(traceparent) <= 64 {
		origin.Traceparent = audit.MaskText(traceparent)
	}
	return origin
}

// run calls the handler. An administrative action is recorded in the audit log before, and its outcome after.
func (e *endpoint) run(c echo.Context, caller access.Caller) error {
	if e.op.audited == nil {
		return e.handle(c, caller)
	}
	action, err := e.begin(c, caller)
	if err != nil {
		return err
	}
	answer := &answerCopy{ResponseWriter: c.Response().Writer}
	c.Response().Writer = answer
	outcome := audit.Outcome{Type: audit.TypeUnknown, Status: http.StatusInternalServerError, Code: string(problem.CodeInternal)} // of a panic
	defer func() {
		c.Response().Writer = answer.ResponseWriter
		action.End(c.Request().Context(), outcome)
	}()
	err = e.handle(c, caller)
	if outcome = outcomeOf(c.Response().Status, err); outcome.Type == audit.TypeUnknown {
		return err
	}
	switch after := e.state(c, caller); {
	case e.op.audited.state == "" && err == nil:
		outcome.After = answer.masked()
	case err == nil || !bytes.Equal(after, action.Before): // a refused action may have taken effect in part
		outcome.After = after
	}
	return err
}

// begin records that an action is about to be tried. If it returns an error, the action must not be tried.
func (e *endpoint) begin(c echo.Context, caller access.Caller) (*audit.Action, error) {
	body, err := bodyText(c.Request())
	if err != nil {
		return nil, err
	}
	action := audit.Action{
		Caller: caller.Credential.Tenant, Category: e.op.audited.category, Operation: e.op.id, Targets: make(map[string]string), Query: make(map[string]string),
		Actor: actorOf(caller.Credential), Origin: e.origin(c), Request: audit.Mask(body),
	}
	for name, value := range pathParams(c) {
		action.Targets[name] = audit.MaskText(value)
	}
	if subject := pathParams(c)[subjectParam]; subject != "" { // which audit logs never have
		action.Targets[subjectParam], action.Request = "***", audit.Hide(action.Request, subject)
	}
	for name := range c.QueryParams() { // which the contract declares
		action.Query[name] = audit.MaskText(c.QueryParam(name))
	}
	var begun *audit.Action
	if action.Owners, err = e.owners(c, caller); err == nil {
		action.Before = e.state(c, caller)
		begun, err = e.config.Audit.Begin(c.Request().Context(), action)
	}
	if err == nil || domain.IsCode(err, domain.CodeTooManyRequests) {
		return begun, err
	}
	e.log.Warn("an action was refused, because it could not be recorded", "requestId", action.Origin.RequestID, "operation", e.op.id, "error", err)
	return nil, domain.Errorf(domain.CodeUnavailable, "", "the audit log cannot be written, so nothing was changed; retry later")
}

// outcomeOf returns the outcome of an action whose handler has returned err, or has answered with a status.
func outcomeOf(status int, err error) audit.Outcome {
	if err == nil {
		return audit.Outcome{Type: audit.TypeDone, Status: status}
	}
	refused, _ := problem.Of(err)
	outcome := audit.Outcome{Type: audit.TypeRefused, Status: problem.KindOf(refused.Code).Status, Code: string(refused.Code)}
	if outcome.Status >= http.StatusInternalServerError {
		outcome.Type = audit.TypeUnknown
	}
	return outcome
}

// owners returns in whose audit logs an action is recorded: those of the caller's tenant, or of operators and of the
// tenant that the path or the query names, if that exists.
func (e *endpoint) owners(c echo.Context, caller access.Caller) ([]domain.TenantID, error) {
	owners := []domain.TenantID{caller.Credential.Tenant}
	named, err := domain.ParseTenantID(cmp.Or(pathParams(c)["tenantId"], c.QueryParam("tenant")))
	if err != nil || !caller.Credential.Operator {
		return owners, nil
	}
	tenant, err := e.config.Tenants.Tenant(c.Request().Context(), named)
	switch {
	case domain.IsCode(err, domain.CodeNotFound):
		return owners, nil
	case err != nil:
		return nil, err
	case tenant.State == domain.TenantActive || tenant.State == domain.TenantSuspended:
		owners = append(owners, tenant.ID)
	}
	return owners, nil
}

// stateTimeout limits a look at a thing before or after an action on it.
const stateTimeout = 5 * time.Second

// state returns the thing that an action concerns, as the operation of the contract that reads it would show it to the
// caller. It is nil if there is nothing, if the caller may not read it, or if it cannot be read.
func (e *endpoint) state(c echo.Context, caller access.Caller) json.RawMessage {
	reader := e.endpoints[e.op.audited.state]
	if reader == nil || reader.op.admit(caller.Credential) != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), stateTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "/", http.NoBody)
	if err != nil {
		return nil
	}
	shown := &answerCopy{ResponseWriter: discard{}}
	look := e.echo.NewContext(request, shown)
	look.SetParamNames(c.ParamNames()...)
	look.SetParamValues(c.ParamValues()...)
	if err := problem.Guarded(func() error { return reader.handle(look, caller) }); err != nil || look.Response().Status != http.StatusOK {
		return nil
	}
	return shown.masked()
}

// bodyText returns the body of a request, which can still be read afterwards. It was read for the check against the
// contract, so it is in memory.
func bodyText(request *http.Request) ([]byte, error) {
	if request.Body == nil || request.ContentLength <= 0 {
		return nil, nil
	}
	var text bytes.Buffer
	if _, err := text.ReadFrom(request.Body); err != nil {
		return nil, fmt.Errorf("read the body for the audit log: %w", err)
	}
	setBody(request, text.Bytes())
	return text.Bytes(), nil
}

// answerCopy keeps the beginning of an answer.
type answerCopy struct {
	http.ResponseWriter
	text  bytes.Buffer
	bytes int
}

func (a *answerCopy) Write(text []byte) (int, error) {
	a.text.Write(text[:min(len(text), max(0, audit.MaxMasked-a.bytes))])
	a.bytes += len(text)
	return a.ResponseWriter.Write(text)
}

// masked returns the answer as an event may contain it.
func (a *answerCopy) masked() json.RawMessage {
	if a.bytes > audit.MaxMasked {
		return audit.Cut(a.bytes)
	}
	return audit.Mask(a.text.Bytes())
}

// Unwrap is for http.ResponseController.
func (a *answerCopy) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// discard takes an answer that is not sent.
type discard struct{}

func (discard) Header() http.Header            { return http.Header{} }
func (discard) Write(text []byte) (int, error) { return len(text), nil }
func (discard) WriteHeader(int)                {}

// denied returns what counts the refused requests of an operation for the audit logs. A request whose caller is not
// certain counts for the operators' log, and so does that of a tenant that is not active, which may be erased before it
// is recorded.
func (s *Server) denied(operation string) func(ctx context.Context, err error) {
	return func(ctx context.Context, err error) {
		if !problem.IsRefusal(err) {
			return
		}
		refused, _ := problem.Of(err)
		denial := audit.Denial{Operation: operation, Code: string(refused.Code), Network: network(s.address(ctx))}
		owner := domain.Everyone
		if by, certain := errors.AsType[*auth.DenialError](err); certain {
			denial.Actor = actorOf(by.Credential)
			if !by.Inactive && refused.Code != domain.CodeTenantSuspended {
				owner = by.Credential.Tenant
			}
		}
		s.config.Audit.Denied(owner, denial)
	}
}

// asDenied says whose request a handler has refused.
func asDenied(err error, caller access.Caller) error {
	if _, already := errors.AsType[*auth.DenialError](err); already || !caller.Known() || !problem.IsRefusal(err) {
		return err
	}
	return &auth.DenialError{Credential: caller.Credential, Err: err}
}

// network returns the prefix of an address by which denied requests are counted, so that one client with many addresses
// is one of few.
func network(address netip.Addr) string {
	bits := 64
	if address.Is4() {
		bits = 24
	}
	prefix, err := address.Prefix(bits)
	if err != nil {
		return ""
	}
	return prefix.String()
}
