package config

import (
	"fmt"
	"net/netip"
	"strings"
)

// Webhooks configures the allowed targets of webhooks.
type Webhooks struct {
	// Allow lists addresses and networks (CIDR) that webhooks may call although they are not public.
	Allow     []string `yaml:"allow" env:"ALLOW"`
	AllowHTTP bool     `yaml:"allowHttp" env:"ALLOW_HTTP"` // allow unencrypted URLs (http://)
}

// Allowed returns the networks of Allow. A single address becomes a network with one address.
func (w Webhooks) Allowed() ([]netip.Prefix, error) {
	var all []netip.Prefix
	for i, text := range w.Allow {
		text = strings.TrimSpace(text)
		if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
			all = append(all, netip.PrefixFrom(addr, addr.BitLen()))
			continue
		}
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("allow[%d]: %q is not a network; write one such as 10.1.0.0/16 or fd00::/8, or an address", i, text)
		}
		all = append(all, prefix)
	}
	return all, nil
}
