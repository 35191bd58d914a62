package doctor

import (
	"strings"
	"testing"

	"github.com/manifold-es/manifold/auth/oidc/oidctest"
	"github.com/manifold-es/manifold/config"
)

func TestDoctorOfIssuers(t *testing.T) {
	t.Parallel()
	up, down := oidctest.Start(t), oidctest.Start(t)
	down.SetDown(true)
	operators := []config.ClaimRole{{Claim: "groups", Value: "ops", Role: "admin"}}
	d := &doctor{config: config.Config{Issuers: map[string]config.Issuer{
		"up":   {Issuer: up.URL, Audience: []string{"manifold"}, Operators: operators},
		"down": {Issuer: down.URL, Audience: []string{"manifold"}, Operators: operators},
	}}}
	d.issuers(t.Context())
	if f := found(t, d.findings, "issuer up"); f.Verdict != Fine || !strings.Contains(f.Message, "1 keys of "+up.URL) {
		t.Errorf("of an issuer that is up it says %+v", f)
	}
	if f := found(t, d.findings, "issuer down"); f.Verdict != Warning || !strings.Contains(f.Message, "502") || !strings.Contains(f.Todo, down.URL) {
		t.Errorf("of an issuer that is down it says %+v", f)
	}
	wrong := &doctor{config: config.Config{Issuers: map[string]config.Issuer{"a": {Operators: []config.ClaimRole{{Role: "root"}}}}}}
	wrong.issuers(t.Context())
	if f := found(t, wrong.findings, "issuers"); f.Verdict != Failure || !strings.Contains(f.Message, `"root" is not a role`) {
		t.Errorf("of a role that does not exist it says %+v", f)
	}
}
