package remote

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// connection describes which service a command calls, and with which key.
type connection struct {
	url, key string
	variable string // the environment variable that contains the key; empty: none is set
}

// operatorKey is the environment variable with the key for the operator's commands. The service reads the same
// variable.
const operatorKey = "MANIFOLD_OPERATOR_KEY"

// bind adds the flags. variables are the environment variables that may contain the key; the first one that is set
// applies. A variable that is set but empty is a mistake in the environment. It must not make the key of the next
// variable, possibly the operator's, apply instead.
func (c *connection) bind(command *cobra.Command, variables ...string) {
	service := os.Getenv("MANIFOLD_URL")
	if service == "" {
		service = "http://127.0.0.1:8080"
	}
	key := ""
	for _, variable := range variables {
		if value, set := os.LookupEnv(variable); set {
			key, c.variable = value, variable
			break
		}
	}
	command.PersistentFlags().StringVar(&c.url, "url", service, "the service's URL (MANIFOLD_URL)")
	command.PersistentFlags().StringVar(&c.key, "key", key, "the key ("+strings.Join(variables, ", ")+")")
	// --help must not show a key from the environment.
	command.PersistentFlags().Lookup("key").DefValue = ""
}

// asOperator uses the operator's key from the environment, if there is one and --key is not given. It is for calls
// that only the operator may make.
func (c *connection) asOperator(command *cobra.Command) {
	if key := os.Getenv(operatorKey); key != "" && !command.Flags().Changed("key") {
		c.key = key
	}
}

// check reports a missing key or an invalid URL.
func (c *connection) check() error {
	if c.key == "" {
		if c.variable != "" {
			return fmt.Errorf("no key: the environment variable %s is set but empty; set it to a key, unset it, or give --key", c.variable)
		}
		return errors.New("no key: give --key, or set MANIFOLD_KEY (operators: " + operatorKey + ")")
	}
	u, err := url.Parse(c.url)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("--url: %q is not a URL such as http://127.0.0.1:8080", c.url)
	}
	return nil
}

// open returns a client of the service. It connects with the first call.
func (c *connection) open() (*client.Client, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	return client.NewClient(c.url, client.WithKey(c.key), client.WithHTTPClient(reaching{c.url}))
}

// reaching sends requests. If the service is unreachable, its error says what to do.
type reaching struct{ url string }

// Do implements client.HttpRequestDoer.
func (r reaching) Do(request *http.Request) (*http.Response, error) {
	response, err := http.DefaultClient.Do(request)
	if unknown, ok := errors.AsType[*net.DNSError](err); ok || errors.Is(err, syscall.ECONNREFUSED) {
		why := "nothing listens there"
		if ok {
			why = unknown.Error()
		}
		return nil, fmt.Errorf("no service answers at %s (%s): is it running? Set its URL with --url or MANIFOLD_URL", r.url, why)
	}
	return response, err
}
