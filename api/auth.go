package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

// caller identifies the client for which a request acts.
type caller struct {
	tenant     domain.TenantID // domain.Everyone for the operator
	credential auth.Credential
}

// by returns the caller's name for records of its actions.
func (c caller) by() string {
	if c.credential.Operator {
		return "operator"
	}
	return fmt.Sprintf("key %s (%s)", c.credential.KeyID, c.credential.Name)
}

// known reports whether the caller was authenticated. Callers of operations without scopes are not.
func (c caller) known() bool { return c.credential.Operator || c.credential.KeyID != domain.KeyID{} }

// shareOf returns the tenant whose share of the budgets a request uses.
func (c caller) shareOf() domain.TenantID {
	if !c.known() {
		return nobody
	}
	return c.tenant
}

// allow returns nil if the caller has one of scopes for the events of a category, and otherwise the error for the
// client. An empty category means all categories. A handler whose operation has x-categories in the contract must call
// it for every category of the request, before it does anything.
func (c caller) allow(category string, scopes ...domain.Scope) error {
	return c.credential.RequireFor(category, scopes...)
}

// allowEach is allow for several categories; none means all.
func (c caller) allowEach(categories []string, scopes ...domain.Scope) error {
	if len(categories) == 0 {
		return c.allow("", scopes...)
	}
	for _, category := range categories {
		if err := c.allow(category, scopes...); err != nil {
			return err
		}
	}
	return nil
}

// inPlace returns an error whose Where is the place in the request that names the category or stream. It does not change
// err, which other requests may have as well.
func inPlace(where string, err error) error {
	if e, ok := errors.AsType[*domain.Error](err); ok {
		placed := *e
		placed.Where = where
		return &placed
	}
	return err
}

// authenticate returns the request's caller, or an error if its key has none of the operation's scopes. An operation
// without scopes is open to everyone.
func (s *Server) authenticate(request *http.Request, op *operation) (caller, error) {
	if len(op.scopes) == 0 {
		return caller{}, nil
	}
	credential, err := s.credentialOf(request, op.query["ticket"])
	if err != nil {
		return caller{}, err
	}
	if err := s.admitHere(request.Context(), credential); err != nil {
		return caller{}, err
	}
	if err := op.admit(credential); err != nil {
		return caller{}, err
	}
	return caller{tenant: credential.Tenant, credential: credential}, nil
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
		return auth.Credential{}, domain.Errorf(domain.CodeUnauthenticated, "Authorization", "key missing; send Authorization: Bearer mfk_...")
	}
	return s.config.Keys.Authenticate(request.Context(), strings.TrimSpace(token))
}

// whileAllowed is for long-lived requests. It checks the caller's key periodically, and ends the returned context when
// the key has been revoked or its tenant suspended. The cause of the context is the error for the client. A ticket is
// checked by its key, so a request may continue after the ticket expires. The caller must call stop when the request is
// over.
func (s *Server) whileAllowed(ctx context.Context, caller caller) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	if !caller.known() {
		return ctx, func() { cancel(nil) }
	}
	var looking sync.WaitGroup
	looking.Go(func() {
		tick := time.NewTicker(s.recheck)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			// A failure to check the key is not a refusal. A key's grants never change.
			if _, err := s.config.Keys.Again(ctx, caller.credential); isRefusal(err) {
				cancel(err)
				return
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		looking.Wait()
	}
}

// isRefusal reports whether an error means that a key is invalid, or does not allow what it is used for.
func isRefusal(err error) bool {
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

type callerKey struct{}

// withCaller passes the caller through generated code, whose handlers take only a context and the request's fields.
// Each handler extracts the caller in its first line and from there on passes the tenant as an argument.
func withCaller(ctx context.Context, caller caller) context.Context {
	return context.WithValue(ctx, callerKey{}, caller)
}

func callerOf(ctx context.Context) caller {
	found, ok := ctx.Value(callerKey{}).(caller)
	if !ok {
		panic("a generated handler was called without a caller")
	}
	return found
}
