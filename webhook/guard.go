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

// errBlocked means that an address is none that the service may send to.
var errBlocked = errors.New("it is no public address")

// guard says which addresses requests may go to: those that are public, and those that the operator allows. It is asked with the
// address that is about to be connected to, behind every lookup of a name, so that it does not matter what a name meant before.
type guard struct {
	allow  []netip.Prefix
	public *ssrf.Guardian

	mu     sync.Mutex
	own    []netip.Addr // this machine's addresses
	ownAt  time.Time
	ownNow func() ([]net.Addr, error)
}

// Prefixes of addresses that are public by their registry, and mean something inside a network all the same.
var (
	nat64    = netip.MustParsePrefix("64:ff9b::/96")     // stands for an IPv4 address, its last 32 bits
	platform = netip.MustParsePrefix("168.63.129.16/32") // the host of a virtual machine in Azure
)

func newGuard(allow []netip.Prefix) *guard {
	g := &guard{public: ssrf.New(ssrf.WithAnyPort(), ssrf.WithAnyNetwork()), ownNow: net.InterfaceAddrs}
	for _, prefix := range allow {
		g.allow = append(g.allow, unmapped(prefix))
	}
	return g
}

// unmapped writes a prefix of IPv4-mapped addresses as one of IPv4.
func unmapped(prefix netip.Prefix) netip.Prefix {
	if prefix.Addr().Is4In6() && prefix.Bits() >= 96 {
		return netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96).Masked()
	}
	return prefix.Masked()
}

// control is for net.Dialer: it is called with each address before that is connected to.
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

// check reports whether requests may go to an address. Its error is errBlocked, and does not name the address: a name that is known
// only inside the network tells nobody what it stands for.
func (g *guard) check(addr netip.Addr) error {
	addr = addr.Unmap().WithZone("") // no prefix contains one with a zone, and the system passes over most of these
	if slices.ContainsFunc(g.allow, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		if nat64.Contains(addr) {
			return g.check(embedded(addr)) // who allows the translation does not allow all that lies behind it
		}
		return nil
	}
	if platform.Contains(addr) || g.public.SafeAddr(addr) != nil || slices.Contains(g.machine(), addr) {
		return errBlocked
	}
	return nil
}

// embedded is the IPv4 address that an address of nat64 stands for.
func embedded(addr netip.Addr) netip.Addr {
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}

// ownFor is how long this machine's addresses are taken to be as they were.
const ownFor = time.Minute

// machine returns the addresses of this machine. One that is public leads past what keeps others out.
func (g *guard) machine() []netip.Addr {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.ownAt.IsZero() && time.Since(g.ownAt) < ownFor {
		return g.own
	}
	found, err := g.ownNow()
	if err != nil {
		return g.own
	}
	g.own, g.ownAt = nil, time.Now()
	for _, a := range found {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			g.own = append(g.own, prefix.Addr().Unmap())
		}
	}
	return g.own
}
