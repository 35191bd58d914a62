package api

import (
	"context"
	"net/url"
	"slices"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
)

// SignIn says how people get a token of an issuer. All of it is public.
type SignIn struct {
	Name          string // of the issuer, as in the configuration
	Title         string // for people; empty: the name
	Issuer        string // its URL
	ConsoleClient string // the id of the console's client; empty: none
	CLIClient     string // the id of the client of manifold login; empty: none
	Scopes        []string
	Parameters    map[string]string
}

func (s operations) GetSignIn(context.Context, access.Caller, openapi.GetSignInRequest) (*openapi.Response, error) {
	answer := openapi.SignIn{Issuers: []openapi.SignInIssuer{}}
	for _, of := range s.config.SignIns {
		endpoints, known := s.config.Tokens.Endpoints(of.Name)
		if !known {
			continue // it has never answered
		}
		shown := openapi.SignInIssuer{
			Name: of.Name, Title: of.Title, Issuer: of.Issuer, ConsoleClient: of.ConsoleClient, CliClient: of.CLIClient, Scopes: of.Scopes, Parameters: of.Parameters,
			AuthorizationEndpoint: endpoints.Authorization, TokenEndpoint: endpoints.Token, DeviceAuthorizationEndpoint: endpoints.Device,
		}
		if shown.Title == "" {
			shown.Title = of.Name
		}
		if len(shown.Scopes) == 0 {
			shown.Scopes = []string{"openid"}
		}
		answer.Issuers = append(answer.Issuers, shown)
	}
	return openapi.OK(answer).With("Cache-Control", "no-store"), nil
}

// signInOrigins returns the origins that the console calls to get a token.
func (s *Server) signInOrigins() []string {
	var origins []string
	for _, of := range s.config.SignIns {
		endpoints, _ := s.config.Tokens.Endpoints(of.Name)
		if at, err := url.Parse(endpoints.Token); err == nil && of.ConsoleClient != "" && at.Host != "" {
			origins = append(origins, at.Scheme+"://"+at.Host)
		}
	}
	slices.Sort(origins)
	return slices.Compact(origins)
}
