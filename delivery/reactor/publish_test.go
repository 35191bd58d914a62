package reactor_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// published returns the changes of a projection in a tenant's log, as "document version data".
func (b *bench) published(t testing.TB, tenant domain.TenantID, name string) (all []string) {
	t.Helper()
	for _, event := range b.log(t, tenant) {
		if event.Type != domain.ChangesCategory(name) {
			continue
		}
		var c changed
		must(t, json.Unmarshal(event.Data, &c))
		all = append(all, fmt.Sprintf("%s %d %s", c.Document, c.Version, c.Data))
	}
	return all
}

func (p *process) awaitChanges(t testing.TB, tenant domain.TenantID, name string, want ...string) {
	t.Helper()
	var got []string
	until(t, fmt.Sprintf("%q", want), func() bool {
		got = p.bench.published(t, tenant, name)
		return len(got) >= len(want)
	})
	if strings.Join(got, "; ") != strings.Join(want, "; ") {
		t.Fatalf("published is %q; want %q", got, want)
	}
}

// Changes are published only while the definition says so. Changes made meanwhile appear with the document's next
// change.
func TestPublishingBeginsAndEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p, _ := b.start(t)
	tenant := b.tenant(t)
	definition := sums("own.sums", domain.ModeAsync)
	definition.PublishChanges = false
	b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`, `{"k": "b", "n": 1}`)
	p.create(t, tenant, definition)
	put := func(publish bool) {
		t.Helper()
		definition.PublishChanges = publish
		_, err := p.rebuilds.Deploy(t.Context(), tenant, definition, "test", false)
		must(t, err)
	}
	there := func() bool {
		_, err := p.groups.Get(t.Context(), tenant, "changes.own.sums")
		if err != nil && !domain.IsCode(err, domain.CodeNotFound) {
			t.Fatal(err)
		}
		return err == nil
	}
	put(true)
	b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	p.awaitChanges(t, tenant, "own.sums", `a 3 {"sum": 2}`)
	put(false)
	until(t, "the group's end", func() bool { return !there() })
	last := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`, `{"k": "b", "n": 1}`)
	if last != 6 {
		t.Fatalf("the last position is %d", last)
	}
	put(true)
	b.append(t, tenant, "x-1", "Add", `{"k": "b", "n": 1}`)
	p.awaitChanges(t, tenant, "own.sums", `a 3 {"sum": 2}`, `b 7 {"sum": 3}`)
	must(t, p.catalog.Delete(t.Context(), tenant, "own.sums", "test"))
	b.append(t, tenant, "x-1", "Add", `{"k": "b", "n": 1}`)
	until(t, "the end of the removed projection's group", func() bool { return !there() })

	// Another projection under the same name has separate changes.
	p.create(t, tenant, definition)
	b.append(t, tenant, "x-1", "Add", `{"k": "b", "n": 1}`)
	p.awaitChanges(t, tenant, "own.sums", `a 3 {"sum": 2}`, `b 7 {"sum": 3}`, `b 10 {"sum": 5}`)
}

// A parked document does not hold back the changes of the other documents of its events. Its own are published when it
// has been replayed.
func TestChangesOfAnEventWithAParkedDocument(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p, _ := b.start(t)
	tenant := b.tenant(t)
	definition := sums("own.sums", domain.ModeAsync)
	definition.Key, definition.OnError = "event.data.ids", domain.OnErrorPark
	definition.On["Add"] = "{'sum': doc.?sum.orValue(0) + (key == 'b' && event.data.n == 2 ? doc.other : event.data.n)}"
	p.create(t, tenant, definition)
	b.append(t, tenant, "x-1", "Add", `{"ids": ["a", "b"], "n": 1}`)
	p.awaitChanges(t, tenant, "own.sums", `a 1 {"sum": 1}`, `b 1 {"sum": 1}`)
	b.append(t, tenant, "x-1", "Add", `{"ids": ["b", "a"], "n": 2}`, `{"ids": ["c", "b"], "n": 3}`)
	until(t, "the changes of a and c", func() bool { return len(b.published(t, tenant, "own.sums")) == 4 })
	must(t, p.catalog.DiscardParked(t.Context(), tenant, "own.sums", "b", "test"))
	b.append(t, tenant, "x-1", "Add", `{"ids": ["b"], "n": 4}`)
	until(t, "the change of b", func() bool { return len(b.published(t, tenant, "own.sums")) == 5 })
	got := foldChanges(t, b.log(t, tenant), "own.sums")
	if got["a"] != `{"sum": 3}` || got["b"] != `{"sum": 5}` || got["c"] != `{"sum": 3}` {
		t.Errorf("published is %v", got)
	}
}

// Documents' ids stay as they are, whatever a stream's name may contain.
func TestStreamsOfChanges(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p, _ := b.start(t)
	tenant := b.tenant(t)
	p.create(t, domain.Everyone, sums("sums", domain.ModeAsync))
	long := strings.Repeat("k", 300)
	for i, key := range []string{"plain", "with blank", "a/b", "ä", long} {
		position := b.append(t, tenant, "x-1", "Add", fmt.Sprintf(`{"k": %q, "n": 1}`, key))
		until(t, "the change of "+key, func() bool { return len(b.published(t, tenant, "sums")) == i+1 })
		if want := fmt.Sprintf(`%s %d {"sum": 1}`, key, position); b.published(t, tenant, "sums")[i] != want {
			t.Errorf("published is %q; want %q", b.published(t, tenant, "sums")[i], want)
		}
	}
	streams := make(map[string]bool)
	for _, event := range b.log(t, tenant) {
		if event.Type == "sums.changed" {
			streams[event.Stream] = true
			must(t, domain.CheckStream("", event.Stream))
		}
	}
	if len(streams) != 5 || !streams["sums.changed-plain"] {
		t.Errorf("the streams are %v", streams)
	}
}

// Events that wait for a parked document are published when the document accepts them. Changes that cannot be events
// become dead letters. Other documents continue.
// A failed append is retried soon, even if the error looks like the end of the service.
func TestCancelledAppendIsRetried(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.failAppends.Store(10)
	p, _ := b.start(t)
	tenant := b.tenant(t)
	p.create(t, tenant, sums("sums", domain.ModeAsync))
	b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	p.awaitChanges(t, tenant, "sums", `a 1 {"sum": 1}`)
}

func TestChangesThatHaveToWait(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p, _ := b.start(t)
	tenant := b.tenant(t)
	definition := sums("sums", domain.ModeAsync)
	definition.OnError = domain.OnErrorPark
	definition.On["Grow"] = `{"text": event.data.text + event.data.text, "sum": 0}`
	p.create(t, tenant, definition)
	b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`, `{"k": "a", "n": "one"}`, `{"k": "b", "n": 1}`)
	p.awaitChanges(t, tenant, "sums", `a 1 {"sum": 1}`, `b 3 {"sum": 1}`)
	status := func() domain.PartitionStatus {
		t.Helper()
		group, err := p.groups.Get(t.Context(), tenant, "changes.sums")
		must(t, err)
		return group.Partitions[0]
	}
	until(t, "the retry", func() bool { return status().Retrying == 1 })
	must(t, p.catalog.DiscardParked(t.Context(), tenant, "sums", "a", "test"))
	until(t, "the end of the retries", func() bool { return status().Retrying == 0 && status().InFlight == 0 })

	b.append(t, tenant, "x-1", "Grow", fmt.Sprintf(`{"k": "a", "text": %q}`, strings.Repeat("a", 600_000)))
	b.append(t, tenant, "x-1", "Add", `{"k": "b", "n": 1}`)
	until(t, "the dead letter", func() bool { return status().Parked == 1 })
	letters, err := p.groups.DeadLetters(t.Context(), tenant, "changes.sums", 0, 10)
	must(t, err)
	if !strings.Contains(letters[0].Reason, "more than an event may have") {
		t.Errorf("the reason is %q", letters[0].Reason)
	}
	until(t, "b's change", func() bool {
		all := b.published(t, tenant, "sums")
		return strings.HasPrefix(all[len(all)-1], "b ")
	})
}
