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

// caller is who a request acts for.
type caller struct {
	tenant     domain.TenantID // domain.Everyone for the operator
	credential auth.Credential
}

// by is the caller as it is kept beside what it has done.
func (c caller) by() string {
	if c.credential.Operator {
		return "operator"
	}
	return fmt.Sprintf("key %s (%s)", c.credential.KeyID, c.credential.Name)
}

// known says whether the caller has a key; where an operation has no scopes, nobody is known.
func (c caller) known() bool { return c.credential.Operator || c.credential.KeyID != domain.KeyID{} }

// shareOf is whose part of what is shared a request uses.
func (c caller) shareOf() domain.TenantID {
	if !c.known() {
		return nobody
	}
	return c.tenant
}

// allow returns nil where the caller may do one of scopes with the events of a category, and else what an operation is
// refused with. The empty category is all there can be. Whichever operation has x-categories in the contract asks here
// for every category that a request is about, before it does anything.
func (c caller) allow(category string, scopes ...domain.Scope) error {
	return c.credential.RequireFor(category, scopes...)
}

// allowEach is allow for several categories; none are all.
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

// inPlace puts the place in the request that names a category, or its stream, into a refusal.
func inPlace(where string, err error) error {
	if e, ok := errors.AsType[*domain.Error](err); ok {
		e.Where = where
	}
	return err
}

// authenticate finds the request's caller, and refuses one whose key has none of the operation's scopes. Where no scope is
// named, anybody may.
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

// admit refuses a key that has none of the operation's scopes: for every category there can be, unless its handler asks
// for those that matter. So an operation that was not thought of is closed to a key for some categories, not open.
func (o *operation) admit(credential auth.Credential) error {
	if o.byCategory {
		return credential.RequireSome(o.scopes...)
	}
	return credential.Require(o.scopes...)
}

// credentialOf looks at the request's key or, where tickets are taken, at its ticket: a browser's EventSource and WebSocket
// send no header. Without either it is domain.CodeUnauthenticated. More than one are refused: whoever stands between, a proxy that
// looks at the first, say, must not see another caller than the service does.
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
		return auth.Credential{}, domain.Errorf(domain.CodeUnauthenticated, "Authorization", "a key is needed: Authorization: Bearer mfk_...")
	}
	return s.config.Keys.Authenticate(request.Context(), strings.TrimSpace(token))
}

// whileAllowed is for requests that may last: it looks at the caller's key again and again, and when that is refused, since
// it was revoked or its tenant suspended, it ends the context that it returns, with the refusal as the cause. Of a ticket
// the key counts: what was begun with it may go on when it has expired. stop must be called when the request is over.
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
			// That the keys cannot be looked at now is no refusal. What a key may do never changes.
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

// isRefusal says whether an error is that a key may not, or no longer, do what it is used for.
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

// withCaller hands the caller through what is generated, whose handlers take a context and the request's fields only.
// Each takes it out in its first line, and from there on the tenant is an argument.
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
