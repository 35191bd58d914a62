package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/auth/oidc/oidctest"
)

// A user signs in by the device flow. Commands send the token, renew it, and another service does not get it.
func TestLogin(t *testing.T) {
	t.Parallel()
	provider := oidctest.Start(t)
	url, _ := serve(t, `MANIFOLD_ISSUERS={company: {issuer: "`+provider.URL+`", audience: [manifold], tenantClaim: tenant, grants: [{scopes: ['events:append', 'events:read']}],
		operators: [{claim: groups, value: ops, role: read}], signIn: {title: Company, cliClient: `+oidctest.Client+`}}}`)
	operator := []string{"MANIFOLD_URL=" + url, "MANIFOLD_OPERATOR_KEY=" + operatorKey}
	tenant := regexp.MustCompile(`[0-9a-f-]{36}`).FindString(must(t, operator, "tenant", "create", "acme"))
	path := filepath.Join(t.TempDir(), "manifold", "profiles.yaml")
	file := []string{"MANIFOLD_PROFILES=" + path}

	signIn := func(args ...string) string {
		t.Helper()
		login := launch(t, file, "", append([]string{"login"}, args...)...)
		login.await("Open " + provider.URL + "/approve?user_code=")
		provider.Approve(strings.TrimPrefix(login.await("confirm the code "), "and confirm the code "))
		if code := login.end(); code != 0 {
			t.Fatalf("login ends with %d:\n%s", code, login.output())
		}
		return login.output()
	}
	// The issuer may not have answered the service yet.
	for o := run(t, file, nil, "login", "--url", url, "--issuer", "nobody"); strings.Contains(o.err, "has not answered yet"); o = run(t, file, nil, "login", "--url", url, "--issuer", "nobody") {
		if t.Context().Err() != nil {
			t.Fatal(o.err)
		}
	}
	said(t, run(t, file, nil, "login", "--url", url, "--issuer", "nobody"), 1, `no identity provider "nobody", but company`)

	provider.SetUser(oidctest.Claims{"tenant": tenant, "preferred_username": "ann"}, 20*time.Second) // so that each command renews it
	if text := signIn("--url", url, "--profile", "work"); !strings.Contains(text, "signed in as ann; the profile work keeps the token") {
		t.Errorf("login says\n%s", text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	said(t, run(t, file, nil, "whoami"), 0, "tenant   acme", "token    ann  subject-1 of company, until ", "scope    events:append")
	must(t, file, "append", "order-1", "Placed", "{}")
	after, err := os.ReadFile(path)
	if err != nil || string(after) == string(before) {
		t.Errorf("the token was not renewed: %v", err)
	}
	if list := must(t, file, "profile", "list"); !regexp.MustCompile(`\* +work +\S+ +no +no +yes`).MatchString(list) {
		t.Errorf("the list is\n%s", list)
	}
	said(t, run(t, file, nil, "whoami", "--url", "http://127.0.0.1:1"), 1, "no key")

	provider.SetDown(true)
	said(t, run(t, file, nil, "whoami"), 1, "run manifold login again")
	provider.SetDown(false)
	must(t, file, "logout")
	said(t, run(t, file, nil, "whoami"), 1, "no key")
	said(t, run(t, file, nil, "logout"), 1, "nobody is signed in")

	provider.SetUser(oidctest.Claims{"groups": []string{"ops"}, "preferred_username": "ops"}, time.Hour)
	signIn()
	said(t, run(t, file, nil, "whoami"), 0, "role     read", "scope    operator:read")
	must(t, file, "tenant", "list")
	said(t, run(t, file, nil, "tenant", "create", "other"), 1, "the role admin")

	provider.SetUser(oidctest.Claims{"tenant": "nobody"}, time.Hour)
	login := launch(t, file, "", "login")
	provider.Approve(strings.TrimPrefix(login.await("confirm the code "), "and confirm the code "))
	login.await("Company signed you in, but the service refuses the token")
	if code := login.end(); code != 1 {
		t.Errorf("login ends with %d", code)
	}
}
