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
	logs   map[domain.TenantID]int
}

func (m *memory) append(_ context.Context, log domain.TenantID, events domain.Append) (domain.Appended, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.events == nil {
		m.events, m.logs = make(map[domain.EventID]domain.NewEvent), make(map[domain.TenantID]int)
	}
	for _, s := range events.Streams {
		if err := domain.CheckStream("", s.Stream); err != nil {
			return domain.Appended{}, err
		}
		for _, e := range s.Events {
			if _, again := m.events[e.ID]; !again {
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
	if len(r.pending) != 0 || m.logs[tenant.AuditLog()] != 2 {
		t.Errorf("%d events wait, and the log has %v", len(r.pending), m.logs)
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
	given := `{"key":"event.data.id","made":["mfk_x","Bearer mft_x"],"of":{"secret":"whsec_x"},"url":"https://u:p@h/a?t=1","n":12345678901234567890,"plain":"https://h/a"}`
	want := `{"key":"event.data.id","made":["***","***"],"n":12345678901234567890,"of":{"secret":"***"},"plain":"https://h/a","url":"https://%2A%2A%2A@h/a?***"}`
	if got := string(Mask([]byte(given))); got != want {
		t.Errorf("masked: %s", got)
	}
	if Mask([]byte("no JSON")) != nil || Mask(nil) != nil {
		t.Error("what is no JSON is not left out")
	}
	long := bound(json.RawMessage(`"` + strings.Repeat("x", maxText) + `"`))
	if len(long) > 2*maxBegin || !json.Valid(long) {
		t.Errorf("what is too long has %d bytes", len(long))
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
