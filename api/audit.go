package api

import (
	"bytes"
	"context"
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

// routeAudit returns a request for an audit log as one for a log, which ofAuditLog recognizes. Links in its answer have the
// path of the audit log. Other requests stay as they are.
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
	origin := audit.Origin{RequestID: c.Response().Header().Get(problem.HeaderRequestID), UserAgent: audit.Clean(request.UserAgent())}
	if address := s.address(request.Context()); address.IsValid() {
		origin.Address = address.String()
	}
	if traceparent := request.Header.Get("Traceparent"); len(traceparent) <= 64 {
		origin.Traceparent = audit.Clean(traceparent)
	}
	return origin
}

// run calls the handler. An administrative action is recorded in the audit log before, and again with its outcome after.
func (e *endpoint) run(c echo.Context, caller access.Caller) error {
	if e.op.audited == nil {
		return e.handle(c, caller)
	}
	body, err := bodyText(c.Request())
	if err != nil {
		return err
	}
	action := audit.Action{
		Caller: caller.Credential.Tenant, Owners: e.owners(c, caller), Category: e.op.audited.category, Operation: e.op.id, Targets: pathParams(c),
		Actor: actorOf(caller.Credential), Origin: e.origin(c), Request: audit.Mask(body), Before: e.state(c, caller),
	}
	begun, err := e.config.Audit.Begin(c.Request().Context(), action)
	switch refused, known := errors.AsType[*domain.Error](err); {
	case err == nil:
	case known && refused.Code == domain.CodeTooManyRequests:
		return err
	default:
		e.log.Warn("an action was refused, because it could not be recorded", "requestId", action.Origin.RequestID, "operation", e.op.id, "error", err)
		return domain.Errorf(domain.CodeUnavailable, "", "the audit log cannot be written, so nothing was changed; retry later")
	}
	answer := &answerCopy{ResponseWriter: c.Response().Writer}
	c.Response().Writer = answer
	err = e.handle(c, caller)
	c.Response().Writer = answer.ResponseWriter
	outcome := audit.Outcome{Type: audit.TypeDone, Status: c.Response().Status}
	if err != nil {
		refused, _ := problem.Of(err)
		outcome.Type, outcome.Status, outcome.Code = audit.TypeRefused, problem.KindOf(refused.Code).Status, string(refused.Code)
		if outcome.Status >= http.StatusInternalServerError {
			outcome.Type = audit.TypeUnknown
		}
	} else if outcome.After = e.state(c, caller); e.op.audited.state == "" {
		outcome.After = audit.Mask(answer.text.Bytes())
	}
	begun.End(c.Request().Context(), outcome)
	return err
}

// owners returns in whose audit logs an action is recorded: those of the caller's tenant, or of operators and of the
// tenant that the path names, if that exists.
func (e *endpoint) owners(c echo.Context, caller access.Caller) []domain.TenantID {
	owners := []domain.TenantID{caller.Credential.Tenant}
	named, err := domain.ParseTenantID(pathParams(c)["tenantId"])
	if err != nil || !caller.Credential.Operator {
		return owners
	}
	if tenant, err := e.config.Tenants.Tenant(c.Request().Context(), named); err == nil && (tenant.State == domain.TenantActive || tenant.State == domain.TenantSuspended) {
		owners = append(owners, tenant.ID)
	}
	return owners
}

// stateTimeout limits a look at a thing before or after an action on it.
const stateTimeout = 5 * time.Second

// state returns the thing that an action concerns, as the operation of the contract that reads it would show it to the
// caller. It is nil if there is nothing, or if it cannot be read.
func (e *endpoint) state(c echo.Context, caller access.Caller) []byte {
	reader := e.endpoints[e.op.audited.state]
	if reader == nil {
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
	return audit.Mask(shown.text.Bytes())
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
	text bytes.Buffer
}

// maxCopied limits how much of an answer is kept; what is longer is not recorded.
const maxCopied = 1 << 20

func (a *answerCopy) Write(text []byte) (int, error) {
	if a.text.Len()+len(text) <= maxCopied {
		a.text.Write(text)
	}
	return a.ResponseWriter.Write(text)
}

// Unwrap is for http.ResponseController.
func (a *answerCopy) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// discard is an answer that nobody gets.
type discard struct{}

func (discard) Header() http.Header            { return http.Header{} }
func (discard) Write(text []byte) (int, error) { return len(text), nil }
func (discard) WriteHeader(int)                {}

// denied returns what counts the refused requests of an operation for the audit logs. A request whose caller is not certain
// counts for the operators' log, and so does that of a suspended tenant, which may be erased before it is recorded.
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
			if refused.Code != domain.CodeTenantSuspended {
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

// network returns the prefix of an address by which denied requests are counted, so that one client with many addresses is
// one of few.
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
