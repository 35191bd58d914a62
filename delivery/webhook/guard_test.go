package webhook

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
)

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// Addresses inside a network are refused in each of their forms.
func TestOnlyPublicAddressesMayBeSentTo(t *testing.T) {
	t.Parallel()
	g := newGuard(nil)
	for _, public := range []string{"8.8.8.8", "1.1.1.1", "93.184.215.14", "2606:4700:4700::1111", "2a00:1450:4001:81c::200e", "::ffff:8.8.8.8"} {
		if err := g.check(netip.MustParseAddr(public)); err != nil {
			t.Errorf("%s: %v", public, err)
		}
	}
	for _, inside := range []string{
		"127.0.0.1", "127.255.255.254", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "169.254.169.254", "100.64.0.1", "100.100.100.200",
		"192.0.0.192", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "255.255.255.255", "168.63.129.16",
		"::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd00:ec2::254", "ff02::1", "fec0::1", "2001:db8::1", "100::1",
		"::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", // IPv4-mapped
		"::127.0.0.1", "::10.0.0.1", // IPv4-compatible
		"64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b::8.8.8.8", "64:ff9b:1::10.0.0.1", // translated
		"2002:7f00:1::", "2002:a00:1::1", // 6to4
		"2001::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2", // Teredo
	} {
		if err := g.check(netip.MustParseAddr(inside)); !errors.Is(err, errBlocked) {
			t.Errorf("%s is let through: %v", inside, err)
		}
	}
}

func TestOperatorAllowsNetworks(t *testing.T) {
	t.Parallel()
	g := newGuard(prefixes("10.1.0.0/16", "fd00::/8", "::ffff:192.168.7.0/120", "64:ff9b::/96"))
	for addr, allowed := range map[string]bool{
		"10.1.2.3": true, "::ffff:10.1.2.3": true, "10.2.0.1": false, "fd12::1": true, "fc00::1": false, "192.168.7.9": true, "192.168.8.9": false, "127.0.0.1": false,
		// Allowing the translation allows only the addresses behind it that may be sent to anyway.
		"64:ff9b::8.8.8.8": true, "64:ff9b::127.0.0.1": false, "64:ff9b::169.254.169.254": false, "64:ff9b::10.1.2.3": true,
		"64:ff9b::127.0.0.1%eth0": false, "64:ff9b::169.254.169.254%1": false, "fd12::1%eth0": true, // a zone is no address of its own
	} {
		if err := g.check(netip.MustParseAddr(addr)); (err == nil) != allowed {
			t.Errorf("%s: %v; want allowed %t", addr, err, allowed)
		}
	}
}

// An address of this machine counts as inside even if it is public, because it would bypass what protects the machine
// from outside.
func TestOwnAddressesAreInternal(t *testing.T) {
	t.Parallel()
	g := newGuard(nil)
	g.ownNow = func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.ParseIP("5.6.7.8"), Mask: net.CIDRMask(24, 32)}, &net.IPNet{IP: net.ParseIP("2a00:1::8"), Mask: net.CIDRMask(64, 128)}}, nil
	}
	for addr, allowed := range map[string]bool{"5.6.7.8": false, "::ffff:5.6.7.8": false, "2a00:1::8": false, "5.6.7.9": true, "2a00:1::9": true} {
		if err := g.check(netip.MustParseAddr(addr)); (err == nil) != allowed {
			t.Errorf("%s: %v; want allowed %t", addr, err, allowed)
		}
	}
}

// Before this machine's addresses could be read once, nothing is sent. Later, the last known ones count.
func TestUnknownOwnAddresses(t *testing.T) {
	t.Parallel()
	g := newGuard(prefixes("10.0.0.0/8"))
	failure := errors.New("the system call is forbidden")
	g.ownNow = func() ([]net.Addr, error) { return nil, failure }
	public, allowed := netip.MustParseAddr("5.6.7.9"), netip.MustParseAddr("10.0.0.1")
	if err := g.check(public); !errors.Is(err, errBlocked) || !errors.Is(err, failure) {
		t.Errorf("it gives %v", err)
	}
	if err := g.check(allowed); err != nil {
		t.Errorf("an allowed address gives %v", err)
	}
	g.ownAt = time.Now().Add(-2 * ownFor)
	g.own = []netip.Addr{netip.MustParseAddr("5.6.7.8")}
	if g.check(public) != nil || g.check(g.own[0]) == nil {
		t.Error("the last known addresses do not count")
	}
}

func TestConnectionsOfOtherKinds(t *testing.T) {
	t.Parallel()
	g := newGuard(nil)
	for network, address := range map[string]string{"udp4": "8.8.8.8:53", "unix": "/run/docker.sock", "tcp4": "just text"} {
		if err := g.control(network, address, nil); !errors.Is(err, errBlocked) {
			t.Errorf("%s %s is let through: %v", network, address, err)
		}
	}
	if err := g.control("tcp6", "[2606:4700:4700::1111]:443", nil); err != nil {
		t.Error(err)
	}
}

func TestURLs(t *testing.T) {
	t.Parallel()
	secure, open := newSender(nil, false, "v1"), newSender(prefixes("10.0.0.0/8"), true, "v1")
	for url, allowed := range map[string][2]bool{ // by secure, by open
		"https://example.com/events":          {true, true},
		"https://example.com:8443/?key=value": {true, true},
		"HTTPS://example.com":                 {true, true},
		"https://8.8.8.8/":                    {true, true},
		"https://[2606:4700:4700::1111]/":     {true, true},
		"https://localhost/":                  {true, true}, // the address is checked when connecting
		"http://example.com":                  {false, true},
		"https://10.0.0.1/":                   {false, true},
		"http://10.0.0.1:8080/":               {false, true},
		"":                                    {},
		"example.com":                         {},
		"//example.com/":                      {},
		"/events":                             {},
		"https:example.com":                   {},
		"https://":                            {},
		"https:///events":                     {},
		"ftp://example.com/":                  {},
		"file:///etc/passwd":                  {},
		"gopher://example.com/":               {},
		"unix:///run/docker.sock":             {},
		"https://user@example.com/":           {},
		"https://user:pass@example.com/":      {},
		"https://example.com/#part":           {},
		"https://example.com:0/":              {},
		"https://example.com:25/":             {},
		"https://example.com:99999/":          {},
		"https://example.com:/":               {},
		"https://127.0.0.1/":                  {},
		"https://[::1]/":                      {},
		"https://[::ffff:169.254.169.254]/":   {},
		"https://[64:ff9b::127.0.0.1]/":       {},
		"https://[fe80::1%25eth0]/":           {},
		"https://exa mple.com/":               {},
		"https://example.com/\r\nx":           {},
	} {
		for i, s := range []*sender{secure, open} {
			err := s.checkURL(url)
			if (err == nil) != allowed[i] {
				t.Errorf("%q (http %t): %v; want allowed %t", url, s.http, err, allowed[i])
			}
			if failure, ok := errors.AsType[*domain.Error](err); err != nil && (!ok || failure.Where != "url" || failure.Code != domain.CodeInvalidRequest) {
				t.Errorf("%q is refused with %#v", url, err)
			}
		}
	}
}
