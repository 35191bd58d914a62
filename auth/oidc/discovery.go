package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// fetchTimeout limits one request to an issuer.
	fetchTimeout = 10 * time.Second
	// maxDocumentBytes limits an issuer's answer.
	maxDocumentBytes = 1 << 20
	// maxRedirects is how often an issuer may redirect one request.
	maxRedirects = 3
)

// Endpoints are an issuer's URLs at which clients sign in. Each may be empty.
type Endpoints struct {
	Authorization string `json:"authorization_endpoint"`
	Token         string `json:"token_endpoint"`
	Device        string `json:"device_authorization_endpoint"`
}

// discovered is the part of a discovery document that is used.
type discovered struct {
	Issuer string `json:"issuer"`
	Keys   string `json:"jwks_uri"`
	Endpoints
}

// CheckURL returns an error unless the service may call text: an https URL, or an http URL of this machine.
func CheckURL(text string) error {
	parsed, err := url.Parse(text)
	switch {
	case err != nil || parsed.Host == "" || parsed.Scheme != "https" && parsed.Scheme != "http":
		return errors.New("it is not a URL such as https://id.example.com")
	case parsed.User != nil || parsed.Fragment != "":
		return errors.New("it has a user or a fragment; remove it")
	case parsed.Scheme == "http" && !isLoopback(parsed.Hostname()):
		return errors.New("it is not encrypted; write https:// (http:// is for this machine only)")
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// newClient returns a client that follows only redirects to URLs that the service may call.
func newClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = 64 << 10
	return &http.Client{Transport: transport, Timeout: fetchTimeout, CheckRedirect: func(request *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return fmt.Errorf("more than %d redirects", maxRedirects)
		}
		return CheckURL(request.URL.String())
	}}
}

// discover reads an issuer's discovery document.
func discover(ctx context.Context, client *http.Client, issuer string) (discovered, error) {
	var found discovered
	if err := fetch(ctx, client, strings.TrimSuffix(issuer, "/")+"/.well-known/openid-configuration", &found); err != nil {
		return found, err
	}
	if found.Issuer != issuer {
		return found, fmt.Errorf("its discovery document names another issuer, %q; write that one into the configuration if it is right", found.Issuer)
	}
	for name, text := range map[string]string{
		"jwks_uri": found.Keys, "authorization_endpoint": found.Authorization, "token_endpoint": found.Token, "device_authorization_endpoint": found.Device,
	} {
		if text == "" && name != "jwks_uri" {
			continue
		}
		if err := CheckURL(text); err != nil {
			return found, fmt.Errorf("%s of its discovery document: %w", name, err)
		}
	}
	return found, nil
}

// fetch reads a JSON document.
func fetch(ctx context.Context, client *http.Client, from string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	request.Header.Set("Accept", "application/json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", from, response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxDocumentBytes+1))
	switch {
	case err != nil:
		return fmt.Errorf("read %s: %w", from, err)
	case len(text) > maxDocumentBytes:
		return fmt.Errorf("%s has more than %d bytes", from, maxDocumentBytes)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%s is not the expected JSON: %w", from, err)
	}
	return nil
}
