package systemtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/auth/oidc/oidctest"
	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// consoleSources is the folder of the console's sources.
var consoleSources = filepath.Join("..", "console", "web")

// TypeScript's compiler accepts the console, and every page of it works in a browser.
func TestConsole(t *testing.T) {
	t.Parallel()
	needed(t, "node")
	folder := installPackages(t, consoleSources, "console.browser.mjs", "console.test.mjs")
	t.Run("types", func(t *testing.T) {
		t.Parallel()
		checkConsoleTypes(t, folder)
	})
	t.Run("vendored files", func(t *testing.T) {
		t.Parallel()
		compareVendoredFiles(t, folder)
	})
	t.Run("browser", func(t *testing.T) {
		t.Parallel()
		browseConsole(t, folder)
	})
}

// compareVendoredFiles fails if a vendored script is not that of the package in folder, whose hash is in the lock file.
func compareVendoredFiles(t *testing.T, folder string) {
	vendor := filepath.Join(consoleSources, "vendor")
	compared := 0
	err := filepath.WalkDir(vendor, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || entry.Name() == "LICENSE" {
			return err
		}
		name, err := filepath.Rel(vendor, path)
		if err != nil {
			return err
		}
		original, err := originalOfVendored(filepath.Join(folder, "node_modules"), name)
		if err != nil {
			return err
		}
		want, err := os.ReadFile(original)
		if err != nil {
			return err
		}
		want, _, _ = bytes.Cut(want, []byte("\n//# sourceMappingURL="))
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(bytes.TrimSpace(got), bytes.TrimSpace(want)) {
			t.Errorf("%s differs from %s of its package: %v", path, filepath.Base(original), err)
		}
		compared++
		return nil
	})
	if err != nil || compared == 0 {
		t.Fatalf("%d files compared: %v", compared, err)
	}
}

// originalOfVendored returns the file of an installed package of which a vendored file is a copy. A package's index.js
// is its ES module.
func originalOfVendored(packages, vendored string) (string, error) {
	switch part := filepath.Base(vendored); part {
	case "hooks.mjs", "jsxRuntime.mjs":
		folder := map[string]string{"hooks.mjs": "hooks", "jsxRuntime.mjs": "jsx-runtime"}[part]
		return filepath.Join(packages, "preact", folder, "dist", part), nil
	case "preact.mjs":
		return filepath.Join(packages, "preact", "dist", part), nil
	case "uplot.css":
		return filepath.Join(packages, "uplot", "dist", "uPlot.min.css"), nil
	}
	folder := filepath.Join(packages, filepath.Dir(vendored))
	content, err := os.ReadFile(filepath.Join(folder, "package.json"))
	if err != nil {
		return "", err
	}
	var about struct{ Main, Module string }
	if err := json.Unmarshal(content, &about); err != nil {
		return "", fmt.Errorf("%s: %w", folder, err)
	}
	return filepath.Join(folder, cmp.Or(about.Module, about.Main)), nil
}

// browseConsole opens every page on a service with events, faults, dead letters and a failing webhook.
// console.test.mjs lists the checks.
func browseConsole(t *testing.T, folder string) {
	browser, node := needed(t, "chromium", "chromium-browser", "google-chrome"), needed(t, "node")
	c := configuration(pgtest.Database(t))
	c.Admin.Listen = "none" // so that the operator signs in at the same address
	c.Webhooks.Allow = []string{"127.0.0.0/8"}
	// Nothing listens on this port.
	c.Egress = map[string]config.Egress{"warehouse": {Kind: config.EgressNATS, URLs: []string{"nats://127.0.0.1:1"}, Subject: "manifold.{category}.{key}", Categories: []string{"order"}}}
	provider := oidctest.Start(t)
	c.Issuers = map[string]config.Issuer{"company": {
		Issuer: provider.URL, Audience: []string{"manifold"}, TenantClaim: "tenant", Grants: []config.ClaimScopes{{Scopes: []string{"documents:read"}}},
		SignIn: config.SignIn{Title: "Company", ConsoleClient: oidctest.Client},
	}}
	at := inside(t, c)
	operator := newUser(t, at, operatorKey)
	tenant, u := newTenant(t, operator, "acme")
	fillForConsole(t, u)
	provider.SetUser(oidctest.Claims{"tenant": tenant, "name": "Ann"}, 20*time.Second) // the console renews it at once
	for offered := (client.SignIn{}); len(offered.Issuers) == 0; pauseBriefly(t.Context()) {
		u.must(t, http.StatusOK, &offered, "GET", "/v1/sign-in", nil)
	}
	var limited client.CreatedKey
	u.must(t, http.StatusCreated, &limited, "POST", "/v1/keys", client.NewKey{Name: "limited", Scopes: []string{string(auth.ScopeDocumentsRead)}})

	var second client.CreatedKey
	u.must(t, http.StatusCreated, &second, "POST", "/v1/keys", client.NewKey{Name: "second", Scopes: []string{string(auth.ScopeSubjectsErase), string(auth.ScopeSubjectsRead)}})

	given, err := json.Marshal(map[string]string{
		"url": "http://" + string(at.(fixed)), "browser": browser, "profile": t.TempDir(),
		"provider": provider.URL, "key": u.key, "limitedKey": limited.Key, "secondKey": second.Key, "operatorKey": operatorKey, "tenant": tenant,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // an erasure takes two minutes, the rest half a minute on an idle machine
	defer cancel()
	run := exec.CommandContext(ctx, node, "console.test.mjs", string(given))
	run.Dir = folder
	var stderr bytes.Buffer
	run.Stderr = &stderr
	out, err := run.Output()
	var problems []string
	if err != nil || json.Unmarshal(out, &problems) != nil {
		t.Fatalf("%v\n%s\n%s", err, out, stderr.Bytes())
	}
	for _, problem := range problems {
		t.Error(problem)
	}
}

// fillForConsole gives a tenant something for each page.
func fillForConsole(t *testing.T, u user) {
	t.Helper()
	var lines bytes.Buffer
	for i := range 1000 {
		stream, event := fmt.Sprintf("order-%d", i/5), fmt.Sprintf(`"type":"ItemAdded","data":{"sku":"A-%d","price":%d.5},"tags":["sku:A-%d"]`, i%7, i%90, i%7)
		if i%5 == 0 {
			event = fmt.Sprintf(`"type":"OrderPlaced","data":{"customer":"Ada %d"}`, i)
		}
		fmt.Fprintf(&lines, `{"stream":%q,%s}`+"\n", stream, event)
	}
	u.must(t, http.StatusOK, nil, "POST", "/v1/import?name=orders", lines.Bytes(), "Content-Type", "application/x-ndjson")
	for _, call := range []struct {
		status             int
		method, path, body string
	}{
		{200, "PUT", "/v1/aggregates/order", `{"initial":{"items":0},"on":{"OrderPlaced":"merge(state, event.data)","ItemAdded":"merge(state, {\"items\": state.items + 1})"},"commands":{"Add":{"input":{"type":"object","required":["price"],"properties":{"price":{"type":"number"},"sku":{"type":"string"}}},"require":[{"if":"command.price > 0.0","reject":"price"}],"emit":[{"ItemAdded":"command"}]}}}`},
		{201, "POST", "/v1/snapshots/order-1", ``},
		{201, "PUT", "/v1/projections/orders", `{"source":{"categories":["order"]},"key":"event.stream","initial":{"items":0},"on":{"OrderPlaced":"merge(doc, event.data)","ItemAdded":"merge(doc, {\"items\": doc.items + 1})"}}`},
		{201, "PUT", "/v1/projections/broken", `{"source":{"categories":["order"]},"key":"event.stream","on":{"*":"{\"sku\": event.data.sku}"}}`},
		{201, "PUT", "/v1/projections/parking", `{"source":{"categories":["order"]},"key":"event.stream","onError":"park","on":{"*":"{\"sku\": event.stream == \"order-3\" ? event.data.sku : \"\"}"}}`},
		{200, "POST", "/v1/projections/orders/catch-up?timeout=30", ``},
		{200, "POST", "/v1/projections/parking/catch-up?timeout=30", ``},
		{202, "POST", "/v1/projections/orders/rebuilds", `{"approve":"manual","definition":{"source":{"categories":["order"]},"key":"event.stream","initial":{"items":0},"on":{"ItemAdded":"{\"items\": doc.items + 1}"}}}`},
		{201, "PUT", "/v1/subscriptions/mail", `{"source":{"categories":["order"]},"from":"start"}`},
		{201, "PUT", "/v1/subscriptions/shared", `{"source":{"categories":["order"]},"from":"start","partitions":4}`},
		{201, "PUT", "/v1/webhooks/crm", `{"source":{"categories":["order"]},"url":"https://127.0.0.1:1024/","from":"start"}`},
		{201, "PUT", "/v1/retention/heartbeat", `{"maxAge":2592000}`},
		{201, "PUT", "/v1/schemas/OrderPlaced", `{"schema":{"type":"object"}}`},
	} {
		var body any
		if call.body != "" {
			body = []byte(call.body)
		}
		u.must(t, call.status, nil, call.method, call.path, body)
	}
	u.must(t, http.StatusCreated, nil, "POST", "/v1/streams/customer-17/events", []byte(`[{"type":"CustomerRegistered","data":{"email":"ada@example.com"},"tags":["subject:c-17"]}]`))
	var received client.Deliveries
	u.must(t, http.StatusOK, &received, "POST", "/v1/subscriptions/mail/receive", []byte(`{"batch":3}`))
	for _, delivery := range received.Deliveries {
		u.must(t, http.StatusOK, nil, "POST", "/v1/subscriptions/mail/nack",
			[]byte(fmt.Sprintf(`{"ids":[{"id":%q,"attempt":1}],"action":"park","reason":"the address is unknown"}`, delivery.Event.Id)))
	}
}

// checkConsoleTypes compiles the sources with the types of the packages that they import, which are in folder.
func checkConsoleTypes(t *testing.T, folder string) {
	sources, err := filepath.Abs(consoleSources)
	if err != nil {
		t.Fatal(err)
	}
	types := func(part string) []string {
		return []string{filepath.Join(folder, "node_modules", "preact", part, "src", "index.d.ts")}
	}
	configured, err := json.Marshal(map[string]any{
		"extends": filepath.Join(sources, "tsconfig.check.json"),
		"compilerOptions": map[string]any{"paths": map[string][]string{
			"preact": types(""), "preact/hooks": types("hooks"), "preact/jsx-runtime": types("jsx-runtime"),
			"*": {filepath.Join(folder, "node_modules", "*")},
		}},
		"include": []string{filepath.Join(sources, "src")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "tsconfig.json"), configured, 0o600); err != nil {
		t.Fatal(err)
	}
	check := exec.CommandContext(t.Context(), filepath.Join(folder, "node_modules", ".bin", "tsc"), "--project", folder)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
