package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// authenticate returns the request's caller, or an error if its key has none of the operation's scopes. An operation
// without scopes is open to everyone.
func (s *Server) authenticate(request *http.Request, op *operation) (access.Caller, error) {
	if ofAuditLog(request.Context()) && !op.auditLog {
		return access.Caller{}, domain.Errorf(domain.CodeNotFound, "", "%s does not work on audit logs; leave /audit out", op.id)
	}
	if len(op.scopes) == 0 {
		return access.Caller{}, nil
	}
	credential, err := s.credentialOf(request, op.query["ticket"])
	if err != nil {
		return access.Caller{}, err
	}
	caller, err := s.callerOf(request.Context(), credential)
	if err != nil {
		return access.Caller{}, &auth.DenialError{Credential: credential, Err: err}
	}
	if err := op.admit(caller.Credential); err != nil {
		return access.Caller{}, &auth.DenialError{Credential: credential, Err: err}
	}
	return caller, nil
}

// callerOf returns the caller of a request: for the log of its tenant or, if the path says so, for the audit log.
// It returns an error for a credential that this listener does not accept, or that may not read the audit log.
func (s *Server) callerOf(ctx context.Context, credential auth.Credential) (access.Caller, error) {
	if err := s.admitHere(ctx, credential); err != nil {
		return access.Caller{}, err
	}
	if !ofAuditLog(ctx) {
		return access.Caller{Tenant: credential.Tenant, Credential: credential}, nil
	}
	granted, err := credential.ForAudit()
	return access.Caller{Tenant: credential.Tenant.AuditLog(), Credential: granted}, err
}

// admit returns an error for a key without any of the operation's scopes. The key must have the scope for all
// categories, unless the handler itself checks the relevant ones. So a key for some categories cannot use an operation
// that ignores categories.
func (o *operation) admit(credential auth.Credential) error {
	if o.byCategory {
		return credential.RequireSome(o.scopes...)
	}
	return credential.Require(o.scopes...)
}

// credentialOf authenticates the request by its key or, if tickets is set, by its ticket, since a browser's EventSource
// and WebSocket cannot send a header. Without either it returns domain.CodeUnauthenticated. It refuses several
// credentials: otherwise a proxy that checks only the first could see another caller than the service does.
func (s *Server) credentialOf(request *http.Request, tickets bool) (auth.Credential, error) {
	headers, given := request.Header["Authorization"], 0
	query := request.URL.Query()
	if tickets {
		given = len(query["ticket"])
	}
	if len(headers)+given > 1 {
		what := "it is given more than once; send one key"
		if len(headers) == 1 {
			what = "there is a ticket as well; send one of them"
		}
		return auth.Credential{}, domain.Errorf(domain.CodeInvalidRequest, "Authorization", "%s", what)
	}
	if given == 1 {
		return s.config.Keys.AuthenticateTicket(request.Context(), query.Get("ticket"))
	}
	header := ""
	if len(headers) == 1 {
		header = headers[0]
	}
	kind, token, ok := strings.Cut(header, " ")
	if !ok || !strings.EqualFold(kind, "Bearer") || token == "" {
		missing := "key missing"
		if query.Has("ticket") {
			missing = "key missing, and this operation takes no ticket"
		}
		return auth.Credential{}, domain.Errorf(domain.CodeUnauthenticated, "Authorization", "%s; send Authorization: Bearer mfk_...",
			missing)
	}
	return s.config.Keys.Authenticate(request.Context(), strings.TrimSpace(token))
}
