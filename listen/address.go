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

// Proxies are the reverse proxies and load balancers before the service, whose word is taken for who a client is.
type Proxies struct {
	Trusted  []netip.Prefix // their addresses; none: nobody's word is taken
	Protocol bool           // they send a PROXY header, version 1 or 2, at the begin of each connection
	Header   string         // they add the client's address to this header of each request: X-Forwarded-For or Forwarded
}

// trusts reports whether an address is a trusted proxy's.
func (p *Proxies) trusts(address netip.Addr) bool {
	return slices.ContainsFunc(p.Trusted, func(network netip.Prefix) bool { return network.Contains(address) })
}

// client is the address of the client whose request came from a trusted proxy: the last one in the header that is not a
// trusted proxy's itself, since everything before it may be the client's own invention. It is not valid where the header
// names none.
func (p *Proxies) client(header http.Header) netip.Addr {
	for _, hop := range slices.Backward(p.hops(header)) {
		address := parseHop(hop)
		if !address.IsValid() || !p.trusts(address) {
			return address
		}
	}
	return netip.Addr{}
}

// hops are what the header says of each hop, the client's first.
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

// forwardedFor is the parameter "for" of an element of the header Forwarded (RFC 7239). Quoted strings in it that contain a
// comma or a semicolon are none of addresses, and lead to no valid address here.
func forwardedFor(element string) string {
	for pair := range strings.SplitSeq(element, ";") {
		name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
		if strings.EqualFold(name, "for") {
			return strings.Trim(value, `"`)
		}
	}
	return ""
}

// parseHop reads an address with or without a port, and with or without brackets. What is none is not valid.
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

// addressOf is the address of one end of a connection. It is not valid where that is not one of TCP.
func addressOf(end net.Addr) netip.Addr {
	if tcp, ok := end.(*net.TCPAddr); ok {
		return plain(tcp.AddrPort().Addr())
	}
	return netip.Addr{}
}

// plain is an address without what the way to it adds: a zone, and IPv4 written as IPv6.
func plain(address netip.Addr) netip.Addr { return address.Unmap().WithZone("") }

// prefixOf is what counts as one client: an address of IPv4, or a network of 64 bits of IPv6, of which one client has all
// addresses.
func prefixOf(address netip.Addr) netip.Prefix {
	bits := address.BitLen()
	if address.Is6() {
		bits = 64
	}
	prefix, err := address.Prefix(bits)
	if err != nil {
		panic(err) // there are that many bits
	}
	return prefix
}

// explain says what is wrong where an address cannot be listened on.
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

// Try says whether an address can be listened on.
func Try(address string) error {
	inner, err := net.Listen("tcp", address)
	if err != nil {
		return explain(address, err)
	}
	return inner.Close()
}
