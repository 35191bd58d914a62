package doctor

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/service"
)

// issuers checks that the keys of each issuer of tokens can be loaded. The service works without an issuer.
func (d *doctor) issuers(ctx context.Context) {
	if _, err := service.TokenRules(d.config); err != nil {
		d.fail("issuers", err.Error(), "fix it; docs/reference/configuration.md has every setting")
		return
	}
	verifier := service.TokenVerifier(d.config, quietLog)
	if verifier == nil {
		return
	}
	began := time.Now()
	verifier.Load(ctx)
	for _, state := range verifier.States() {
		check := "issuer " + state.Name
		if state.Err != nil {
			d.warn(check, "its keys could not be loaded: "+state.Err.Error(), "check that this machine reaches "+state.URL+"; until then its tokens are refused")
		} else {
			d.ok(check, "%d keys of %s, loaded within %s", state.Keys, state.URL, time.Since(began).Round(time.Millisecond))
		}
	}
}
