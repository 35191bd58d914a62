package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/oauth2"

	"github.com/manifold-es/manifold/auth/oidc"
	"github.com/manifold-es/manifold/client"
)

// login is a sign-in with an issuer that a profile keeps.
type login struct {
	Issuer       string    `yaml:"issuer"` // its name at the service
	Client       string    `yaml:"client"`
	TokenURL     string    `yaml:"tokenUrl"`
	Token        string    `yaml:"token"`
	RefreshToken string    `yaml:"refreshToken,omitempty"`
	ExpiresAt    time.Time `yaml:"expiresAt,omitempty"` // zero: the issuer has not said
}

// expiresWithin is how long before its expiry a token is replaced.
const expiresWithin = 30 * time.Second

// signInTimeout limits one request to an issuer.
const signInTimeout = 30 * time.Second

func (l *login) expired() bool {
	return !l.ExpiresAt.IsZero() && time.Until(l.ExpiresAt) < expiresWithin
}

// update takes the tokens of an issuer's answer.
func (l *login) update(token *oauth2.Token) {
	l.Token, l.ExpiresAt = token.AccessToken, token.Expiry.UTC().Truncate(time.Second)
	l.RefreshToken = cmp.Or(token.RefreshToken, l.RefreshToken)
	if token.Expiry.IsZero() {
		l.ExpiresAt = time.Time{}
	}
}

// refresh replaces an expired token at the issuer.
func (l *login) refresh(ctx context.Context) error {
	if l.RefreshToken == "" {
		return errors.New("the sign-in has expired: run manifold login again")
	}
	ctx, cancel := withIssuerClient(ctx)
	defer cancel()
	config := oauth2.Config{ClientID: l.Client, Endpoint: oauth2.Endpoint{TokenURL: l.TokenURL, AuthStyle: oauth2.AuthStyleInParams}}
	token, err := config.TokenSource(ctx, &oauth2.Token{RefreshToken: l.RefreshToken}).Token()
	if err != nil {
		return fmt.Errorf("the sign-in has expired, and the issuer does not renew it (%w): run manifold login again", withoutBody(err))
	}
	l.update(token)
	return nil
}

// withoutBody shortens an issuer's refusal to its code. The answer may have tokens.
func withoutBody(err error) error {
	if refusal, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return errors.New(cmp.Or(refusal.ErrorCode, refusal.Response.Status))
	}
	return err
}

// withIssuerClient makes requests to an issuer time out, and follow no redirect: they have tokens.
func withIssuerClient(ctx context.Context) (context.Context, context.CancelFunc) {
	direct := &http.Client{Timeout: signInTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return context.WithCancel(context.WithValue(ctx, oauth2.HTTPClient, direct))
}

// signedIn is the sign-in of a profile while a command runs. It is safe for concurrent use.
type signedIn struct {
	profile string
	mu      sync.Mutex
	login   login
}

// token returns a token that has not expired, and stores a new one in the profile. If the profile cannot be read or
// written, it warns, and the token works for this command.
func (s *signedIn) token(ctx context.Context) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.login.expired() || s.takeStored() {
		return s.login.Token, nil
	}
	if failed := s.login.refresh(ctx); failed != nil {
		if s.takeStored() { // another command has refreshed it meanwhile
			return s.login.Token, nil
		}
		return "", failed
	}
	if err := s.store(); err != nil {
		fmt.Fprintf(os.Stderr, "the new token works, but is not kept: %s\n", err)
	}
	return s.login.Token, nil
}

// takeStored takes the sign-in from the profile, and reports whether it has not expired. Another command may have
// refreshed it, and issuers may accept a refresh token only once.
func (s *signedIn) takeStored() bool {
	all, err := readProfiles()
	if err != nil {
		return false // store reports it
	}
	stored := all.Profiles[s.profile].Login
	if stored == nil || stored.TokenURL != s.login.TokenURL || stored.Client != s.login.Client {
		return false // signed out meanwhile, or signed in elsewhere
	}
	s.login = *stored
	return !s.login.expired()
}

// store stores the sign-in in the profile, unless the user has signed out meanwhile.
func (s *signedIn) store() error {
	all, err := readProfiles()
	if err != nil {
		return err
	}
	p := all.Profiles[s.profile]
	if p.Login == nil || p.Login.TokenURL != s.login.TokenURL || p.Login.Client != s.login.Client {
		return nil
	}
	p.Login = &s.login
	all.Profiles[s.profile] = p
	return all.write()
}

func loginCommand() *cobra.Command {
	to, issuer := &connection{}, ""
	command := &cobra.Command{
		Use:   "login",
		Short: "Sign in with an identity provider, and keep the token in a profile",
		Long: `Sign in with an identity provider that the service accepts. Open the printed address in any browser, on this machine or another,
and confirm the code there. The profile (--profile, or the current one, or "default") keeps the token, which commands then send
instead of its keys. An expired token is renewed if the provider allows it.

Check that the address is your identity provider's: the service names it.`,
		Example: "  manifold login --url https://manifold.example.com\n  manifold whoami",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return to.signIn(command, issuer)
		},
	}
	flags := command.Flags()
	flags.StringVar(&to.url, "url", "", "the service's URL (MANIFOLD_URL; default: the profile's, or "+defaultURL+")")
	flags.StringVar(&to.profile, "profile", "", "the profile that keeps the token (MANIFOLD_PROFILE; default: the current one)")
	flags.StringVar(&issuer, "issuer", "", "the identity provider, by its name at the service; needed if there are several")
	if err := command.RegisterFlagCompletionFunc("profile", completeProfiles); err != nil {
		panic(err) // there is no such flag
	}
	return command
}

// signIn signs in and stores the token in the profile.
func (c *connection) signIn(command *cobra.Command, name string) error {
	ctx := command.Context()
	all, err := readProfiles()
	if err != nil {
		return err
	}
	profileName := cmp.Or(c.named(), all.Current, "default")
	p := all.Profiles[profileName]
	service := cmp.Or(c.url, p.URL)
	if c.named() == "" && c.url == "" {
		c.readEnvironment()
		service = cmp.Or(c.url, p.URL)
	}
	service = cmp.Or(service, defaultURL)
	if err := checkURL(service); err != nil {
		return err
	}
	anonymous, err := client.NewClient(service, client.WithHTTPClient(reaching{service}))
	if err != nil {
		return err
	}
	offered, err := read[client.SignIn](anonymous.GetSignIn(ctx))
	if err != nil {
		return err
	}
	by, err := chooseIssuer(offered.Issuers, name)
	if err != nil {
		return err
	}
	l, err := authorizeDevice(ctx, by, func(address, code string) {
		fmt.Fprintf(command.ErrOrStderr(), "Open %s\nand confirm the code %s\n", address, code)
	})
	if err != nil {
		return err
	}
	known, err := client.NewClient(service, client.WithKey(l.Token), client.WithHTTPClient(reaching{service}))
	if err != nil {
		return err
	}
	caller, err := read[client.Caller](known.Whoami(ctx))
	if err != nil {
		return fmt.Errorf("%s signed you in, but the service refuses the token: %w", by.Title, err)
	}
	if p.URL != service {
		p = profile{URL: service} // another service must not get the keys
	}
	p.Login = l
	all, err = readProfiles() // it may have changed while the user signed in
	if err != nil {
		return err
	}
	all.Profiles[profileName] = p
	all.Current = cmp.Or(all.Current, profileName)
	if err := all.write(); err != nil {
		return err
	}
	fmt.Fprintf(command.OutOrStdout(), "signed in as %s; the profile %s keeps the token\n", caller.Token.Name, profileName)
	return nil
}

// chooseIssuer returns the issuer with the name, or the only one.
func chooseIssuer(issuers []client.SignInIssuer, name string) (client.SignInIssuer, error) {
	var usable []client.SignInIssuer
	var names []string
	for _, issuer := range issuers {
		if issuer.CliClient != "" && issuer.DeviceAuthorizationEndpoint != "" && issuer.TokenEndpoint != "" {
			usable, names = append(usable, issuer), append(names, issuer.Name)
		}
	}
	at := slices.Index(names, name)
	switch {
	case len(usable) == 0:
		return client.SignInIssuer{}, errors.New("the service has no identity provider for manifold login, or it has not answered yet: ask the operator, or use a key by manifold profile set")
	case name == "" && len(usable) == 1:
		at = 0
	case name == "":
		return client.SignInIssuer{}, fmt.Errorf("the service has several identity providers: give --issuer with one of %s", strings.Join(names, ", "))
	case at < 0:
		return client.SignInIssuer{}, fmt.Errorf("--issuer: the service has no identity provider %q, but %s", name, strings.Join(names, ", "))
	}
	for _, endpoint := range []string{usable[at].DeviceAuthorizationEndpoint, usable[at].TokenEndpoint} {
		if err := oidc.CheckURL(endpoint); err != nil {
			return client.SignInIssuer{}, fmt.Errorf("the service names the endpoint %s of %s: %w", endpoint, usable[at].Name, err)
		}
	}
	return usable[at], nil
}

// authorizeDevice gets a token by the device flow (RFC 8628). It calls show with what the user needs, and waits.
func authorizeDevice(ctx context.Context, by client.SignInIssuer, show func(address, code string)) (*login, error) {
	ctx, cancel := withIssuerClient(ctx)
	defer cancel()
	config := oauth2.Config{ClientID: by.CliClient, Scopes: by.Scopes, Endpoint: oauth2.Endpoint{
		DeviceAuthURL: by.DeviceAuthorizationEndpoint, TokenURL: by.TokenEndpoint, AuthStyle: oauth2.AuthStyleInParams,
	}}
	var parameters []oauth2.AuthCodeOption
	for name, value := range by.Parameters {
		parameters = append(parameters, oauth2.SetAuthURLParam(name, value))
	}
	device, err := config.DeviceAuth(ctx, parameters...)
	if err != nil {
		return nil, fmt.Errorf("%s does not begin a sign-in: %w", by.Title, withoutBody(err))
	}
	show(cmp.Or(device.VerificationURIComplete, device.VerificationURI), device.UserCode)
	token, err := config.DeviceAccessToken(ctx, device)
	if err != nil {
		return nil, fmt.Errorf("%s does not sign you in: %w", by.Title, withoutBody(err))
	}
	l := &login{Issuer: by.Name, Client: by.CliClient, TokenURL: by.TokenEndpoint}
	l.update(token)
	return l, nil
}

func logoutCommand() *cobra.Command {
	to := &connection{}
	command := &cobra.Command{
		Use:   "logout",
		Short: "Remove a profile's token, which stays valid until it expires",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := readProfiles()
			if err != nil {
				return err
			}
			name := cmp.Or(to.named(), all.Current)
			p, err := all.named(name)
			if err != nil {
				return err
			}
			if p.Login == nil {
				return fmt.Errorf("profile %q has no token: nobody is signed in", name)
			}
			p.Login = nil
			all.Profiles[name] = p
			return all.write()
		},
	}
	command.Flags().StringVar(&to.profile, "profile", "", "the profile (MANIFOLD_PROFILE; default: the current one)")
	if err := command.RegisterFlagCompletionFunc("profile", completeProfiles); err != nil {
		panic(err) // there is no such flag
	}
	return command
}
