package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// memory is a log in memory. It fails while down is set, after it has appended: the answers are lost.
type memory struct {
	mu     sync.Mutex
	down   bool
	events map[domain.EventID]domain.NewEvent
	known  map[[2]domain.UUID]bool // the log and the event
	logs   map[domain.TenantID]int
}

func (m *memory) append(_ context.Context, log domain.TenantID, events domain.Append) (domain.Appended, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.events == nil {
		m.known = make(map[[2]domain.UUID]bool)
		m.events, m.logs = make(map[domain.EventID]domain.NewEvent), make(map[domain.TenantID]int)
	}
	for _, s := range events.Streams {
		if err := domain.CheckStream("", s.Stream); err != nil {
			return domain.Appended{}, err
		}
		for _, e := range s.Events {
			if id := [2]domain.UUID{domain.UUID(log), domain.UUID(e.ID)}; !m.known[id] {
				m.known[id] = true
				m.logs[log]++
			}
			m.events[e.ID] = e
		}
	}
	if m.down {
		return domain.Appended{}, errors.New("the answer was lost")
	}
	return domain.Appended{}, nil
}

func TestAnOutcomeIsWrittenOnce(t *testing.T) {
	t.Parallel()
	m, tenant := &memory{}, domain.NewTenantID()
	r := New(Config{Append: m.append})
	action, err := r.Begin(t.Context(), Action{Caller: tenant, Owners: []domain.TenantID{tenant}, Category: "webhook", Operation: "putWebhook", Targets: map[string]string{"name": "a/b"}})
	if err != nil {
		t.Fatal(err)
	}
	m.down = true
	action.End(t.Context(), Outcome{Type: TypeDone, Status: 200})
	r.Flush(t.Context())
	m.down = false
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := r.Run(ctx); err != nil { // it appends once more when it ends
		t.Fatal(err)
	}
	if len(r.outcomes) != 0 || m.logs[tenant.AuditLog()] != 2 {
		t.Errorf("%d events wait, and the log has %v", len(r.outcomes), m.logs)
	}
}

// If an action cannot be recorded in all its logs, it is not tried, and the logs that have recorded it say that it was
// refused.
func TestAnActionThatIsNotTriedHasAnOutcome(t *testing.T) {
	t.Parallel()
	for want, failed := range map[int]error{
		1: domain.Errorf(domain.CodeUnavailable, "", "no connection"),
		2: domain.Errorf(domain.CodeOutcomeUnknown, "", "the answer was lost"),
	} {
		m, tenant := &memory{}, domain.NewTenantID()
		failing := true
		r := New(Config{Append: func(ctx context.Context, log domain.TenantID, events domain.Append) (domain.Appended, error) {
			if failing && log == tenant.AuditLog() {
				return domain.Appended{}, failed
			}
			return m.append(ctx, log, events)
		}})
		_, err := r.Begin(t.Context(), Action{Owners: []domain.TenantID{domain.Everyone, tenant}, Category: "key", Operation: "createTenantKey"})
		if !errors.Is(err, failed) {
			t.Fatal(err)
		}
		failing = false
		r.Flush(t.Context())
		if m.logs[domain.Everyone.AuditLog()] != 2 || m.logs[tenant.AuditLog()] != want-1 {
			t.Errorf("%v: the logs have %v", failed, m.logs)
		}
	}
}

// While the database does not answer, denied requests of many tenants do not displace outcomes.
func TestDenialsDoNotDisplaceOutcomes(t *testing.T) {
	t.Parallel()
	m, tenant := &memory{down: true}, domain.NewTenantID()
	r := New(Config{Append: m.append})
	for range 3 {
		for range maxLogs {
			r.Denied(domain.NewTenantID(), Denial{Operation: "readAll"})
		}
		r.Flush(t.Context())
	}
	m.down = false
	action, err := r.Begin(t.Context(), Action{Caller: tenant, Owners: []domain.TenantID{tenant}, Category: "key", Operation: "createKey"})
	if err != nil {
		t.Fatal(err)
	}
	m.down = true
	action.End(t.Context(), Outcome{Type: TypeDone})
	r.Flush(t.Context())
	if len(r.outcomes) != 1 || len(r.counts) != maxPending {
		t.Errorf("%d outcomes and %d counts wait", len(r.outcomes), len(r.counts))
	}
}

func TestNothingIsAppendedForEndedTenants(t *testing.T) {
	t.Parallel()
	m, ended := &memory{}, domain.NewTenantID()
	r := New(Config{Append: m.append, Ended: func(_ context.Context, tenant domain.TenantID) (bool, error) { return tenant == ended, nil }})
	for _, tenant := range []domain.TenantID{ended, domain.NewTenantID(), domain.Everyone} {
		r.Denied(tenant, Denial{Operation: "readAll"})
	}
	r.Flush(t.Context())
	if len(m.logs) != 2 || m.logs[ended.AuditLog()] != 0 || len(r.counts) != 0 {
		t.Errorf("the logs have %v, and %d counts wait", m.logs, len(r.counts))
	}
}

// docs/guides/audit.md states these bounds.
func TestStoredBytesAreBounded(t *testing.T) {
	t.Parallel()
	m, tenant := &memory{}, domain.NewTenantID()
	r := New(Config{Append: m.append})
	long := Clean(strings.Repeat("<", 1000)) // each is six bytes in JSON
	text := json.RawMessage(`"` + strings.Repeat("x", maxText-2) + `"`)
	for range actionsBurst {
		action, err := r.Begin(t.Context(), Action{
			Caller: tenant, Owners: []domain.TenantID{tenant}, Category: "projection", Operation: "discardParkedDocument",
			Targets: map[string]string{"name": long, "documentId": long}, Query: map[string]string{"tenant": long},
			Actor: Actor{Kind: "token", Name: long, Issuer: "corp", Subject: long, Role: "admin"}, Origin: Origin{RequestID: domain.NewUUID().String(), UserAgent: long, Traceparent: long[:64]},
			Request: text, Before: text,
		})
		if err != nil {
			t.Fatal(err)
		}
		action.End(t.Context(), Outcome{Type: TypeDone, After: text})
	}
	bodies := 0
	for _, e := range m.events {
		var data struct{ Request, Before, After json.RawMessage }
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
		recorded := len(data.Request) + len(data.Before) + len(data.After)
		bodies += recorded
		if rest := len(e.Data) + len(strings.Join(e.Tags, "")) - recorded; rest > 12<<10 {
			t.Errorf("an event has %d bytes besides bodies", rest)
		}
	}
	if limit := bodiesADay * 11 / 10; bodies < bodiesADay/2 || bodies > limit {
		t.Errorf("%d bytes of bodies were recorded, above %d", bodies, limit)
	}
}

func TestActionsOfATenantAreLimited(t *testing.T) {
	t.Parallel()
	m, tenant := &memory{}, domain.NewTenantID()
	r := New(Config{Append: m.append})
	begin := func(caller domain.TenantID) error {
		_, err := r.Begin(t.Context(), Action{Caller: caller, Owners: []domain.TenantID{caller}, Category: "key", Operation: "createKey"})
		return err
	}
	var refused error
	for range actionsBurst + 200 {
		refused = errors.Join(refused, begin(tenant))
		if err := begin(domain.Everyone); err != nil {
			t.Fatal(err)
		}
	}
	if !domain.IsCode(refused, domain.CodeTooManyRequests) || begin(domain.NewTenantID()) != nil {
		t.Errorf("the error is %v", refused)
	}
}

// However many kinds of requests are denied, and for however many tenants, few events count all of them.
func TestDenialsAreBounded(t *testing.T) {
	t.Parallel()
	m, tenant := &memory{}, domain.NewTenantID()
	r := New(Config{Append: m.append})
	const kinds = 500
	for i := range kinds {
		r.Denied(tenant, Denial{Actor: Actor{Kind: "key", Key: domain.NewUUID().String()}, Operation: "readAll", Code: fmt.Sprint(i)})
		r.Denied(domain.Everyone, Denial{Operation: "readAll", Code: fmt.Sprint(i)})
	}
	for range 2 * maxLogs {
		r.Denied(domain.NewTenantID(), Denial{Operation: "readAll"})
	}
	r.Flush(t.Context())
	if m.logs[tenant.AuditLog()] != maxDenials+1 || m.logs[domain.Everyone.AuditLog()] != maxOperatorDenials+1 || len(m.logs) != maxLogs {
		t.Errorf("%d events of the tenant, %d of operators, %d logs", m.logs[tenant.AuditLog()], m.logs[domain.Everyone.AuditLog()], len(m.logs))
	}
	var total int64
	for _, e := range m.events {
		var counted denied
		if err := json.Unmarshal(e.Data, &counted); err != nil {
			t.Fatal(err)
		}
		total += counted.Count
	}
	if total != 2*kinds+2*maxLogs {
		t.Errorf("%d requests were counted", total)
	}
}

func TestMask(t *testing.T) {
	t.Parallel()
	given := `{"key":"event.data.id % 2","made":["mfk_x","Bearer mft_x"],"of":{"secret":"whsec_x","mfk_x":1},"n":12345678901234567890,
		"urls":["https://u:p@h/a?t=1"," HTTPS://h:8080/hooks/T0/secret","\"postgres://u:p@h/","amqp://h#x","https://h/","http://%zz","nats:///x"]}`
	want := `{"key":"event.data.id % 2","made":["***","***"],"n":12345678901234567890,"of":{"***":1,"secret":"***"},` +
		`"urls":["https://h/***","https://h:8080/***","***","amqp://h/***","https://h/","***","***"]}`
	if got := string(Mask([]byte(given))); got != want {
		t.Errorf("masked: %s", got)
	}
	if Mask([]byte("no JSON")) != nil || Mask(nil) != nil {
		t.Error("what is no JSON is not left out")
	}
	long := shorten(json.RawMessage(`"` + strings.Repeat("x", maxText) + `"`))
	if len(long) > 2*maxBegin || !json.Valid(long) {
		t.Errorf("what is too long has %d bytes", len(long))
	}
	if got := string(Mask([]byte(`"` + strings.Repeat("x", MaxMasked) + `"`))); got != `{"cut":true,"bytes":262146}` {
		t.Errorf("what is far too long is %s", got)
	}
	if got := MaskText("a\x00\xff mfk_x"); got != masked {
		t.Errorf("a text is %q", got)
	}
	if got := Clean("a\x00\xff\n"); got != "a\uFFFD\uFFFD\uFFFD" {
		t.Errorf("a text is %q", got)
	}
}

func TestActorsTagsAreValid(t *testing.T) {
	t.Parallel()
	for want, actor := range map[string]Actor{
		"actor:operator": {Kind: "operator"}, "actor:key:k": {Kind: "key", Key: "k"}, "actor:token:corp:ada": {Kind: "token", Issuer: "corp", Subject: "ada"},
	} {
		if actor.Tag() != want {
			t.Errorf("the tag is %s, want %s", actor.Tag(), want)
		}
	}
	odd := Actor{Kind: "token", Issuer: "corp", Subject: strings.Repeat("ü ", 200)}
	if err := domain.CheckTag("", odd.Tag()); err != nil {
		t.Error(err)
	}
}
