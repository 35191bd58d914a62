package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// What a newcomer types first, from an event to its document, state and snapshot.
func TestFirstCommands(t *testing.T) {
	t.Parallel()
	environ := sharedTenant(t, "acme")
	folder := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	want := func(pattern string, o outcome, code int) {
		t.Helper()
		if text := o.out + o.err; o.code != code || !regexp.MustCompile(pattern).MatchString(text) {
			t.Errorf("it ends with %d, and does not say %s:\n%s", o.code, pattern, text)
		}
	}
	cli := func(args ...string) outcome { t.Helper(); return run(t, environ, nil, args...) }

	must(t, environ, "projection", "apply", file("orders.yaml", "name: orders\nsource: {categories: [order]}\non: {'*': '{\"total\": doc.?total.orValue(0) + event.data.?price.orValue(0)}'}\n"))
	must(t, environ, "aggregate", "put", file("order.yaml", "category: order\ninitial: {total: 0}\nsnapshotEvery: 10\non: {'*': '{\"total\": state.total + event.data.?price.orValue(0)}'}\n"))

	id := "0190d3a4-7c1e-7b52-9d3f-5a6b7c8d9e0f"
	want(`^1  order-1  version 1  `+id+`\n$`, cli("append", "order-1", "OrderPlaced", "--id", id, "--expected-version", "none", "--tag", "shop:1", "--metadata", `{"by": "test"}`), 0)
	want(`version 1  `+id+`  \(duplicate\)`, cli("append", "order-1", "OrderPlaced", "--id", id, "--tag", "shop:1", "--metadata", `{"by": "test"}`), 0)
	want(`version-conflict|wrong-expected-version|expected`, cli("append", "order-1", "OrderPlaced", "--expected-version", "none"), 1)
	lines := strings.NewReader(`{"type": "ItemAdded", "data": {"price": 12}}` + "\n\n" + `{"type": "ItemAdded", "data": {"price": 5}}` + "\n")
	want(`^2  order-1  version 2  .*\n3  order-1  version 3  .*\n$`, run(t, environ, lines, "append", "order-1", "--lines"), 0)
	want(`line 2 is not an event`, run(t, environ, strings.NewReader("{}\nnope\n"), "append", "order-1", "--lines"), 1)
	want(`standard input has no events`, run(t, environ, strings.NewReader("\n"), "append", "order-1", "--lines"), 1)
	want(`no type`, cli("append", "order-1"), 1)
	want(`is not JSON`, cli("append", "order-1", "Noted", "plain text"), 1)
	want(`--metadata is not JSON`, cli("append", "order-1", "Noted", "--metadata", "x"), 1)
	want(`is not a time`, cli("append", "order-1", "Noted", "--occurred-at", "yesterday"), 1)
	want(`cannot be combined`, cli("append", "order-1", "--lines", "--id", id), 1)

	want(`OrderPlaced[\s\S]*ItemAdded`, cli("read", "order-1"), 0)
	want(`12  order-1  version 12`, run(t, environ, strings.NewReader(strings.Repeat(`{"type": "ItemAdded", "data": {"price": 1}}`+"\n", 9)), "append", "order-1", "--lines"), 0)
	want(`^{\n  "total": 26\n}\n$`, cli("get", "orders", "order-1", "--min-position", "12"), 0)
	want(`no document`, cli("get", "orders", "order-2"), 1)
	want(`version 12 of order-1, from the snapshot of version`, cli("aggregate", "state", "order-1"), 0)
	want(`"total": 12`, cli("aggregate", "state", "order-1", "--version", "2"), 0)
	want(`--version must be at least 1`, cli("aggregate", "state", "order-1", "--version", "0"), 1)
	taken := func() bool { return strings.Contains(cli("snapshot", "list", "order-1").out, "\n12 ") }
	for deadline := time.Now().Add(time.Minute); !taken() && time.Now().Before(deadline); { // in the background
	}
	want(`VERSION +TAKEN +TAG\n12 `, cli("snapshot", "list", "order-1"), 0)
	want(`"total": 26`, cli("snapshot", "show", "order-1"), 0)
	want(`"total": 26[\s\S]*version 12 of order-1, taken at`, cli("snapshot", "take", "order-1"), 0)
	want(`"tag": *"mine"`, cli("snapshot", "take", "order-1", "--state", "7", "--version", "2", "--tag", "mine", "--json"), 0)
	want(`--version and --tag need --state`, cli("snapshot", "take", "order-1", "--version", "3"), 1)
	want(`--state is not JSON`, cli("snapshot", "take", "order-1", "--state", "x"), 1)
	want(`tenant +acme[\s\S]*scope +events:append`, cli("whoami"), 0)

	// Formats.
	want(`^\[\n  {\n    "version": 12,`, cli("snapshot", "list", "order-1", "-o", "json"), 0)
	want(`^\[\]\n$`, cli("snapshot", "list", "order-2", "-o", "json"), 0)
	want(`(?m)^version: 12$`, cli("snapshot", "list", "order-1", "-o", "yaml"), 0)
	want(`^{"version":12,`, cli("snapshot", "list", "order-1", "-o", "ndjson"), 0)
	want(`VERSION`, cli("snapshot", "list", "order-1", "-o", "table"), 0)
	want(`"xml" is not one of table, json, yaml, ndjson`, cli("snapshot", "list", "order-1", "-o", "xml"), 1)
	want(`cannot be combined`, cli("snapshot", "list", "order-1", "-o", "json", "--json"), 1)
	if text := must(t, environ, "projection", "documents", "orders", "--page-size", "1"); strings.Count(text, "\n") != 1 {
		t.Errorf("a page of one document is\n%s", text)
	}

	// A shell completes names that are there.
	want(`^orders\n:4`, cli("__complete", "rebuild", "or"), 0)
	want(`^orders\nusage\n:4`, cli("__complete", "get", ""), 0)
	want(`^:4`, cli("__complete", "group", "get", ""), 0)

	// What is printed again and again.
	watch := launch(t, environ, "", "snapshot", "list", "order-1", "--watch", "200ms")
	watch.await("VERSION")
	watch.await("VERSION")
	if code := watch.end(syscall.SIGINT); code != 0 {
		t.Errorf("--watch ends with %d:\n%s", code, watch.output())
	}
	want(`--watch must be at least`, cli("snapshot", "list", "order-1", "--watch", "1ms"), 1)
	top := launch(t, environ, "", "top", "--interval", "200ms")
	top.await("head 12")
	top.await("positions/s")
	top.await("orders")
	if code := top.end(syscall.SIGINT); code != 0 {
		t.Errorf("top ends with %d:\n%s", code, top.output())
	}
}

func TestProfiles(t *testing.T) {
	t.Parallel()
	url, _ := serve(t)
	acme, other := newTenant(t, url, "acme"), newTenant(t, url, "other")
	key := func(environ []string) string { return strings.TrimPrefix(environ[1], "MANIFOLD_KEY=") }
	path := filepath.Join(t.TempDir(), "manifold", "profiles.yaml")
	file := "MANIFOLD_PROFILES=" + path
	set := func(key string, args ...string) outcome {
		t.Helper()
		return run(t, []string{file}, strings.NewReader(key+"\n"), append([]string{"profile", "set"}, args...)...)
	}
	whoami := func(want string, environ []string, args ...string) {
		t.Helper()
		if o := run(t, append(environ, file), nil, append([]string{"whoami"}, args...)...); !strings.Contains(o.out+o.err, want) {
			t.Errorf("whoami %v does not say %s:\n%s%s", args, want, o.out, o.err)
		}
	}
	whoami("no key", nil)
	whoami(`there is no profile "acme": make it by manifold profile set acme`, nil, "--profile", "acme")
	for name, environ := range map[string][]string{"acme": acme, "other": other} {
		if o := set(key(environ), name, "--url", url, "--key"); o.code != 0 {
			t.Fatal(o.err)
		}
	}
	must(t, []string{file}, "profile", "use", "acme")
	whoami("acme", nil)
	whoami("other", nil, "--profile", "other")
	whoami("other", []string{"MANIFOLD_PROFILE=other"})
	whoami("other", other)                               // the environment precedes the current profile,
	whoami("acme", other, "--profile", "acme")           // and a profile that is named precedes the environment
	whoami("other", nil, "--key", key(other))            // at the current profile's URL
	whoami("no key", nil, "--url", "http://127.0.0.1:1") // a key stays with its URL
	whoami(`there is no profile "nope", but acme, other`, nil, "--profile", "nope")
	if o := set(operatorKey, "acme", "--operator-key"); o.code != 0 {
		t.Error(o.err)
	}
	if text := must(t, []string{file}, "tenant", "list"); !strings.Contains(text, "other") {
		t.Errorf("the operator sees\n%s", text)
	}

	list := must(t, []string{file}, "profile", "list")
	if !regexp.MustCompile(`(?m)^\* +acme +\S+ +yes +yes +no\n +other +\S+ +yes +no +no$`).MatchString(list) || strings.Contains(list, "mfk_") {
		t.Errorf("the list is\n%s", list)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	// Another service gets no old key.
	if o := set("mfk_new", "acme", "--url", "http://127.0.0.1:2", "--key"); o.code != 0 {
		t.Error(o.err)
	}
	if list := must(t, []string{file}, "profile", "list"); !regexp.MustCompile(`acme +http://127.0.0.1:2 +yes +no`).MatchString(list) {
		t.Errorf("at another URL the profile has\n%s", list)
	}
	if o := set("", "acme", "--url", "http://127.0.0.1:3"); o.code != 0 {
		t.Error(o.err)
	}
	whoami(`profile "acme" has no key`, nil, "--profile", "acme")
	whoami("no key", nil)
	for text, o := range map[string]outcome{
		"is not a URL":                       set("", "acme", "--url", "acme"),
		"no URL":                             set("", "new"),
		"expected one key on standard input": set("two\nkeys", "acme", "--key"),
		`there is no profile "nope"`:         run(t, []string{file}, nil, "profile", "use", "nope"),
	} {
		if o.code != 1 || !strings.Contains(o.err, text) {
			t.Errorf("it ends with %d, and does not say %s: %s", o.code, text, o.err)
		}
	}
	must(t, []string{file}, "profile", "remove", "acme")
	whoami("no key", nil)
	if err := os.WriteFile(path, []byte("profiles: {x: {secret: mfk_1}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	whoami("profiles.yaml", nil)
	whoami("other", other) // which does not need the file
}

// A service's messages arrive at webhook listen, which verifies them.
func TestWebhookListen(t *testing.T) {
	t.Parallel()
	url, _ := serve(t, "MANIFOLD_WEBHOOKS_ALLOW=127.0.0.1", "MANIFOLD_WEBHOOKS_ALLOW_HTTP=true")
	environ := newTenant(t, url, "hooks")
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+/`)
	listen := func(args ...string) (*running, string) {
		t.Helper()
		r := launch(t, environ, "", append([]string{"webhook", "listen", "--listen", "127.0.0.1:0"}, args...)...)
		return r, address.FindString(r.await("listening at"))
	}
	open, to := listen()
	made := must(t, environ, "webhook", "put", "mail", "--category", "order", "--to", to)
	secret := regexp.MustCompile(`whsec_\S+`).FindString(made)
	must(t, environ, "webhook", "test", "mail")
	open.await("not verified")
	if code := open.end(syscall.SIGINT); code != 0 {
		t.Errorf("it ends with %d:\n%s", code, open.output())
	}

	verifying, to := listen("--secret", "whsec_"+strings.Repeat("A", 32), "--secret", secret)
	must(t, environ, "webhook", "put", "mail", "--to", to)
	must(t, environ, "webhook", "test", "mail")
	verifying.await("  verified")

	wrong, to := listen("--secret", "whsec_"+strings.Repeat("A", 32), "--json")
	must(t, environ, "webhook", "put", "mail", "--to", to)
	if o := run(t, environ, nil, "webhook", "test", "mail"); o.code != 1 || !strings.Contains(o.err, "401") {
		t.Errorf("a message with a wrong signature is answered with %s%s", o.out, o.err)
	}
	wrong.await("REFUSED")
	if strings.Contains(wrong.output(), "{") {
		t.Errorf("as JSON it prints a message with a wrong signature:\n%s", wrong.output())
	}
	for text, args := range map[string][]string{
		"begins with whsec_": {"--secret", "?"}, "--answer must be": {"--answer", "99"}, "--listen": {"--listen", "nowhere"},
	} {
		if o := run(t, environ, nil, append([]string{"webhook", "listen"}, args...)...); o.code != 1 || !strings.Contains(o.err, text) {
			t.Errorf("%v: %d, %s", args, o.code, o.err)
		}
	}
}

// Hints name the program as it was called.
func TestHintsNameTheProgramAsItWasCalled(t *testing.T) {
	t.Parallel()
	if text := must(t, nil, "--version"); text != must(t, nil, "version") {
		t.Errorf("--version prints %s", text)
	}
	o := runAs(t, program, []string{"MANIFOLD_PROFILES=" + filepath.Join(t.TempDir(), "none")}, nil, "whoami", "--profile", "none")
	if want := fmt.Sprintf("make it by %s profile set none", program); !strings.Contains(o.err, want) {
		t.Errorf("it should say %s:\n%s", want, o.err)
	}
	for _, arguments := range [][]string{{"cluster", "status", "--url"}, {"tenant", "suspend"}} {
		o := runAs(t, program, nil, nil, arguments...)
		if !strings.Contains(o.err, " "+program+" "+arguments[0]+" "+arguments[1]) {
			t.Errorf("it should name %s:\n%s", program, o.err)
		}
	}
}

// The documentation is a folder of files, and those of an earlier release do not get mixed with them.
func TestDocsAreWritten(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "site")
	if out := must(t, nil, "docs", "--out", folder); !regexp.MustCompile(`: \d{3} files; begin with index.html\n$`).MatchString(out) {
		t.Errorf("it says %q", out)
	}
	for _, name := range []string{"index.html", "guides/rebuild.html", "client/typescript.html", "changelog.html", "api.html", "openapi.yaml", "search.json"} {
		if info, err := os.Stat(filepath.Join(folder, name)); err != nil || info.Size() < 1000 {
			t.Errorf("%s: %v", name, err)
		}
	}
	if o := run(t, nil, nil, "docs", "--out", folder); o.code != 1 || !strings.Contains(o.err, "is not empty: choose a new folder") {
		t.Errorf("it writes to the folder again: %+v", o)
	}
}
