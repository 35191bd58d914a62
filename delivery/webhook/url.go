package webhook

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// checkURL refuses a URL that requests can never go to. Each request resolves the host name again.
func (s *sender) checkURL(text string) error {
	wrong := func(format string, args ...any) error {
		return domain.Errorf(domain.CodeInvalidRequest, "url", format, args...)
	}
	if len(text) > MaxURLBytes {
		return wrong("it has %d bytes; at most %d are allowed", len(text), MaxURLBytes)
	}
	u, err := url.Parse(text)
	switch {
	case text == "":
		return wrong("it is missing; write the URL that receives the events, such as https://example.com/events")
	case err != nil || u.Opaque != "" || u.Scheme != "http" && u.Scheme != "https":
		return wrong("it is no URL of HTTP; write one such as https://example.com/events")
	case u.Hostname() == "":
		return wrong("it names no host; write one such as https://example.com/events")
	case u.User != nil:
		return wrong("it contains a user or a password; leave them out: the signature proves who sent an event")
	case strings.Contains(text, "#"):
		return wrong("it has a fragment (after the #), which is never sent; leave it out")
	case u.Scheme == "http" && !s.http:
		return wrong("it is not https, so others could read the messages; use https, or allow http with the setting webhooks.allowHttp")
	}
	if port := u.Port(); port != "" || strings.HasSuffix(u.Host, ":") {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 {
			return wrong("%q is no port; it is a number from 1 to 65535", domain.Clip(port, 60))
		}
		if !portAllowed(int(n)) {
			return wrong("the port %d is of another protocol; use 80, 443 or one from 1024 on", n)
		}
	}
	if addr, err := netip.ParseAddr(u.Hostname()); err == nil && s.guard.check(addr) != nil {
		return wrong("%s is not a public address; the setting webhooks.allow lists the exceptions", addr)
	}
	return nil
}

// portAllowed reports whether requests may go to a port. Ports below 1024 belong to mail and other protocols, and a
// request could trick their servers into acting on it.
func portAllowed(port int) bool { return port == 80 || port == 443 || port >= 1024 }
