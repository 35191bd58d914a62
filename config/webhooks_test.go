package config_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/manifold-es/manifold/config"
)

func TestNetworksOfWebhooks(t *testing.T) {
	t.Parallel()
	allowed, err := config.Webhooks{Allow: []string{"10.1.0.0/16", " ::1", "192.168.1.7", "fd00::/8"}}.Allowed()
	want := []netip.Prefix{
		netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("::1/128"), netip.MustParsePrefix("192.168.1.7/32"), netip.MustParsePrefix("fd00::/8"),
	}
	if err != nil || !slices.Equal(allowed, want) {
		t.Errorf("allowed are %v, %v; want %v", allowed, err, want)
	}
	for _, wrong := range []string{"", "example.com", "10.0.0.0/33", "fe80::1%eth0", "10.0.0.1:80"} {
		if allowed, err := (config.Webhooks{Allow: []string{wrong}}).Allowed(); err == nil {
			t.Errorf("%q is taken as %v", wrong, allowed)
		}
	}
}
