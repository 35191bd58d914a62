package api

import (
	"context"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

type adminKey struct{}

// isAdmin reports whether a request came through AdminHandler.
func isAdmin(ctx context.Context) bool { return ctx.Value(adminKey{}) != nil }

// AdminHandler returns the operator's API: probes, metrics, every operation that takes an operator key, and profiles at
// /debug/pprof/. It refuses tenants' keys, so that no tenant uses the capacity kept free for the operator.
func (s *Server) AdminHandler() http.Handler {
	profiles := s.profiles()
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		request = request.WithContext(context.WithValue(request.Context(), adminKey{}, true))
		if strings.HasPrefix(request.URL.Path, "/debug/pprof/") {
			profiles.ServeHTTP(w, request)
			return
		}
		s.serve(w, request)
	})
}

// profiles serves Go's profiler to holders of an operator key.
func (s *Server) profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		credential, err := s.credentialOf(request, false)
		if err == nil {
			err = credential.Require(auth.ScopeOperator)
		}
		if err != nil {
			s.denied("profile")(request.Context(), err)
			e, _ := problem.Of(err)
			problem.Answer(w, request, s.requestIDs.Next(), e)
			return
		}
		s.known(request.Context())
		mux.ServeHTTP(w, request)
	})
}

var (
	errAdminListener = domain.Errorf(domain.CodeForbidden, "Authorization", "this address is for the operator; tenants' keys work at the service's other address")
	errAdminOnly     = domain.Errorf(domain.CodeForbidden, "Authorization", "the operator's key works only at the admin listener; see admin.listen in the configuration")
)

// admitHere returns an error for a key that this listener does not accept.
func (s *Server) admitHere(ctx context.Context, credential auth.Credential) error {
	switch admin := isAdmin(ctx); {
	case admin && !credential.Operator:
		return errAdminListener
	case !admin && credential.Operator && s.config.AdminOperator:
		return errAdminOnly
	}
	return nil
}
