package webhook

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"code.dny.dev/ssrf"
)

// errBlocked means that the service may not send to an address.
var errBlocked = errors.New("the address is not public")

// guard decides which addresses requests may go to: public ones, and those that the operator allows. It checks the
// address that is about to be connected to, after every name lookup. So it does not matter what the name resolved to
// earlier.
type guard struct {
	allow  []netip.Prefix
	public *ssrf.Guardian

	mu     sync.Mutex
	own    []netip.Addr // this machine's addresses
	ownAt  time.Time
	ownNow func() ([]net.Addr, error)
}

// Prefixes of addresses that registries list as public, but that have a meaning inside a network.
var (
	nat64    = netip.MustParsePrefix("64:ff9b::/96")     // translates to the IPv4 address in its last 32 bits
	platform = netip.MustParsePrefix("168.63.129.16/32") // the host of a virtual machine in Azure
)

func newGuard(allow []netip.Prefix) *guard {
	g := &guard{public: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAnyNetwork()), ownNow: net.InterfaceAddrs}
	for _, prefix := range allow {
		g.allow = append(g.allow, unmapped(prefix))
	}
	return g
}

// unmapped converts a prefix of IPv4-mapped addresses to an IPv4 prefix.
func unmapped(prefix netip.Prefix) netip.Prefix {
	if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
		return netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96).Masked()
	}
	return prefix.Masked()
}

// control is for net.Dialer, which calls it with each address before connecting.
func (g *guard) control(network, address string, _ syscall.RawConn) error {
	if network != "tcp4" && network != "tcp6" {
		return fmt.Errorf("%w: it is of the network %s", errBlocked, network)
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %w", errBlocked, err)
	}
	return g.check(at.Addr())
}

// check returns nil if requests may go to an address, and otherwise errBlocked. The error does not contain the address,
// so that it does not reveal what a name inside the network resolves to.
func (g *guard) check(addr netip.Addr) error {
	addr = addr.Unmap().WithZone("") // no prefix contains an address with a zone, and the system ignores most zones
	if slices.ContainsFunc(g.allow, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		if nat64.Contains(addr) {
			return g.check(embedded(addr)) // allowing the translation does not allow every address that it reaches
		}
		return nil
	}
	if platform.Contains(addr) || g.public.SafeAddr(addr) != nil {
		return errBlocked
	}
	own, err := g.machine()
	if err != nil {
		return fmt.Errorf("%w: the addresses of this machine cannot be read: %w", errBlocked, err)
	}
	if slices.Contains(own, addr) {
		return errBlocked
	}
	return nil
}

// embedded returns the IPv4 address that an address of nat64 contains.
func embedded(addr netip.Addr) netip.Addr {
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

// ownFor is how long the list of this machine's addresses is cached.
const ownFor = time.Minute

// machine returns the addresses of this machine. A public one among them would bypass what protects the machine from
// outside. If they cannot be read, those read before count; if there are none, the error is returned.
func (g *guard) machine() ([]netip.Addr, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ownAt.IsZero() && time.Since(g.ownAt) < ownFor {
		return g.own, nil
	}
	found, err := g.ownNow()
	switch {
	case err != nil && g.ownAt.IsZero():
		return nil, err
	case err != nil:
		return g.own, nil
	}
	g.own, g.ownAt = nil, time.Now()
	for _, a := range found {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			g.own = append(g.own, prefix.Addr().Unmap())
		}
	}
	return g.own, nil
}
