package systemtest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
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
	"github.com/manifold-es/manifold/migrations"
)

// TestConsoleScreenshots takes the pictures of docs/guides/console-tour.md, on a service with real events. `make
// screenshots` runs it. It also fails if a page lacks its words, or axe finds something.
func TestConsoleScreenshots(t *testing.T) {
	pictures := os.Getenv("MANIFOLD_TEST_SCREENSHOTS")
	if pictures == "" {
		t.Skip("MANIFOLD_TEST_SCREENSHOTS names no folder for the screenshots")
	}
	pictures, err := filepath.Abs(pictures)
	if err != nil {
		t.Fatal(err)
	}
	browser, node := needed(t, "chromium", "chromium-browser", "google-chrome"), needed(t, "node")
	_, lines := realLines(t)
	folder := installPackages(t, consoleSources, "console.browser.mjs", "console.screenshots.mjs")

	ledger := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(ledger.Close)
	closed := httptest.NewServer(nil)
	closed.Close()
	db := pgtest.Database(t)
	c := configuration(db)
	c.Admin.Listen = "none"
	c.Webhooks.Allow = []string{"127.0.0.0/8"}
	c.Webhooks.AllowHTTP = true
	// Nothing listens on this port.
	c.Egress = map[string]config.Egress{"warehouse": {Kind: config.EgressNATS, URLs: []string{"nats://127.0.0.1:1"}, Subject: "manifold.{tenant}.{category}", Categories: []string{"declaration"}}}
	provider := oidctest.Start(t)
	c.Issuers = map[string]config.Issuer{"company": {
		Issuer: provider.URL, Audience: []string{"manifold"}, TenantClaim: "tenant", Grants: []config.ClaimScopes{{Scopes: []string{string(auth.ScopeDocumentsRead)}}},
		SignIn: config.SignIn{Title: "University", ConsoleClient: oidctest.Client},
	}}
	at := inside(t, c)
	operator := newUser(t, at, operatorKey)
	_, empty := newTenant(t, operator, "museum")
	tenant, u := newTenant(t, operator, "university")
	for offered := (client.SignIn{}); len(offered.Issuers) == 0; pauseBriefly(t.Context()) {
		u.must(t, http.StatusOK, &offered, "GET", "/v1/sign-in", nil)
	}
	var named client.CreatedKey // pages say who did what
	u.must(t, http.StatusCreated, &named, "POST", "/v1/keys", client.NewKey{Name: "ada", Scopes: tenantScopes()})
	u.key = named.Key
	fillWithDeclarations(t, operator, tenant, u, lines, ledger.URL, closed.URL)
	addUsage(t, db, tenant)

	given, err := json.Marshal(map[string]any{
		"url": "http://" + string(at.(fixed)), "browser": browser, "profile": t.TempDir(), "pictures": pictures, "tail": lines[imported : imported+tailed],
		"provider": provider.URL, "key": u.key, "operatorKey": operatorKey, "emptyKey": empty.key, "tenant": tenant,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 25*time.Minute) // on an idle machine, an erasure takes two minutes, the rest five
	defer cancel()
	run := exec.CommandContext(ctx, node, "console.screenshots.mjs", string(given))
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

const (
	imported = 30_000 // lines that are there from the beginning
	tailed   = 20     // lines that arrive while a page follows the log
)

// fillWithDeclarations gives a tenant declarations and what its pages show: projections of which one has stopped,
// groups, webhooks, of which that to closed fails, and so on.
func fillWithDeclarations(t *testing.T, operator user, tenant string, u user, lines []importLine, ledger, closed string) {
	t.Helper()
	call := func(status int, method, path, body string) {
		t.Helper()
		var content any
		if body != "" {
			content = []byte(body)
		}
		u.must(t, status, nil, method, path, content)
	}
	operator.must(t, http.StatusCreated, nil, "PUT", "/v1/plans/standard",
		[]byte(`{"limits":{"requests":{"perSecond":500,"burst":1000},"events":{"perSecond":20000,"burst":50000},"connections":100},"quotas":{"events":32000,"bytes":1000000000,"projections":20,"groups":20,"webhooks":5,"keys":10}}`))
	operator.must(t, http.StatusOK, nil, "PUT", "/v1/tenants/"+tenant+"/limits", []byte(`{"plan":"standard"}`))
	for _, key := range []client.NewKey{
		{Name: "payroll", Scopes: []string{"events:read:declaration", "events:consume"}}, {Name: "reporting", Scopes: []string{"documents:read"}},
		{Name: "privacy-office", Scopes: []string{"subjects:erase", "subjects:read", "audit:read"}},
	} {
		u.must(t, http.StatusCreated, nil, "POST", "/v1/keys", key)
	}
	call(201, "PUT", "/v1/schemas/EmployeeRegistered", `{"schema":{"type":"object","required":["id","name"],"properties":{"id":{"type":"string"},"name":{"type":["string","null"]},"email":{"type":["string","null"]},"unit":{"type":"string"}}},"tags":"\"subject:\" + event.data.id","personal":["/name","/email"]}`)
	unit := `"event.data.?permitOrganizationalEntity.optMap(u, \"unit:\" + u.substring(20)).orValue(null)"`
	for _, name := range []string{"StartTrip", "PermitSubmittedByEmployee"} {
		call(201, "PUT", "/v1/schemas/"+name, `{"schema":{"type":"object","required":["role"],"properties":{"role":{"type":"string"},"amount":{"type":"number","minimum":0},"permitOrganizationalEntity":{"type":"string"}}},"tags":`+unit+`}`)
	}
	call(201, "PUT", "/v1/upcasters/PermitSubmittedByEmployee/1", `{"expression":"merge(event.data, {\"currency\": \"EUR\"})"}`)
	call(201, "POST", "/v1/streams/employee-17/events", `[{"type":"EmployeeRegistered","data":{"id":"p-2017","name":"Ada Lovelace","email":"ada@university.example","unit":"organizational unit 65458"}},{"type":"EmployeeRegistered","data":{"id":"p-2017","name":"Ada Lovelace","email":"ada.lovelace@university.example","unit":"organizational unit 65455"}}]`)
	call(201, "POST", "/v1/streams/employee-18/events", `[{"type":"EmployeeRegistered","data":{"id":"p-2018","name":"Grace Hopper","email":"grace@university.example","unit":"organizational unit 65458"}}]`)
	call(200, "PUT", "/v1/aggregates/declaration", `{"initial":{"status":"travelling","rejections":0},"on":`+declarationFold(t, "state")+`,"commands":{"Withdraw":{"description":"The employee takes the declaration back before it is paid.","input":{"type":"object","required":["reason"],"properties":{"reason":{"type":"string"}}},"require":[{"if":"state.status != \"paid\"","reject":"already-paid"}],"emit":[{"DeclarationWithdrawn":"command"}]}}}`)

	importLines := func(name string, lines []importLine) {
		t.Helper()
		var body bytes.Buffer
		encoder := json.NewEncoder(&body)
		for _, line := range lines {
			if err := encoder.Encode(line); err != nil {
				t.Fatal(err)
			}
		}
		u.must(t, http.StatusOK, nil, "POST", "/v1/import?name="+name, body.Bytes(), "Content-Type", "application/x-ndjson")
	}
	importLines("history", lines[:imported-100])
	paid := lines[imported-100]
	for i := imported - 100; paid.Type != "PaymentHandled"; i-- {
		paid = lines[i]
	}
	ordered, confirmed := "0190d3a4-5b6c-7def-8123-456789abcde0", "0190d3a4-5b6c-7def-8123-456789abcde1"
	payout := "/v1/streams/payout" + paid.Stream[len("declaration"):] + "/events"
	call(201, "POST", payout, fmt.Sprintf(`[{"id":%q,"type":"PayoutOrdered","data":{"declaration":%q,"method":"SEPA"},"metadata":{"causationId":%q}}]`, ordered, paid.Stream, paid.ID))
	call(201, "POST", payout, fmt.Sprintf(`[{"id":%q,"type":"PayoutConfirmed","data":{"bank":"NL91 ABNA"},"metadata":{"causationId":%q}}]`, confirmed, ordered))
	importLines("recent", lines[imported-100:imported])

	for _, projection := range []string{
		`declaration","initial":{"status":"travelling","rejections":0},"on":` + declarationFold(t, "doc"),
		`unit-spend","key":"event.data.?permitOrganizationalEntity.orValue(null)","initial":{"declarations":0,"requestedCents":0},"on":{"*":"{\"declarations\": doc.declarations + 1, \"requestedCents\": doc.requestedCents + math.round(event.data.requestedAmount * 100)}"}`,
		`paid-amounts","on":{"PaymentHandled":"{\"amount\": event.data.amount}"}`, // only a declaration's first event has the amount: it stops
		`budgets","onError":"park","initial":{},"on":{"*":"has(event.data.permitId) ? {\"budget\": event.data.budgetNumber} : doc"}`,
		`rejections","mode":"live","initial":{"rejections":0},"on":{"DeclarationRejectedByAdministration":"{\"rejections\": doc.rejections + 1}"}`,
	} {
		call(201, "POST", "/v1/projections", `{"source":{"categories":["declaration"]},"name":"`+projection+`}`)
	}
	call(201, "POST", "/v1/projections", `{"name":"employees","source":{"categories":["employee"]},"on":{"*":"merge(doc, event.data)"}}`)
	for _, name := range []string{"declaration", "unit-spend", "budgets", "employees"} {
		call(200, "POST", "/v1/projections/"+name+"/catch-up?timeout=30", "")
	}
	call(201, "POST", "/v1/snapshots/declaration-6997", "")
	call(201, "PUT", "/v1/subscriptions/payroll", `{"source":{"categories":["declaration"]},"types":["RequestPayment"],"ordering":"stream","partitions":4,"ackTimeout":3600}`)
	call(201, "PUT", "/v1/subscriptions/reminders", `{"source":{"categories":["declaration"]},"types":["SendReminder"],"ackTimeout":3600}`)
	call(201, "PUT", "/v1/webhooks/ledger", `{"source":{"categories":["declaration"]},"types":["PaymentHandled"],"url":"`+ledger+`/hooks/ledger","from":"start"}`)
	call(201, "PUT", "/v1/webhooks/travel-office", `{"source":{"categories":["declaration"]},"types":["DeclarationRejectedByAdministration"],"url":"`+closed+`/hooks/rejected","from":"start"}`)
	call(201, "PUT", "/v1/retention/payout", `{"maxAge":157680000}`)
	call(201, "PUT", "/v1/retention/heartbeat", `{"maxAge":2592000,"maxCount":100000}`)
	call(200, "PUT", "/v1/retention/payout", `{"maxAge":220752000}`)
	var received client.Deliveries
	u.must(t, http.StatusOK, &received, "POST", "/v1/subscriptions/reminders/receive", []byte(`{"batch":8}`))
	for i, delivery := range received.Deliveries {
		switch {
		case i < 3:
			call(200, "POST", "/v1/subscriptions/reminders/nack", fmt.Sprintf(`{"ids":[{"id":%q,"attempt":1}],"action":"park","reason":"the employee has no address"}`, delivery.Event.Id))
		case i < 5:
			call(200, "POST", "/v1/subscriptions/reminders/nack", fmt.Sprintf(`{"ids":[{"id":%q,"attempt":1}],"delay":3600,"reason":"the mail server is busy"}`, delivery.Event.Id))
		}
	}
}

// declarationFold returns how a declaration is folded, as the rules of a definition. before names what was folded so
// far.
func declarationFold(t *testing.T, before string) string {
	t.Helper()
	rules := make(map[string]string)
	for _, name := range []string{"PermitSubmittedByEmployee", "StartTrip"} {
		rules[name] = fmt.Sprintf(`has(event.data.amount) ? merge(%[1]s, {"amount": event.data.amount}) : %[1]s`, before)
	}
	for name, status := range map[string]string{
		"DeclarationSavedByEmployee": "saved", "DeclarationSubmittedByEmployee": "submitted", "DeclarationApprovedByAdministration": "in-approval",
		"DeclarationApprovedByBudgetOwner": "in-approval", "DeclarationFinalApprovedBySupervisor": "approved", "RequestPayment": "payment-requested", "PaymentHandled": "paid",
	} {
		rules[name] = fmt.Sprintf(`merge(%s, {"status": %q})`, before, status)
	}
	for _, name := range []string{"DeclarationRejectedByAdministration", "DeclarationRejectedByBudgetOwner", "DeclarationRejectedByEmployee", "DeclarationRejectedBySupervisor"} {
		rules[name] = fmt.Sprintf(`merge(%[1]s, {"status": "rejected", "rejections": %[1]s.rejections + 1})`, before)
	}
	text, err := json.Marshal(rules)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// addUsage gives a tenant usage on days before this one.
func addUsage(t *testing.T, db pgtest.DB, tenant string) {
	t.Helper()
	if _, err := db.Pool(t, migrations.RoleSystem, 1).Exec(t.Context(), `
		insert into manifold.usage_days (tenant_id, day, events, bytes, documents, deliveries, steps)
		select $1, current_date - n, 18000 + (n * 2740) % 14000, (18000 + (n * 2740) % 14000) * 120, 12000 + (n * 1130) % 5000, 9000 + (n * 710) % 4000, (18000 + (n * 2740) % 14000) * 60
		from generate_series(1, 29) n`, tenant); err != nil {
		t.Fatal(err)
	}
}
