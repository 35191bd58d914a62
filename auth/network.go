package auth

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// MaxNetworks limits the number of a key's networks.
const MaxNetworks = 50

// ParseNetworks parses the networks of a key: at most MaxNetworks different prefixes in CIDR notation, such as
// 203.0.113.0/24, without host bits. The argument where names the list in the request. Errors are *domain.Error with
// domain.CodeInvalidRequest.
func ParseNetworks(where string, texts []string) ([]netip.Prefix, error) {
	if len(texts) > MaxNetworks {
		return nil, domain.Errorf(domain.CodeInvalidRequest, where, "there are %d networks; a key may have %d", len(texts), MaxNetworks)
	}
	networks := make([]netip.Prefix, 0, len(texts))
	for i, text := range texts {
		network, err := parseNetwork(text)
		if err == nil && slices.Contains(networks, network) {
			err = fmt.Errorf("duplicate network %s", network)
		}
		if err != nil {
			return nil, domain.Errorf(domain.CodeInvalidRequest, fmt.Sprintf("%s[%d]", where, i), "%s", err)
		}
		networks = append(networks, network)
	}
	return networks, nil
}

func parseNetwork(text string) (netip.Prefix, error) {
	network, err := netip.ParsePrefix(text)
	if err != nil {
		if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
			return netip.Prefix{}, fmt.Errorf("%s is an address; for only this address, write %s/%d", text, address, address.BitLen())
		}
		return netip.Prefix{}, fmt.Errorf("%q is not a network; write an address and a number of bits, such as 203.0.113.0/24 or 2001:db8::/32", domain.Clip(text, 60))
	}
	if network.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%s contains IPv4 addresses within IPv6; write the network as IPv4", text)
	}
	if masked := network.Masked(); masked != network {
		return netip.Prefix{}, fmt.Errorf("%s has address bits after its first %d; write %s", text, network.Bits(), masked)
	}
	return network, nil
}

// checkAddress returns a domain.CodeForbidden error unless the key works from the client address of ctx's request. An
// unknown address is in no network. Only callers that know the key's secret or a ticket's may get the error.
func (k *Keys) checkAddress(ctx context.Context, key *APIKey) error {
	if len(key.Networks) == 0 {
		return nil
	}
	var address netip.Addr
	if k.config.Address != nil {
		address = k.config.Address(ctx)
	}
	if slices.ContainsFunc(key.Networks, func(network netip.Prefix) bool { return network.Contains(address) }) {
		return nil
	}
	if !address.IsValid() {
		return domain.Errorf(domain.CodeForbidden, "Authorization", "this key works only from certain networks, and the address of this request's client is unknown; check the forwarding header of the proxy in front of the service")
	}
	return domain.Errorf(domain.CodeForbidden, "Authorization", "this key does not work from the address %s; use it from one of its networks, or create a key for this one", address)
}
