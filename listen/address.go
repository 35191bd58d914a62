package listen

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// Proxies are the trusted reverse proxies and load balancers in front of the service. The service believes what they
// say about a client's address.
type Proxies struct {
	Trusted  []netip.Prefix // their addresses; if empty, no proxy is trusted
	Protocol bool           // they send a PROXY header, version 1 or 2, at the start of each connection
	Header   string         // the request header to which they add the client's address: X-Forwarded-For or Forwarded
}

// trusts reports whether an address belongs to a trusted proxy.
func (p *Proxies) trusts(address netip.Addr) bool {
	return slices.ContainsFunc(p.Trusted, func(network netip.Prefix) bool { return network.Contains(address) })
}

// client returns the client's address for a request from a trusted proxy. This is the last address in the header that
// does not belong to a trusted proxy. The client may have made up everything before it. The address is invalid if the
// header names no client.
func (p *Proxies) client(header http.Header) netip.Addr {
	for _, hop := range slices.Backward(p.hops(header)) {
		address := parseHop(hop)
		if !address.IsValid() || !p.trusts(address) {
			return address
		}
	}
	return netip.Addr{}
}

// hops returns the header's value for each hop, the client's first.
func (p *Proxies) hops(header http.Header) []string {
	var all []string
	for _, value := range header.Values(p.Header) {
		for element := range strings.SplitSeq(value, ",") {
			if http.CanonicalHeaderKey(p.Header) == "Forwarded" {
				element = forwardedFor(element)
			}
			all = append(all, element)
		}
	}
	return all
}

// forwardedFor returns the parameter "for" of an element of the header Forwarded (RFC 7239). A quoted string with a
// comma or a semicolon is never an address, and gives an invalid address here.
func forwardedFor(element string) string {
	for pair := range strings.SplitSeq(element, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if strings.EqualFold(name, "for") {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

// parseHop parses an address with or without a port, and with or without brackets. It returns an invalid address for
// any other text.
func parseHop(text string) netip.Addr {
	text = strings.TrimSpace(text)
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return plain(withPort.Addr())
	}
	address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	if err != nil {
		return netip.Addr{}
	}
	return plain(address)
}

// addressOf returns the address of one end of a connection. The address is invalid if the connection is not TCP.
func addressOf(end net.Addr) netip.Addr {
	if tcp, ok := end.(*net.TCPAddr); ok {
		return plain(tcp.AddrPort().Addr())
	}
	return netip.Addr{}
}

// plain returns an address without its zone, and with IPv4-mapped IPv6 as IPv4.
func plain(address netip.Addr) netip.Addr { return address.Unmap().WithZone("") }

// prefixOf returns the prefix that counts as one client: an IPv4 address, or a /64 network of IPv6, since one client
// has all its addresses.
func prefixOf(address netip.Addr) netip.Prefix {
	bits := address.BitLen()
	if address.Is6() {
		bits = 64
	}
	prefix, err := address.Prefix(bits)
	if err != nil {
		panic(err) // bits is always valid
	}
	return prefix
}

// explain describes why the service cannot listen on an address.
func explain(address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("another program listens on %s: stop it, or choose another address (port 0 takes a free one)", address)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("this user may not listen on %s: choose a port above 1023", address)
	}
	if wrong, ok := errors.AsType[*net.AddrError](err); ok {
		return fmt.Errorf("%q is no address to listen on (%s); write 127.0.0.1:8080, or :8080 for every address", address, wrong.Err)
	}
	return fmt.Errorf("listen on %s: %w", address, err)
}

// Try checks whether the service can listen on an address.
func Try(address string) error {
	inner, err := net.Listen("tcp", address)
	if err != nil {
		return explain(address, err)
	}
	return inner.Close()
}
