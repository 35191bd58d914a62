package expr

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// declarationEvents reads the real events, in the order of the log; the test is skipped where they are not.
func declarationEvents(t *testing.T) []domain.Event {
	t.Helper()
	file, err := os.Open(filepath.Join(declarationsFolder(), "declarations.ndjson.gz"))
	if err != nil {
		t.Skipf("the real events are not at hand (MANIFOLD_TEST_DATA names their folder): %v", err)
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]int64{}
	var events []domain.Event
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		var line struct {
			Stream, ID, Type string
			Time             time.Time
			Data             json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		versions[line.Stream]++
		events = append(events, domain.Event{Stream: line.Stream, Version: versions[line.Stream], Position: int64(len(events) + 1), Type: line.Type,
			Data: line.Data, OccurredAt: line.Time, RecordedAt: line.Time})
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return events
}

func declarationsFolder() string {
	if folder := os.Getenv("MANIFOLD_TEST_DATA"); folder != "" {
		return folder
	}
	return "../../shared/data"
}

// project folds events into documents, with the document going through JSON each time when stored is true.
func project(t *testing.T, events []domain.Event, keySource, foldSource string, stored bool) map[string]*Object {
	t.Helper()
	key, err := CompileKey(keySource)
	if err != nil {
		t.Fatal(err)
	}
	fold := mustFold(t, foldSource)
	documents := map[string]*Object{}
	for _, event := range events {
		bound := NewEvent(&event)
		id, ok, err := key.Eval(bound)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			continue
		}
		doc := documents[id]
		if doc == nil {
			doc = NewObject(nil)
		}
		if doc, err = fold.Eval(doc, bound); err != nil {
			t.Fatalf("event %d: %v", event.Position, err)
		}
		if stored {
			text, err := AppendJSON(nil, doc)
			if err != nil {
				t.Fatal(err)
			}
			if doc, err = ParseDocument(text); err != nil {
				t.Fatal(err)
			}
		}
		documents[id] = doc
	}
	return documents
}

// TestRealEvents folds real events and holds the documents against figures that a separate program worked out.
func TestRealEvents(t *testing.T) {
	t.Parallel()
	events := declarationEvents(t)
	var want struct {
		ByStatus        map[string]int64
		AmountPaidCents int64
		Units           map[string]struct{ Declarations, Requested int64 }
	}
	text, err := os.ReadFile(filepath.Join(declarationsFolder(), "declarations.expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}

	for _, stored := range []bool{false, true} {
		declarations := project(t, events, `event.stream`, `
			merge(doc, event.version == 1 ? {'cents': math.round(event.data.amount * 100)} : {}, {
				'status': event.type.startsWith('PaymentHandled') ? 'paid'
					: event.type.startsWith('RequestPayment') ? 'payment-requested'
					: event.type.startsWith('DeclarationFinalApproved') ? 'approved'
					: event.type.startsWith('DeclarationRejected') ? 'rejected'
					: event.type.startsWith('DeclarationSubmitted') ? 'submitted'
					: event.type.startsWith('DeclarationApproved') ? 'in-approval'
					: event.type.startsWith('DeclarationSaved') ? 'saved'
					: doc.?status.orValue('travelling'),
			})`, stored)
		byStatus, paid := map[string]int64{}, int64(0)
		for _, doc := range declarations {
			status, _ := doc.Get("status")
			byStatus[string(status.(String))]++
			if cents, _ := doc.Get("cents"); status == String("paid") {
				paid += int64(cents.(Int))
			}
		}
		for status, n := range want.ByStatus {
			if byStatus[status] != n {
				t.Errorf("%d declarations are %s, want %d", byStatus[status], status, n)
			}
		}
		if len(byStatus) != len(want.ByStatus) || paid != want.AmountPaidCents {
			t.Errorf("%v, %d cents paid; want %v, %d", byStatus, paid, want.ByStatus, want.AmountPaidCents)
		}

		units := project(t, events, `event.data.?permitOrganizationalEntity.orValue(null)`, `
			{'declarations': doc.?declarations.orValue(0) + 1,
			 'requested': doc.?requested.orValue(0) + math.round(event.data.requestedAmount * 100)}`, stored)
		for name, unit := range want.Units {
			doc, ok := units[name]
			if !ok || doc.values[0] != Int(unit.Declarations) || doc.values[1] != Int(unit.Requested) {
				t.Errorf("%s has %v, want %v", name, doc, unit)
			}
		}
		if len(units) != len(want.Units) {
			t.Errorf("%d units, want %d", len(units), len(want.Units))
		}
	}
}
