package cli_test

import (
	"strings"
	"testing"
)

func TestGuideToTheAuditLog(t *testing.T) {
	t.Parallel()
	runGuide(t, "audit.md", 2)
}

func TestAudit(t *testing.T) {
	t.Parallel()
	url, _ := serve(t)
	tenant := newTenant(t, url, "acme")
	operator := []string{"MANIFOLD_URL=" + url, "MANIFOLD_OPERATOR_KEY=" + operatorKey}
	must(t, tenant, "group", "put", "mail", "--category", "order")
	must(t, tenant, "group", "put", "other", "--category", "order")
	must(t, tenant, "audit", "--action", "putSubscription", "--follow", "--count", "4", "--since", "1h") // the outcomes may be late
	for _, c := range []struct {
		environ []string
		args    string
		want    []string
		without string
	}{
		{tenant, "--action putSubscription", []string{"ActionStarted", "ActionDone", "putSubscription  by key", "name=mail", "name=other"}, "createTenantKey"},
		{tenant, "subscription-mail", []string{"name=mail"}, "name=other"},
		{tenant, "subscription-mail -o ndjson --count 1", []string{`"action":"putSubscription"`}, "ActionDone"},
		{tenant, "--actor operator --follow --count 2 --since 1h", []string{"createTenantKey  by operator"}, "putSubscription"},
		{operator, "--operator --types ActionDone", []string{"createTenant  by operator"}, "putSubscription"},
	} {
		got := must(t, c.environ, append([]string{"audit"}, strings.Fields(c.args)...)...)
		for _, want := range c.want {
			if !strings.Contains(strings.ReplaceAll(got, `": `, `":`), want) {
				t.Errorf("audit %s does not say %q but\n%s", c.args, want, got)
			}
		}
		if strings.Contains(got, c.without) {
			t.Errorf("audit %s says %q:\n%s", c.args, c.without, got)
		}
	}
	for _, wrong := range []string{"key --action createKey", "--follow --backward"} {
		if o := run(t, tenant, nil, append([]string{"audit"}, strings.Fields(wrong)...)...); o.code != 1 || !strings.Contains(o.err, "cannot be combined") {
			t.Errorf("audit %s ends with %d and says %s", wrong, o.code, o.err)
		}
	}
}
