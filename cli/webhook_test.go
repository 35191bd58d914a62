package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// What docs/guides/webhooks.md leaves out: definitions in files, what a change shows, JSON, and what is refused.
func TestWebhookCommands(t *testing.T) {
	t.Parallel()
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not now\nnot here", http.StatusTeapot) }))
	t.Cleanup(endpoint.Close)
	url, _ := serve(t, "MANIFOLD_WEBHOOKS_ALLOW=127.0.0.1", "MANIFOLD_WEBHOOKS_ALLOW_HTTP=true")
	environ := newTenant(t, url, "hooks")
	with := func(stdin string, args ...string) outcome {
		t.Helper()
		return run(t, environ, strings.NewReader(stdin), append([]string{"webhook"}, args...)...)
	}
	want := func(what string, o outcome, code int, patterns ...string) {
		t.Helper()
		if o.code != code {
			t.Fatalf("%s ends with %d:\n%s%s", what, o.code, o.out, o.err)
		}
		rest := o.out + o.err
		for _, pattern := range patterns {
			at := regexp.MustCompile(pattern).FindStringIndex(rest)
			if at == nil {
				t.Fatalf("%s does not say %q:\n%s%s", what, pattern, o.out, o.err)
			}
			rest = rest[at[1]:]
		}
	}
	definition := "name: mail\nurl: " + endpoint.URL + "\nsource: {categories: [order]}\ntypes: [Placed]\ndedupe: {id: event.data.id, window: 60}\n"
	want("a webhook from a file", with(definition, "put", "mail", "-f", "-"), 0, `^mail: created\nsecret [0-9a-f-]{36}, shown this once:\nwhsec_[A-Za-z0-9+/]{43}=\n$`)
	want("the same", with(definition, "put", "mail", "-f", "-"), 0, `^mail: nothing to change\n$`)
	want("a change", with("", "put", "mail", "--types", "", "--delay", "90s", "--dedupe-window", "5m", "--filter", "event.data.n > 1"), 0,
		`^mail: changed\n`, `types\n`, `Placed`, `filter\n`, `event.data.n > 1`, `delay\n`, `90`, `dedupe\n`, `"id":"event.data.id","window":300`)
	want("a projection that there is not", with("", "put", "mail", "--projection", "none"), 1, `source.projection`, `no projection "none"`)
	want("no dedupe", with("", "put", "mail", "--dedupe", "", "--stream", "order-1", "--delay", "0s"), 0, `changed`, `"stream":"order-1"`, `dedupe`)
	want("a wrong expression", with("", "put", "mail", "--filter", "event.data.n >"), 1, `filter`, `line 1`)
	want("another's name", with(definition, "put", "other", "-f", "-"), 1, `it defines the webhook "mail", not other`)
	want("what is no definition", with("[1, 2]", "put", "mail", "-f", "-"), 1, `expected a webhook's definition`)
	want("an address that is not allowed", with("", "put", "inside", "--to", "https://10.1.2.3/"), 1, `url`, `not a public address`)
	want("two sources", with("", "put", "mail", "--stream", "a-1", "--category", "b"), 1, `stream`)

	want("a webhook", with("", "get", "mail"), 0, `^mail: active, of order-1 from end\n`, `filter: +event.data.n > 1\n`, `standard, within 15s, ordering none\n`, `secrets: +1\n`)
	var webhook struct {
		Name    string
		Secrets []map[string]string
	}
	if err := json.Unmarshal([]byte(with("", "get", "mail", "--json").out), &webhook); err != nil || webhook.Name != "mail" || len(webhook.Secrets) != 1 || webhook.Secrets[0]["secret"] != "" {
		t.Errorf("as JSON it is %+v, %v", webhook, err)
	}
	want("a test that is refused", with("", "test", "mail"), 1, `mail: failed 418 after`, `the test message was not accepted: it was answered with 418: not now not here`)
	want("its attempt", with("", "attempts", "mail", "--limit", "1", "--json"), 0, `^{"id":.*"outcome":"failed","status":418,.*"excerpt":"not now\\nnot here\\n".*}\n$`)
	want("those of an outcome that there is not", with("", "attempts", "mail", "--outcome", "great"), 1, `outcome`)

	want("another secret", with("", "secrets", "add", "mail"), 0, `shown this once`)
	want("the first one's removal", with("", "secrets", "remove", "mail", webhook.Secrets[0]["id"]), 0, `^mail: removed the secret`)
	want("its removal once more", with("", "secrets", "remove", "mail", webhook.Secrets[0]["id"]), 1, `no secret`)
	want("a replay of nothing", with("", "replay", "mail", "--from", "1"), 1, `the log ends with 0`)
	want("no replay", with("", "replay", "mail"), 1, `no replay`)
	want("a range without its beginning", with("", "replay", "mail", "--to", "1"), 1, `--to needs --from`)
	want("a new one without a URL", with("", "put", "fresh", "--category", "order"), 1, `--to`)
	want("a range and its end", with("", "replay", "mail", "--from", "1", "--cancel"), 1, `cancel`)
	want("the list", with("", "list", "--json"), 0, `^{"name":"mail",.*}\n$`)
	want("a deletion that nobody means", with("", "delete", "mail"), 1, `--yes`)
	want("a deletion", with("", "delete", "mail", "--yes"), 0)
	want("what is gone", with("", "get", "mail"), 1, `no webhook "mail"`)
}
