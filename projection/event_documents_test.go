package projection_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/upcasting"
)

// DocumentsOf returns the document of each event that has taken effect, and for all others the reason why there is
// none.
func TestDocumentsOfEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	upcasters, err := upcasting.New(b.store.Registry, b.store.Log, nil)
	if err != nil {
		t.Fatal(err)
	}
	p := b.process(options{upcasters: upcasters})
	tenant := b.tenant(t)
	definition := domain.Definition{
		Name: "own.sums", Source: domain.Source{Categories: []string{"x"}}, Key: "event.data.k", OnError: domain.OnErrorPark,
		On: map[string]string{"Add": `{"sum": doc.?sum.orValue(0) + event.data.n}`, "Drop": "null"},
	}
	if _, err := p.catalog.Create(t.Context(), tenant, definition, "test"); err != nil {
		t.Fatal(err)
	}
	for _, e := range []struct{ stream, eventType, data string }{
		{"x-1", "Add", `{"k": "a", "n": 1}`},     // 1
		{"x-1", "Add", `{"k": "b", "n": 1}`},     // 2
		{"y-1", "Add", `{"k": "a", "n": 1}`},     // 3: of another category
		{"x-1", "Other", `{"k": "a"}`},           // 4: of another type
		{"x-1", "Add", `{"k": null, "n": 1}`},    // 5: for no document
		{"x-2", "Add", `{"k": "b", "n": "one"}`}, // 6: parks b
		{"x-2", "Add", `{"k": "b", "n": 1}`},     // 7: waits for it
		{"x-2", "Add", `{"n": 1}`},               // 8: has no key, and is parked by itself
		{"x-1", "Drop", `{"k": "c"}`},            // 9
		{"x-1", "Add", `{"k": "a", "n": 1}`},     // 10
	} {
		b.append(t, tenant, e.stream, e.eventType, e.data)
	}
	settled := func(above int64) int64 {
		t.Helper()
		position, err := p.catalog.AwaitSettled(t.Context(), tenant, "own.sums", above, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return position
	}
	events := b.log(t, tenant)
	documentsOf := func() []projection.EventDocuments {
		t.Helper()
		found, err := p.catalog.DocumentsOf(t.Context(), tenant, "own.sums", events)
		if err != nil || len(found) != len(events) {
			t.Fatalf("%d events have %d documents, %v", len(events), len(found), err)
		}
		return found
	}
	if position, err := p.catalog.AwaitSettled(t.Context(), tenant, "own.sums", 0, time.Nanosecond); position != 0 || err != nil {
		t.Errorf("before it was followed it is at %d, %v", position, err)
	}
	if behind, err := p.catalog.Behind(t.Context(), tenant, "own.sums", 0); !behind || err != nil {
		t.Errorf("before it was followed, Behind returns %t, %v", behind, err)
	}
	for i, found := range documentsOf() {
		if wanted := i != 2 && i != 3; found.Waiting != wanted || found.All != nil {
			t.Errorf("before it was followed event %d has %+v", i+1, found)
		}
	}
	p.start(t, b)
	if position := settled(9); position != 10 {
		t.Errorf("it has settled at %d", position)
	}
	if behind, err := p.catalog.Behind(t.Context(), tenant, "own.sums", 10); behind || err != nil {
		t.Errorf("at the head, Behind returns %t, %v", behind, err)
	}
	type want struct {
		id, data string
		version  int64
		waiting  bool
	}
	compare := func(wanted []want) {
		t.Helper()
		for i, found := range documentsOf() {
			w := wanted[i]
			data, version := "", int64(0)
			var of projection.EventDocument
			if len(found.All) > 0 {
				of = found.All[0]
			}
			if of.Document != nil {
				data, version = string(of.Document.Data), of.Document.Version
			}
			if of.ID != w.id || found.Waiting != w.waiting || version != w.version || w.data != "" && !folding.SameValue(json.RawMessage(data), json.RawMessage(w.data)) || w.data == "" && data != "" {
				t.Errorf("event %d has %+v, %s; want %+v", i+1, found, data, w)
			}
		}
	}
	a, kept := want{"a", `{"sum": 2}`, 10, false}, want{"b", `{"sum": 1}`, 2, false}
	waits := kept
	waits.waiting = true
	compare([]want{a, kept, {}, {}, {}, waits, waits, {waiting: true}, {id: "c"}, a})

	// Events that were given up no longer have a document.
	if err := p.catalog.DiscardParked(t.Context(), tenant, "own.sums", "b", "test"); err != nil {
		t.Fatal(err)
	}
	compare([]want{a, kept, {}, {}, {}, {}, {}, {waiting: true}, {id: "c"}, a})

	// What comes in a category that it does not see, or of a type that it does not fold, leaves nothing to fold.
	b.append(t, tenant, "y-1", "Add", `{"k": "a", "n": 1}`)
	others := b.append(t, tenant, "x-1", "Other", `{"k": "a"}`)
	if position, err := p.catalog.Settled(t.Context(), tenant, "own.sums"); position != others || err != nil {
		t.Errorf("after events that it does not see, it has settled at %d of %d, %v", position, others, err)
	}
	if behind, err := p.catalog.Behind(t.Context(), tenant, "own.sums", 10); behind || err != nil {
		t.Errorf("after an event that it does not see, Behind returns %t, %v", behind, err)
	}
	if _, err := p.catalog.Settled(t.Context(), tenant, "none"); !domain.IsCode(err, domain.CodeNotFound) {
		t.Errorf("of none: %v", err)
	}
	live := definition
	live.Name, live.Mode, live.OnError = "live", domain.ModeLive, ""
	if _, err := p.catalog.Create(t.Context(), tenant, live, "test"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.catalog.Settled(t.Context(), tenant, "live"); !domain.IsCode(err, domain.CodeUnsupported) {
		t.Errorf("of a live one: %v", err)
	}
}

// A projection that has stopped at a fault has settled up to the event before it, whatever follows.
func TestSettledBeforeAFault(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.process(options{})
	tenant := b.tenant(t)
	definition := sums("sums")
	definition.Source = domain.Source{Categories: []string{"x"}}
	if _, err := p.catalog.Create(t.Context(), tenant, definition, "test"); err != nil {
		t.Fatal(err)
	}
	p.start(t, b)
	good := b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": 1}`)
	b.append(t, tenant, "x-1", "Add", `{"k": "a", "n": "one"}`)
	b.append(t, tenant, "y-1", "Add", `{"k": "a", "n": 1}`)
	for {
		status, err := p.catalog.Status(t.Context(), tenant, "sums")
		if err != nil {
			t.Fatal(err)
		}
		settled, err := p.catalog.AwaitSettled(t.Context(), tenant, "sums", good, 20*time.Millisecond)
		if err != nil || settled > good {
			t.Fatalf("it has settled at %d, after an event that it cannot fold, %v", settled, err)
		}
		if status.Fault != nil && settled == good {
			return
		}
	}
}

// An event that belongs to several documents has all of them, each with what it waits for. Many documents are looked up
// in parts.
func TestSeveralDocumentsOfEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	p := b.process(options{})
	tenant := b.tenant(t)
	definition := domain.Definition{
		Name: "own.sums", Key: "event.data.ids.map(i, {'id': i})", OnError: domain.OnErrorPark,
		On: map[string]string{"Add": `{"sum": doc.?sum.orValue(0) + (key == "bad" ? int("x") : 1)}`},
	}
	if _, err := p.catalog.Create(t.Context(), tenant, definition, "test"); err != nil {
		t.Fatal(err)
	}
	b.append(t, tenant, "x-1", "Add", `{"ids": ["b", "a"]}`)
	b.append(t, tenant, "x-1", "Add", `{"ids": ["a", "bad"]}`)
	b.append(t, tenant, "x-1", "Add", `{"ids": []}`)
	var ids []string
	for i := range 100 {
		ids = append(ids, fmt.Sprintf("%03d", i))
	}
	many, err := json.Marshal(map[string]any{"ids": ids})
	if err != nil {
		t.Fatal(err)
	}
	last := int64(0)
	for range 12 {
		last = b.append(t, tenant, "x-1", "Add", string(many))
	}
	p.start(t, b)
	if _, err := p.catalog.AwaitSettled(t.Context(), tenant, "own.sums", last-1, time.Minute); err != nil {
		t.Fatal(err)
	}
	found, err := p.catalog.DocumentsOf(t.Context(), tenant, "own.sums", b.log(t, tenant))
	if err != nil {
		t.Fatal(err)
	}
	describe := func(of projection.EventDocuments) string {
		text := fmt.Sprint(of.Waiting, of.Left)
		for _, d := range of.All {
			text += fmt.Sprint(" ", d.ID, d.Waiting)
			if d.Document != nil {
				text += fmt.Sprint(d.Document.Version)
			}
		}
		return text
	}
	for i, want := range []string{"false false bfalse1 afalse2", "true false afalse2 badtrue", "false false"} {
		if got := describe(found[i]); got != strings.ReplaceAll(want, "  ", " ") {
			t.Errorf("event %d has %s; want %s", i+1, got, want)
		}
	}
	looked := 0
	for _, of := range found[3:] {
		if of.Left != (looked >= 10) || !of.Left && len(of.All) != 100 {
			t.Errorf("after %d events with 100 documents, the next one has %d: %t", looked, len(of.All), of.Left)
		}
		if !of.Left {
			looked++
		}
	}
}

// narrow is a driver that takes no more than some bytes for too large to be loaded together.
type narrow struct {
	drivers.Driver
	most int
}

func (d *narrow) Load(ctx context.Context, build domain.Build, tenant domain.TenantID, ids []string) ([]domain.Document, error) {
	documents, err := d.Driver.Load(ctx, build, tenant, ids)
	bytes := 0
	for i := range documents {
		bytes += len(documents[i].Data)
	}
	if bytes > d.most && len(documents) > 1 {
		return nil, drivers.ErrLoadTooLarge
	}
	return documents, err
}

// Documents that are too large to be in memory together are folded and delivered in parts. An event whose documents
// are, as they were or as they become, is parked with all of them, and takes effect when they are replayed one by one.
func TestDocumentsTooLargeTogether(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	tenant := b.tenant(t)
	definition := domain.Definition{
		Name: "own.texts", Key: "event.data.ids", OnError: domain.OnErrorPark,
		On: map[string]string{"Add": `{"text": doc.?text.orValue("") + event.data.text}`},
	}
	add := func(text string, ids ...string) int64 {
		data, err := json.Marshal(map[string]any{"ids": ids, "text": text})
		if err != nil {
			t.Fatal(err)
		}
		return b.append(t, tenant, "x-1", "Add", string(data))
	}
	settle := func(p process, position int64) {
		t.Helper()
		if settled, err := p.catalog.AwaitSettled(t.Context(), tenant, "own.texts", position-1, 5*time.Minute); err != nil || settled < position {
			t.Fatalf("it has settled at %d, not at %d: %v", settled, position, err)
		}
	}
	first := b.process(options{})
	if _, err := first.catalog.Create(t.Context(), tenant, definition, "test"); err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("x", 400)
	var large []string
	for i := range 100 {
		large = append(large, fmt.Sprintf("large-%02d", i))
	}
	stop := first.start(t, b)
	for i := range 40 {
		add(text, fmt.Sprint(i))
	}
	grown := add(strings.Repeat("x", drivers.MaxLoadBytes/100+100), large...)
	settle(first, grown)
	stop()

	// A process that has none of the documents in memory.
	for i := range 36 {
		add("y", fmt.Sprint(4+i))
	}
	together := add("z", "1", "2", "3")
	last := add("y", "4")
	p := b.process(options{driver: &narrow{b.driver, 1000}})
	p.start(t, b)
	settle(p, last)
	parked, err := p.catalog.Parked(t.Context(), tenant, "own.texts", "", 1000)
	if err != nil {
		t.Fatal(err)
	}
	by := make(map[int64]int)
	for _, document := range parked {
		by[document.Position]++
		if !strings.Contains(document.Message, "MiB together") {
			t.Errorf("document %q is parked because of %q", document.ID, document.Message)
		}
	}
	if by[grown] != 100 || by[together] != 3 || len(parked) != 103 {
		t.Errorf("the documents parked are, by position, %v; want 100 at %d and 3 at %d", by, grown, together)
	}

	log := b.log(t, tenant)
	delivered := 0
	for events := log[:40]; len(events) > 0; {
		found, err := p.catalog.DocumentsOf(t.Context(), tenant, "own.texts", events)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ; n < len(found) && !found[n].Left; n++ {
			if len(found[n].All) != 1 || found[n].All[0].Document == nil {
				t.Errorf("the event at %d has %v", events[n].Position, found[n])
			}
		}
		if n == 0 || n > 2 {
			t.Fatalf("%d events with documents of 400 bytes each were looked at together", n)
		}
		delivered, events = delivered+n, events[n:]
	}
	if delivered != 40 {
		t.Errorf("%d events were looked at; want 40", delivered)
	}

	for _, id := range []string{"1", "2", "3"} {
		if _, err := p.catalog.ReplayParked(t.Context(), tenant, "own.texts", id); err != nil {
			t.Fatal(err)
		}
		document, err := p.catalog.Document(t.Context(), tenant, "own.texts", id, projection.Freshness{})
		if err != nil || string(document.Data) != `{"text": "`+text+`z"}` {
			t.Errorf("document %q is %s, %v", id, folding.Clip(string(document.Data)), err)
		}
	}
	found, err := p.catalog.DocumentsOf(t.Context(), tenant, "own.texts", log[together-1:])
	if err != nil {
		t.Fatal(err)
	}
	if of := found[0]; !of.Waiting || !of.TooLarge || len(of.All) != 3 || !of.All[0].Waiting || !strings.Contains(of.Reason(), "MiB together") {
		t.Errorf("the event with documents that are too large together has %v", of)
	}
}
