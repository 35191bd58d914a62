package retention

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

// The property: whatever is appended, asked for, held and set aside in whatever order, behind a run there is of a
// category what the rules leave, and no more; positions and versions keep their numbers; a stream whose events are all
// gone continues.

// modelEvent is an event as the model has it.
type modelEvent struct {
	position int64
	stream   string
	version  int64
	age      time.Duration
	id       domain.EventID
	gone     bool
}

// modelPolicy is a category's policy, and how far runs of it have come.
type modelPolicy struct {
	policy    Policy
	there     bool
	swept     int64
	compacted int64
}

// model is one tenant's log under retention.
type model struct {
	*bench
	retention *Retention
	tenant    domain.TenantID
	holder    *stub

	head      int64
	events    []*modelEvent
	published []domain.EventID // without a key
	versions  map[string]int64
	policies  map[string]*modelPolicy
	groups    map[string]int64                     // read to; all are of category a
	named     map[int64]string                     // by dead letters of which group, or "" for a parked document of the projection p
	holds     map[domain.HoldKind]map[string]int64 // of the stub
	removed   map[string]int64                     // by category: how many, and the highest position
	highest   map[string]int64
}

func TestRetentionAgainstModel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rapid.Check(t, func(rt *rapid.T) {
		holder := &stub{}
		m := &model{
			bench: b, retention: b.retention(nil, holder), tenant: b.tenant(rt), holder: holder,
			versions: map[string]int64{}, policies: map[string]*modelPolicy{"a": {}, "b": {}}, groups: map[string]int64{}, named: map[int64]string{},
			holds:   map[domain.HoldKind]map[string]int64{domain.HoldProjection: {}, domain.HoldRebuild: {}},
			removed: map[string]int64{}, highest: map[string]int64{},
		}
		rt.Repeat(map[string]func(*rapid.T){
			"append":  m.append,
			"publish": m.publish,
			"age":     m.growOlder,
			"policy":  m.putPolicy,
			"group":   m.moveGroup,
			"name":    m.name,
			"forget":  m.forget,
			"hold":    m.hold,
			"run":     m.run,
			"":        m.check,
		})
	})
}

var streams = []string{"a-1", "a-2", "a-3", "b-1", "b-2"}

func (m *model) append(t *rapid.T) {
	stream, n := rapid.SampledFrom(streams).Draw(t, "stream"), rapid.IntRange(1, 6).Draw(t, "events")
	version := m.versions[stream]
	expected := domain.Expected(version)
	if version == 0 {
		expected = domain.None
	}
	// A caller that expects a wrong version learns the right one, even if no event of the stream is left.
	_, err := m.store.Append(context.Background(), m.tenant, to(stream, domain.Expected(version+1), 1))
	if e, ok := errors.AsType[*domain.Error](err); !ok || e.Code != domain.CodeVersionConflict || *e.CurrentVersion != version {
		t.Fatalf("expecting version %d of %d: %v", version+1, version, err)
	}
	appended, err := m.store.Append(context.Background(), m.tenant, to(stream, expected, n))
	must(t, err)
	for _, e := range appended.Streams[0].Events {
		m.head++
		m.versions[stream]++
		if e.Position != m.head || e.Version != m.versions[stream] {
			t.Fatalf("event %+v; want position %d, version %d", e, m.head, m.versions[stream])
		}
		m.events = append(m.events, &modelEvent{position: e.Position, stream: stream, version: e.Version, id: e.ID})
	}
}

// publish appends an event without a key, to a separate stream, possibly one that was published before. Now and then it
// appends to such a stream directly.
func (m *model) publish(t *rapid.T) {
	id := domain.NewEventID()
	if len(m.published) > 0 && rapid.IntRange(0, 3).Draw(t, "again") == 0 {
		id = rapid.SampledFrom(m.published).Draw(t, "id")
	} else {
		m.published = append(m.published, id)
	}
	stream := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "topic") + "-" + id.String()
	event := domain.NewEvent{ID: id, Type: "Counted", Data: []byte(`{}`)}
	known := slices.ContainsFunc(m.there(""), func(e *modelEvent) bool { return e.id == id })
	if another := rapid.IntRange(0, 4).Draw(t, "another event") == 0; another || known {
		event.ID = domain.EventID{}
	}
	// If its only event is gone, the stream begins again, or it continues if a process remembers it.
	anew := m.forgotten(stream)
	appended, err := m.store.Append(context.Background(), m.tenant, domain.Append{Streams: []domain.StreamAppend{{
		Stream: stream, Expected: domain.Any, Events: []domain.NewEvent{event},
	}}})
	must(t, err)
	e := appended.Streams[0].Events[0]
	m.head++
	if m.versions[stream]++; anew && e.Version == 1 {
		m.versions[stream] = 1
	}
	if e.Position != m.head || e.Version != m.versions[stream] {
		t.Fatalf("event %+v of %s; want position %d, version %d", e, stream, m.head, m.versions[stream])
	}
	m.events = append(m.events, &modelEvent{position: e.Position, stream: stream, version: e.Version, id: e.ID})
}

// step is how much older everything grows at once; ages that policies go by lie between multiples of it.
const step = 70 * time.Second

func (m *model) growOlder(t *rapid.T) {
	m.exec(t, "update manifold.events set created_at = (created_at at time zone 'utc' - $2::interval) at time zone 'utc' where tenant_id = $1", m.tenant, step)
	for _, e := range m.events {
		e.age += step
	}
}

func (m *model) category(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b"}).Draw(t, "category")
}

func (m *model) putPolicy(t *rapid.T) {
	category := m.category(t)
	policy := Policy{
		Category: category,
		MaxAge:   rapid.SampledFrom([]time.Duration{0, 100 * time.Second, 250 * time.Second}).Draw(t, "maxAge"),
		MaxCount: rapid.SampledFrom([]int64{0, 1, 3, 8, 40}).Draw(t, "maxCount"),
		Compact:  rapid.Bool().Draw(t, "compact"),
	}
	if rapid.Bool().Draw(t, "forced") {
		policy.Force = Force{Groups: []string{"one"}, Projections: []string{"p"}}
	}
	if rapid.Bool().Draw(t, "forced rebuild") {
		policy.Force.Rebuilds = []string{"p"}
	}
	if policy.Check() != nil {
		policy.MaxCount = 5
	}
	m.put(t, m.tenant, policy)
	p := m.policies[category]
	if !p.there || fmt.Sprint(p.policy) != fmt.Sprint(policy) {
		*p = modelPolicy{policy: policy, there: true}
	}
}

func (m *model) moveGroup(t *rapid.T) {
	name := rapid.SampledFrom([]string{"one", "two"}).Draw(t, "group")
	if _, ok := m.groups[name]; !ok {
		_, _, err := m.store.PutGroup(context.Background(), m.tenant, name, domain.GroupDefinition{
			Selection: domain.Selection{Categories: []string{"a"}}, From: "start", BatchSize: 1, MaxInFlight: 1, AckTimeout: time.Second, MaxAttempts: 1, Ordering: domain.OrderingNone,
		}, 1)
		must(t, err)
	}
	readTo := rapid.Int64Range(0, m.head).Draw(t, "readTo")
	oldest := int64(0)
	if readTo > 0 && rapid.Bool().Draw(t, "unsettled") {
		oldest = rapid.Int64Range(1, readTo).Draw(t, "oldest")
	}
	m.exec(t, "update manifold.subscription_ledgers set read_to = $3, oldest = $4 where tenant_id = $1 and name = $2", m.tenant, name, readTo, oldest)
	if m.groups[name] = readTo; oldest > 0 {
		m.groups[name] = oldest - 1
	}
}

// there are the events that are not gone.
func (m *model) there(category string) []*modelEvent {
	var there []*modelEvent
	for _, e := range m.events {
		if !e.gone && (category == "" || domain.Category(e.stream) == category) {
			there = append(there, e)
		}
	}
	return there
}

func (m *model) name(t *rapid.T) {
	there := m.there("")
	if len(there) == 0 {
		t.Skip("there is no event")
	}
	e := rapid.SampledFrom(there).Draw(t, "event")
	if _, ok := m.named[e.position]; ok {
		t.Skip("it is named")
	}
	by := rapid.SampledFrom([]string{"one", "two", ""}).Draw(t, "by")
	if by == "" {
		m.exec(t, `insert into manifold.parked_events (tenant_id, owner, name, build, document_id, position) values ($1, $1, 'p', 1, 'd', $2)`, m.tenant, e.position)
	} else {
		m.exec(t, `insert into manifold.dead_letters values ($1, $2, $3, 0, $4, $5, $6, 'Counted', 1, 0, 0, '', now(), now(), null)`,
			m.tenant, by, e.position, e.id, e.stream, e.version)
	}
	m.named[e.position] = by
}

func (m *model) forget(t *rapid.T) {
	if len(m.named) == 0 {
		t.Skip("nothing is named")
	}
	m.exec(t, "delete from manifold.dead_letters where tenant_id = $1", m.tenant)
	m.exec(t, "delete from manifold.parked_events where tenant_id = $1", m.tenant)
	clear(m.named)
}

func (m *model) hold(t *rapid.T) {
	kind := rapid.SampledFrom([]domain.HoldKind{domain.HoldProjection, domain.HoldRebuild}).Draw(t, "kind")
	name := rapid.SampledFrom([]string{"p", "q"}).Draw(t, "name")
	if rapid.Bool().Draw(t, "let go") {
		delete(m.holds[kind], name)
	} else {
		m.holds[kind][name] = rapid.Int64Range(0, m.head).Draw(t, "position")
	}
	var holds []domain.RetentionHold
	for kind, names := range m.holds {
		for name, position := range names {
			holds = append(holds, domain.RetentionHold{Kind: kind, Name: name, Position: position})
		}
	}
	m.holder.set(holds...)
}

// held is up to where nothing holds a category.
func (m *model) held(policy Policy) int64 {
	upTo := int64(math.MaxInt64)
	if policy.Category == "a" {
		for name, readTo := range m.groups {
			if !slices.Contains(policy.Force.Groups, name) {
				upTo = min(upTo, readTo)
			}
		}
	}
	for kind, names := range m.holds {
		for name, position := range names {
			if !policy.Force.Forces(domain.RetentionHold{Kind: kind, Name: name}) {
				upTo = min(upTo, position)
			}
		}
	}
	return upTo
}

func (m *model) run(t *rapid.T) {
	category := m.category(t)
	p := m.policies[category]
	if !p.there {
		t.Skip("there is no policy")
	}
	before := m.status(t, m.tenant, category)
	preview, err := m.retention.Preview(context.Background(), m.tenant, category, nil)
	must(t, err)
	runAll(t, m.retention, m.tenant, category)
	// What was spared before is looked at again by the run alone.
	after := m.status(t, m.tenant, category)
	if removed := after.Floor.Removed - before.Floor.Removed; before.Spared == 0 && (preview.Events != removed || !preview.Complete) {
		t.Fatalf("%d events were to go by %+v, and %d did", preview.Events, preview, removed)
	}

	there, held := m.there(category), m.held(p.policy)
	aged := int64(0)
	for _, e := range m.there("") {
		if p.policy.MaxAge > 0 && e.age > p.policy.MaxAge {
			aged = max(aged, e.position)
		}
	}
	counted := int64(0)
	if n := int(p.policy.MaxCount); n > 0 && len(there) >= n {
		counted = there[len(there)-n].position - 1
	}
	p.swept = max(p.swept, min(max(aged, counted), held))
	if p.policy.Compact {
		p.compacted = max(p.compacted, min(m.head, held))
	}
	newest := make(map[string]int64)
	for _, e := range there {
		newest[e.stream] = e.version
	}
	for _, e := range there {
		by, named := m.named[e.position]
		if named && (by == "" && len(p.policy.Force.Projections) > 0 || by != "" && slices.Contains(p.policy.Force.Groups, by)) {
			named = false
		}
		if !named && e.position <= held && (e.position <= p.swept || e.position <= p.compacted && e.version < newest[e.stream]) {
			e.gone = true
			m.removed[category]++
			m.highest[category] = max(m.highest[category], e.position)
		}
	}
}

// forgotten reports whether nothing is kept of a stream: all there was of it is a message without a key, which is gone.
func (m *model) forgotten(stream string) bool {
	for _, e := range slices.Backward(m.events) {
		if e.stream == stream {
			return e.gone && e.version == 1 && stream == domain.Category(stream)+"-"+e.id.String()
		}
	}
	return false
}

func (m *model) check(t *rapid.T) {
	events, err := m.store.ReadLog(context.Background(), m.tenant, domain.LogQuery{Limit: 1 << 20})
	must(t, err)
	there := m.there("")
	for i, e := range there {
		if i >= len(events) || events[i].Position != e.position || events[i].Stream != e.stream || events[i].Version != e.version {
			t.Fatalf("there are %s; want %s", describe(events), describeModel(there))
		}
	}
	if len(events) != len(there) {
		t.Fatalf("there are %s; want %s", describe(events), describeModel(there))
	}
	for category, p := range m.policies {
		if !p.there {
			continue
		}
		status := m.status(t, m.tenant, category)
		if status.Floor.Removed != m.removed[category] || status.Floor.RemovedTo != m.highest[category] || status.Floor.AnnouncedTo != m.highest[category] {
			t.Fatalf("the floor of %s is %+v; want %d removed, up to %d", category, status.Floor, m.removed[category], m.highest[category])
		}
	}
	for stream, version := range m.versions {
		info, err := m.store.StreamInfo(context.Background(), m.tenant, stream)
		if m.forgotten(stream) {
			if !domain.IsCode(err, domain.CodeNotFound) {
				t.Fatalf("stream %s: %+v, %v; want none", stream, info, err)
			}
			continue
		}
		if err != nil || info.Version != version {
			t.Fatalf("stream %s: %+v, %v; want version %d", stream, info, err, version)
		}
	}
}

func describe(events []domain.Event) string {
	text := ""
	for i := range events {
		text += fmt.Sprintf(" %d=%s/%d", events[i].Position, events[i].Stream, events[i].Version)
	}
	return text
}

func describeModel(events []*modelEvent) string {
	text := ""
	for _, e := range events {
		text += fmt.Sprintf(" %d=%s/%d", e.position, e.stream, e.version)
	}
	return text
}
