package api_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/manifold-es/manifold/domain"
)

// endpoint is the target of a test's webhooks.
type endpoint struct {
	*httptest.Server
	status  atomic.Int64
	arrived chan message
}

// message is a message that has arrived at an endpoint.
type message struct {
	header http.Header
	body   []byte
}

// newEndpoint starts an endpoint that answers with a status, which can be changed.
func newEndpoint(t *testing.T, status int) *endpoint {
	e := &endpoint{arrived: make(chan message, 1000)}
	e.status.Store(int64(status))
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		status := int(e.status.Load())
		w.WriteHeader(status)
		if status >= 300 {
			_, _ = io.WriteString(w, "not <now>")
		}
		e.arrived <- message{r.Header, body}
	}))
	t.Cleanup(e.Close)
	return e
}

// next waits for a message.
func (e *endpoint) next(t *testing.T) message {
	t.Helper()
	select {
	case m := <-e.arrived:
		return m
	case <-time.After(patience):
		t.Fatal("nothing has arrived")
		panic("not reached")
	}
}

// wantSigned checks for each of the secrets whether the message is signed with it, as by says.
func (m message) wantSigned(t *testing.T, by bool, secrets ...string) {
	t.Helper()
	for _, secret := range secrets {
		if err := m.signed(t, secret); (err == nil) != by {
			t.Errorf("signed with %.12s...: %v; want %v", secret, err, by)
		}
	}
}

// signed returns nil if the message is signed with a secret.
func (m message) signed(t *testing.T, secret string) error {
	t.Helper()
	verifier, err := standardwebhooks.NewWebhook(secret)
	must(t, err)
	return verifier.Verify(m.body, m.header)
}

// webhook creates a webhook of the category order, from the start, and returns its first secret.
func (a *actor) webhook(name, url string, more object) (secret string) {
	a.t.Helper()
	body := object{"source": object{"categories": list{"order"}}, "from": "start", "url": url}
	for field, value := range more {
		body[field] = value
	}
	return a.send("PUT", "/v1/webhooks/"+name, body).want(201).text("secrets", 0, "secret")
}

// until repeats a request until the answer is as wanted.
func (a *actor) until(path string, as func(*answer) bool) *answer {
	a.t.Helper()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	late := time.After(patience)
	for {
		got := a.get(path).want(200)
		if as(got) {
			return got
		}
		select {
		case <-ticker.C:
		case <-late:
			a.t.Fatalf("%s stays at %s", path, got.body)
		}
	}
}

func TestAWebhookFromItsMakingToItsEnd(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	e := newEndpoint(t, 204)
	a.append("order-1", 2)
	a.append("bill-1", 1)
	body := object{"source": object{"categories": list{"order"}}, "query": object{"items": list{object{"types": list{"Happened"}}}}, "filter": "event.data.n < 100 && true", "from": "start", "url": e.URL + "/a?b=c&d=e", "delay": 0.001}
	made := a.send("PUT", "/v1/webhooks/mail", body).want(201)
	secret := made.text("secrets", 0, "secret")
	if !strings.HasPrefix(secret, "whsec_") || !strings.Contains(string(made.body), "b=c&d=e") {
		t.Fatalf("made is %s", made.body)
	}
	ids := map[string]bool{}
	for range 2 {
		m := e.next(t)
		m.wantSigned(t, true, secret)
		ids[m.header.Get("Webhook-Id")] = true
	}
	equal(t, "how many events have arrived", len(ids), 2)
	done := a.until("/v1/webhooks/mail", func(got *answer) bool { return got.number("progress", "checkpoint") >= 2 })
	equal(t, "what it is", without(done.json(), "createdAt", "updatedAt", "progress", "secrets"), object{
		"name": "mail", "source": object{"categories": list{"order"}}, "query": object{"items": list{object{"types": list{"Happened"}}}}, "filter": "event.data.n < 100 && true", "url": e.URL + "/a?b=c&d=e", "delay": 0.001,
		"from": "start", "format": "standard", "ordering": "none", "timeout": 15, "paused": false, "head": 3,
	})
	again := a.send("PUT", "/v1/webhooks/mail", body).want(200)
	for what, got := range map[string]*answer{"read": done, "put again": again, "listed": a.get("/v1/webhooks")} {
		if strings.Contains(string(got.body), "whsec_") {
			t.Errorf("%s: the secret is there once more: %s", what, got.body)
		}
	}
	equal(t, "the list", a.get("/v1/webhooks").want(200).at("webhooks", 0, "name"), "mail")

	attempts := a.until("/v1/webhooks/mail/attempts", func(got *answer) bool { return len(got.at("attempts").(list)) == 2 })
	for i := range 2 {
		equal(t, "an attempt", without(attempts.at("attempts", i).(object), "id", "eventId", "took", "at", "position"),
			object{"type": "Happened", "attempt": 1, "replay": false, "url": e.URL + "/a?b=c&d=e", "outcome": "ok", "status": 204})
	}

	// A second secret signs in addition to the first one, until the first one is removed.
	first := done.text("secrets", 0, "id")
	second := a.post("/v1/webhooks/mail/secrets", object{}).want(201)
	equal(t, "how many secrets there are", len(a.get("/v1/webhooks/mail").at("secrets").(list)), 2)
	further := 0 // events until it signs: attempts under way still have the old signature
	for signed := false; !signed; further++ {
		if further == 100 {
			t.Fatal("the second secret does not sign")
		}
		a.append("order-2", 1)
		m := e.next(t)
		m.wantSigned(t, true, secret)
		signed = m.signed(t, second.text("secret")) == nil
	}
	a.send("DELETE", "/v1/webhooks/mail/secrets/"+first, nil).want(204)
	tested := a.post("/v1/webhooks/mail/test", nil).want(200)
	equal(t, "the test", without(tested.json(), "id", "eventId", "took", "at"),
		object{"type": "webhook.test", "position": 0, "attempt": 0, "replay": false, "url": e.URL + "/a?b=c&d=e", "outcome": "ok", "status": 204})
	test := e.next(t)
	test.wantSigned(t, true, second.text("secret"))
	test.wantSigned(t, false, secret)
	a.send("DELETE", "/v1/webhooks/mail/secrets/"+first, nil).wantProblem(404, domain.CodeNotFound, "secretId")
	a.send("DELETE", "/v1/webhooks/mail/secrets/"+second.text("id"), nil).wantProblem(409, domain.CodeConflict, "secretId")
	last := a.post("/v1/webhooks/mail/secrets", object{"expireOldAfter": 3600}).want(201)
	there := a.get("/v1/webhooks/mail")
	if there.text("secrets", 0, "expiresAt") == "" || there.text("secrets", 1, "id") != last.text("id") {
		t.Errorf("with one that replaces the other in an hour there are %v", there.at("secrets"))
	}

	// Events wait while the webhook is paused.
	equal(t, "the pause", a.post("/v1/webhooks/mail/pause", nil).want(200).at("paused"), true)
	a.append("order-3", 1)
	equal(t, "its end", a.post("/v1/webhooks/mail/resume", nil).want(200).at("paused"), false)
	if m := e.next(t); !strings.Contains(string(m.body), `"order-3"`) {
		t.Errorf("behind the pause there came %s", m.body)
	}

	a.get("/v1/webhooks/mail/replay").wantProblem(404, domain.CodeNotFound, "name")
	equal(t, "a replay", without(a.post("/v1/webhooks/mail/replay", object{"from": 2}).want(202).json(), "startedAt", "progress"), object{"from": 2, "to": 4 + further})
	replayed := map[string]bool{}
	for range 2 + further {
		replayed[e.next(t).header.Get("Webhook-Id")] = true
	}
	equal(t, "how many were sent again", len(replayed), 2+further)
	ended := a.until("/v1/webhooks/mail/replay", func(got *answer) bool { return strings.Contains(string(got.body), "doneAt") })
	equal(t, "how far the replay has come", ended.at("progress", "checkpoint"), 4+further)
	a.send("DELETE", "/v1/webhooks/mail/replay", nil).want(204)
	a.send("DELETE", "/v1/webhooks/mail/replay", nil).wantProblem(404, domain.CodeNotFound, "name")

	a.send("PUT", "/v1/subscriptions/webhook.mail", object{}).wantProblem(409, domain.CodeConflict, "name")
	a.get("/v1/subscriptions/webhook.mail").want(200)
	a.send("DELETE", "/v1/webhooks/mail", nil).want(204)
	a.get("/v1/subscriptions/webhook.mail").want(404)
	for _, call := range [][2]string{
		{"GET", ""}, {"DELETE", ""}, {"POST", "/pause"}, {"POST", "/resume"}, {"GET", "/attempts"}, {"GET", "/replay"}, {"DELETE", "/replay"},
		{"POST", "/test"}, {"DELETE", "/secrets/" + first},
	} {
		problem := a.send(call[0], "/v1/webhooks/mail"+call[1], nil).wantProblem(404, domain.CodeNotFound, "name")
		if detail := problem["detail"].(string); !strings.Contains(detail, `webhook "mail"`) {
			t.Errorf("%s %s of a webhook that is gone: %s", call[0], call[1], detail)
		}
	}
	a.post("/v1/webhooks/mail/replay", object{"from": 1}).wantProblem(404, domain.CodeNotFound, "name")
	a.post("/v1/webhooks/mail/secrets", object{}).wantProblem(404, domain.CodeNotFound, "name")
}

// An endpoint that answers 410 gets no more messages. The webhook shows this, and continues only when it is resumed.
func TestAWebhookThatIsGone(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	e := newEndpoint(t, 410)
	a.append("order-1", 1)
	a.webhook("mail", e.URL, nil)
	e.next(t)
	disabled := a.until("/v1/webhooks/mail", func(got *answer) bool { return strings.Contains(string(got.body), `"disabled"`) })
	if !strings.Contains(disabled.text("disabled", "reason"), "410") {
		t.Errorf("the reason is %q", disabled.text("disabled", "reason"))
	}
	gone := a.until("/v1/webhooks/mail/attempts?outcome=gone", func(got *answer) bool { return len(got.at("attempts").(list)) > 0 })
	equal(t, "the attempt", list{gone.at("attempts", 0, "status"), gone.at("attempts", 0, "excerpt")}, list{410, "not <now>"})
	if !strings.Contains(string(gone.body), "not <now>") {
		t.Errorf("what the endpoint has said is written %s", gone.body)
	}
	e.status.Store(200)
	if resumed := a.post("/v1/webhooks/mail/resume", nil).want(200); strings.Contains(string(resumed.body), `"disabled"`) {
		t.Errorf("resumed it is %s", resumed.body)
	}
	equal(t, "whose event comes then", e.next(t).header.Get("Webhook-Id"), gone.text("attempts", 0, "eventId"))
}

func TestAttemptsInPages(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	e := newEndpoint(t, 500)
	a.append("order-1", 7)
	a.webhook("mail", e.URL, nil)
	a.until("/v1/webhooks/mail/attempts?outcome=failed", func(got *answer) bool { return len(got.at("attempts").(list)) >= 5 })
	equal(t, "the pause", a.post("/v1/webhooks/mail/pause", nil).want(200).at("paused"), true)
	now := a.get("/v1/webhooks/mail").want(200)
	equal(t, "why it does not get on", list{now.at("failing", "outcome"), now.at("failing", "status")}, list{"failed", 500})
	if n := now.number("failing", "attempts"); n < 5 {
		t.Errorf("it has failed %v times", n)
	}
	var all []string
	for next := "/v1/webhooks/mail/attempts?outcome=failed&pageSize=2"; next != ""; {
		page := a.get(next).want(200)
		for i := range page.at("attempts").(list) {
			all = append(all, page.text("attempts", i, "id"))
			equal(t, "an attempt", list{page.at("attempts", i, "status"), page.at("attempts", i, "outcome"), page.at("attempts", i, "excerpt")}, list{500, "failed", "not <now>"})
			if page.text("attempts", i, "nextAt") == "" {
				t.Errorf("it is not tried again: %v", page.at("attempts", i))
			}
		}
		next = page.next()
	}
	if len(all) < 5 || !slices.IsSortedFunc(all, func(a, b string) int { return strings.Compare(b, a) }) {
		t.Errorf("the pages have %v", all)
	}
	of := a.get("/v1/webhooks/mail/attempts").text("attempts", 0, "eventId")
	for i, attempt := range a.get("/v1/webhooks/mail/attempts?eventId=" + of).want(200).at("attempts").(list) {
		equal(t, fmt.Sprintf("the event of attempt %d", i), attempt.(object)["eventId"], of)
	}
	equal(t, "those of no event", a.get("/v1/webhooks/mail/attempts?eventId="+idOfNothing).want(200).at("attempts"), list{})
	a.get("/v1/webhooks/mail/attempts?outcome=great").wantProblem(400, domain.CodeInvalidRequest, "query outcome")
	a.get("/v1/webhooks/mail/attempts?eventId=7").wantProblem(400, domain.CodeInvalidRequest, "query eventId")
	a.get("/v1/webhooks/mail/attempts?pageToken=nonsense").wantProblem(400, domain.CodeInvalidRequest, "query pageToken")
}

func TestWebhooksAreListedInPages(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	for _, name := range []string{"b", "d", "a", "c", "a-b"} {
		a.webhook(name, "http://127.0.0.1:1024/"+name, object{"source": object{"categories": list{map[bool]string{true: "bill", false: "order"}[name == "c"]}}})
	}
	names := func(by *actor) (all []string) {
		for next := "/v1/webhooks?pageSize=2"; next != ""; {
			page := by.get(next).want(200)
			for i := range page.at("webhooks").(list) {
				all = append(all, page.text("webhooks", i, "name"))
				equal(t, "whose it is", page.at("webhooks", i, "url"), "http://127.0.0.1:1024/"+page.text("webhooks", i, "name"))
			}
			next = page.next()
		}
		return all
	}
	equal(t, "the webhooks", fmt.Sprint(names(a)), "[a a-b b c d]")
	equal(t, "those that a key for bills sees", fmt.Sprint(names(&actor{w, w.keyOf(a.tenantID, "subscriptions:write:bill"), a.tenantID})), "[c]")
	equal(t, "those of another tenant", len(names(w.tenant("other"))), 0)
}

// A caller that has a webhook send events must be allowed to read them and, for a projection, its documents.
func TestWhoMayMakeAWebhook(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.post("/v1/projections", object{"name": "orders", "source": object{"categories": list{"order"}}, "on": object{"*": "doc"}}).want(201)
	a.post("/v1/projections", object{"name": "all", "on": object{"*": "doc"}}).want(201)
	of := func(source object) object {
		return object{"source": source, "url": "http://127.0.0.1:1024/", "from": "end"}
	}
	orders, projection, all := object{"categories": list{"order"}}, object{"projection": "orders"}, object{"projection": "all"}
	for i, c := range []struct {
		grants string
		source object
		status int
	}{
		{"subscriptions:write:order", orders, 403},
		{"subscriptions:write:order events:read:order", orders, 201},
		{"subscriptions:write:order events:consume:order", orders, 201},
		{"subscriptions:write:order events:read:bill", orders, 403},
		{"subscriptions:write:bill events:read", orders, 403},
		{"subscriptions:write events:read:order", object{"stream": "bill-1"}, 403},
		{"subscriptions:write:order events:read:order", object{"stream": "order-1"}, 201},
		{"subscriptions:write:order events:read:order", object{}, 403},
		{"subscriptions:write events:read", projection, 403},
		{"subscriptions:write:order events:read:order documents:read", projection, 201},
		{"subscriptions:write:order events:read:order documents:read", all, 403},
		{"subscriptions:write events:read documents:read", all, 201},
		{"subscriptions:write events:read documents:read", object{"projection": "none"}, 400},
	} {
		by := &actor{w, w.keyOf(a.tenantID, strings.Fields(c.grants)...), a.tenantID}
		got := by.send("PUT", fmt.Sprintf("/v1/webhooks/w%d", i), of(c.source))
		if got.status != c.status {
			t.Errorf("with %s, of %v: %d %s; want %d", c.grants, c.source, got.status, got.body, c.status)
		}
		if got.status == 403 {
			got.wantProblem(403, domain.CodeForbidden, "source")
		}
	}
	// Only a caller that may change an existing webhook in its current form changes it. A caller that may read its
	// events may read it.
	a.webhook("bill", "http://127.0.0.1:1024/", object{"source": object{"categories": list{"bill"}}})
	some := &actor{w, w.keyOf(a.tenantID, "subscriptions:write:order", "events:read:order"), a.tenantID}
	some.send("PUT", "/v1/webhooks/bill", of(orders)).wantProblem(403, domain.CodeForbidden, "")
	some.get("/v1/webhooks/bill").wantProblem(403, domain.CodeForbidden, "")
	some.get("/v1/webhooks/none").wantProblem(404, domain.CodeNotFound, "name")
}

// An error about an invalid request says where it is and what to do.
func TestProblemsOfWebhooks(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	a.append("order-1", 3)
	a.webhook("w", "http://127.0.0.1:1024/", object{"ordering": "stream"})
	a.post("/v1/webhooks/w/pause", nil).want(200)
	a.post("/v1/projections", object{"name": "live", "mode": "live", "on": object{"*": "doc"}}).want(201)
	put := func(more string) [3]string {
		return [3]string{"PUT", "/v1/webhooks/new", `{"url":"https://example.com/"` + more + `}`}
	}
	to := func(url string) [3]string {
		return [3]string{"PUT", "/v1/webhooks/new", fmt.Sprintf(`{"url":%q}`, url)}
	}
	post := func(path, body string) [3]string { return [3]string{"POST", "/v1/webhooks/w/" + path, body} }
	for _, c := range []struct {
		call   [3]string
		status int
		code   domain.Code
		where  string
		detail string
	}{
		{[3]string{"PUT", "/v1/webhooks/New", `{"url":"https://example.com"}`}, 400, domain.CodeInvalidRequest, "path name", "must match"},
		{[3]string{"PUT", "/v1/webhooks/a.b", `{"url":"https://example.com"}`}, 400, domain.CodeInvalidRequest, "path name", "must match"},
		{[3]string{"PUT", "/v1/webhooks/new", `{}`}, 400, domain.CodeInvalidRequest, "url", ""},
		{[3]string{"PUT", "/v1/webhooks/new", ``}, 400, domain.CodeInvalidRequest, "body", "request body missing"},
		{to(""), 400, domain.CodeInvalidRequest, "url", ""},
		{to("example.com/events"), 400, domain.CodeInvalidRequest, "url", "https://example.com/events"},
		{to("ftp://example.com/"), 400, domain.CodeInvalidRequest, "url", "https://example.com/events"},
		{to("https:///events"), 400, domain.CodeInvalidRequest, "url", "host"},
		{to("https://me:secret@example.com/"), 400, domain.CodeInvalidRequest, "url", "password"},
		{to("https://example.com/#here"), 400, domain.CodeInvalidRequest, "url", "fragment"},
		{to("https://example.com:25/"), 400, domain.CodeInvalidRequest, "url", "25"},
		{to("https://10.0.0.1/"), 400, domain.CodeInvalidRequest, "url", "public"},
		{to("https://[::1]/"), 400, domain.CodeInvalidRequest, "url", "public"},
		{to("https://169.254.169.254/latest/meta-data"), 400, domain.CodeInvalidRequest, "url", "public"},
		{to("https://example.com/" + strings.Repeat("x", 2000)), 400, domain.CodeInvalidRequest, "url", "2000"},
		{put(`,"uri":1`), 400, domain.CodeInvalidRequest, "body", `unknown field "uri"`},
		{put(`,"source":{"topic":"order"}`), 400, domain.CodeInvalidRequest, "source", "expected categories, projection, stream"},
		{put(`,"source":{"projection":"none"}`), 400, domain.CodeInvalidRequest, "source.projection", "none"},
		{put(`,"source":{"projection":"live"}`), 422, domain.CodeUnsupported, "source.projection", "async"},
		{put(`,"source":{"projection":"live","categories":["order"]}`), 400, domain.CodeInvalidRequest, "source", "one or the other"},
		{put(`,"source":{"stream":"order-1","categories":["order"]}`), 400, domain.CodeInvalidRequest, "source", "not both"},
		{put(`,"source":{"categories":["a-b"]}`), 400, domain.CodeInvalidRequest, "source.categories[0]", "a-b"},
		{put(`,"query":{"items":[{"tags":["a b"]}]}`), 400, domain.CodeInvalidRequest, "query.items[0].tags[0]", "a b"},
		{put(`,"filter":"event.data.n >\n"`), 422, domain.CodeInvalidDefinition, "filter", "line "},
		{put(`,"filter":"true\n  && doc.n > 1"`), 422, domain.CodeInvalidDefinition, "filter", "line 2, column 6"},
		{put(`,"dedupe":{"id":"event.data.","window":10}`), 422, domain.CodeInvalidDefinition, "dedupe.id", "line 1, column "},
		{put(`,"dedupe":{"id":"event.data.id"}`), 400, domain.CodeInvalidRequest, "dedupe.window", ""},
		{put(`,"dedupe":{"window":10}`), 400, domain.CodeInvalidRequest, "dedupe.id", ""},
		{put(`,"dedupe":{"id":"event.data.id","window":0.5}`), 400, domain.CodeInvalidRequest, "dedupe.window", "1 to 604800"},
		{put(`,"delay":-1`), 400, domain.CodeInvalidRequest, "delay", "0 to 2592000"},
		{put(`,"timeout":16`), 400, domain.CodeInvalidRequest, "timeout", "1 to 15"},
		{put(`,"format":"xml"`), 400, domain.CodeInvalidRequest, "format", "standard, cloudevents"},
		{put(`,"ordering":"strict"`), 400, domain.CodeInvalidRequest, "ordering", "none, stream"},
		{put(`,"from":"yesterday"`), 400, domain.CodeInvalidRequest, "from", "yesterday"},
		{put(`,"from":"` + idOfNothing + `"`), 404, domain.CodeNotFound, "from", idOfNothing},
		{[3]string{"PUT", "/v1/webhooks/w", `{"url":"http://127.0.0.1:1024/","ordering":"none"}`}, 409, domain.CodeConflict, "ordering", "another webhook"},
		{[3]string{"PUT", "/v1/webhooks/w", `{"url":"http://127.0.0.1:1024/","from":"end"}`}, 409, domain.CodeConflict, "from", "replay"},
		{post("secrets", `{"expireOldAfter":-1}`), 400, domain.CodeInvalidRequest, "expireOldAfter", "0 to 2592000"},
		{[3]string{"DELETE", "/v1/webhooks/w/secrets/7", ""}, 400, domain.CodeInvalidRequest, "path secretId", ""},
		{post("replay", `{}`), 400, domain.CodeInvalidRequest, "from", ""},
		{post("replay", `{"from":0}`), 400, domain.CodeInvalidRequest, "from", ""},
		{post("replay", `{"from":3,"to":2}`), 400, domain.CodeInvalidRequest, "to", "before from"},
		{post("replay", `{"from":1,"to":99}`), 400, domain.CodeInvalidRequest, "to", "the log ends with 3"},
		{[3]string{"GET", "/v1/webhooks?pageToken=nonsense", ""}, 400, domain.CodeInvalidRequest, "query pageToken", ""},
	} {
		got := a.send(c.call[0], c.call[1], c.call[2])
		if got.status != c.status {
			t.Errorf("%s %s with %.100s: %d %s; want %d", c.call[0], c.call[1], c.call[2], got.status, got.body, c.status)
			continue
		}
		if detail := got.wantProblem(c.status, c.code, c.where)["detail"].(string); !strings.Contains(detail, c.detail) {
			t.Errorf("%s %s with %.100s: %s; want %q in it", c.call[0], c.call[1], c.call[2], detail, c.detail)
		}
	}
	a.get("/v1/webhooks/new").want(404)
	a.post("/v1/webhooks/w/replay", object{"from": 1, "to": 2}).want(202)
	a.post("/v1/webhooks/w/replay", object{"from": 1, "to": 2}).wantProblem(409, domain.CodeConflict, "")
	for range 4 {
		a.post("/v1/webhooks/w/secrets", object{}).want(201)
	}
	a.post("/v1/webhooks/w/secrets", object{}).wantProblem(409, domain.CodeConflict, "")
}

// testWebhooks runs the documented requests of webhooks, after the documented appends.
func testWebhooks(t *testing.T, documented *documentation, a *actor) {
	e := newEndpoint(t, 204)
	made := documented.run(a, "putWebhook", 201)
	a.post("/v1/webhooks/billing/pause", nil).want(200)
	again := documented.run(a, "putWebhook", 200)
	equal(t, "the webhook, put again", without(again.json(), "secrets", "progress", "updatedAt", "paused"), without(made.json(), "secrets", "progress", "updatedAt", "paused"))
	documented.run(a, "getWebhook", 200)
	equal(t, "the webhooks", documented.run(a, "listWebhooks", 200).at("webhooks", 0, "name"), "billing")
	added := documented.run(a, "addWebhookSecret", 201)
	documented.params["secretId"] = made.text("secrets", 0, "id")
	documented.run(a, "removeWebhookSecret", 204)
	delete(documented.params, "secretId")

	// The messages go to the test's endpoint, not to the documentation's host.
	to, err := url.JoinPath(e.URL, "events")
	must(t, err)
	a.send("PUT", "/v1/webhooks/billing", object{"source": object{"categories": list{"order"}}, "url": to}).want(200)
	documented.run(a, "testWebhook", 200)
	e.next(t).wantSigned(t, true, added.text("secret"))
	documented.skip = map[string]bool{"eventId": true, "outcome": true}
	equal(t, "the test among the attempts", documented.run(a, "listWebhookAttempts", 200).at("attempts", 0, "type"), "webhook.test")
	documented.skip = nil
	documented.run(a, "resumeWebhook", 200)
	documented.run(a, "startWebhookReplay", 202)
	documented.run(a, "getWebhookReplay", 200)
	documented.run(a, "cancelWebhookReplay", 204)
	documented.run(a, "pauseWebhook", 200)
	documented.run(a, "deleteWebhook", 204)
}
