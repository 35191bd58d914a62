package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/cli"
	"github.com/manifold-es/manifold/client"
)

// connection describes which service a command calls, and with which key.
type connection struct {
	url, key  string
	variables []string  // the environment variables that may contain the key
	variable  string    // the one that does; empty: none is set
	profile   string    // --profile
	base      string    // of the paths: /audit, or empty
	signedIn  *signedIn // of the profile, instead of a key; nil: none
}

// operatorKey is the environment variable with the key for the operator's commands. The service reads the same
// variable.
const operatorKey = "MANIFOLD_OPERATOR_KEY"

// defaultURL is where manifold dev listens.
const defaultURL = "http://127.0.0.1:8080"

// bind adds the flags. variables are the environment variables that may contain the key.
func (c *connection) bind(command *cobra.Command, variables ...string) {
	c.variables = variables
	flags := command.PersistentFlags()
	flags.StringVar(&c.url, "url", "", "the service's URL (MANIFOLD_URL; default: the profile's, or "+defaultURL+")")
	flags.StringVar(&c.key, "key", "", "the key ("+strings.Join(variables, ", ")+"; default: the profile's)")
	flags.StringVar(&c.profile, "profile", "", "the profile to use (MANIFOLD_PROFILE; default: the current one)")
	if err := command.RegisterFlagCompletionFunc("profile", completeProfiles); err != nil {
		panic(err) // there is no such flag
	}
}

// asOperator prefers the operator's key. It is for calls that only the operator may make.
func (c *connection) asOperator() { c.variables = append([]string{operatorKey}, c.variables...) }

// resolve completes the URL and the key that flags do not give. A profile that the user names replaces the environment;
// the current profile applies if the environment has neither. A profile's key is for its own URL only.
func (c *connection) resolve() error {
	name := c.named()
	fromEnvironment := name == "" && c.readEnvironment()
	if (c.url == "" || c.key == "") && !fromEnvironment {
		all, err := readProfiles()
		if err != nil {
			return err
		}
		p := all.Profiles[all.Current]
		if name != "" {
			if p, err = all.named(name); err != nil {
				return err
			}
		}
		c.url = cmp.Or(c.url, p.URL)
		if c.url == p.URL && c.key == "" && p.Login != nil {
			c.signedIn, c.key = &signedIn{profile: cmp.Or(name, all.Current), login: *p.Login}, p.Login.Token
		}
		for _, variable := range c.variables {
			if c.url == p.URL {
				c.key = cmp.Or(c.key, p.keyFor(variable))
			}
		}
	}
	c.url = cmp.Or(c.url, defaultURL)
	return nil
}

// named returns the profile that the user names, or "".
func (c *connection) named() string { return cmp.Or(c.profile, os.Getenv("MANIFOLD_PROFILE")) }

// readEnvironment takes what flags do not give from the environment, and reports whether it has a URL or a key. The
// first variable for a key that is set applies. An empty one is a mistake: the next variable, possibly with the
// operator's key, must not apply instead.
func (c *connection) readEnvironment() bool {
	service := os.Getenv("MANIFOLD_URL")
	c.url = cmp.Or(c.url, service)
	for _, variable := range c.variables {
		if value, set := os.LookupEnv(variable); set {
			if c.key == "" {
				c.key, c.variable = value, variable
			}
			return true
		}
	}
	return service != ""
}

var errNoKey = errors.New("no key: give --key, set MANIFOLD_KEY (operators: " + operatorKey + "), sign in by manifold login, or make a profile by manifold profile set")

// check reports a missing key or an invalid URL.
func (c *connection) check() error {
	if err := c.resolve(); err != nil {
		return err
	}
	if c.key == "" {
		if c.variable != "" {
			return fmt.Errorf("no key: the environment variable %s is set but empty; set it to a key, unset it, or give --key", c.variable)
		}
		if name := c.named(); name != "" {
			return fmt.Errorf("profile %q has no key for this command: manifold profile set %s --key, or --operator-key", name, name)
		}
		return errNoKey
	}
	return checkURL(c.url)
}

// needsKey is check for a command whose flag --key is another key.
func (c *connection) needsKey(other string) error {
	err := c.check()
	if errors.Is(err, errNoKey) {
		err = errors.New("no key for the service: set MANIFOLD_KEY, or make a profile by manifold profile set; " + other)
	}
	return err
}

func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("--url: %q is not a URL such as %s", text, defaultURL)
	}
	return nil
}

// open returns a client of the service. It connects with the first call.
func (c *connection) open() (*client.Client, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return client.NewClient(strings.TrimSuffix(c.url, "/")+c.base, client.WithKeys(c.currentKey), client.WithHTTPClient(reaching{c.url}))
}

// currentKey returns the key, or a token that has not expired.
func (c *connection) currentKey(ctx context.Context) (string, error) {
	if c.signedIn != nil {
		return c.signedIn.token(ctx)
	}
	return c.key, nil
}

// refusedOnWindows is WSAECONNREFUSED, which Windows reports in place of ECONNREFUSED. No other system has this number.
const refusedOnWindows = syscall.Errno(10061)

// reaching sends requests. If the service is unreachable, its error says what to do.
type reaching struct{ url string }

// Do implements client.HttpRequestDoer.
func (r reaching) Do(request *http.Request) (*http.Response, error) {
	request.Header.Set("User-Agent", cli.UserAgent())
	response, err := http.DefaultClient.Do(request)
	if unknown, ok := errors.AsType[*net.DNSError](err); ok || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, refusedOnWindows) {
		why := "nothing listens there"
		if ok {
			why = unknown.Error()
		}
		return nil, fmt.Errorf("no service answers at %s (%s): is it running? Set its URL with --url, MANIFOLD_URL or manifold profile", r.url, why)
	}
	return response, err
}
