package folding_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/projection/folding"
)

// write writes a file into a folder.
func write(t *testing.T, folder, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const summed = "name: sums\nsource: {categories: [order]}\ninitial: {n: 0}\non:\n  Added: 'merge(doc, {\"n\": doc.n + event.data.n})'\n  Gone: 'null'\n"

func TestExamples(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		more string // of the definition
		text string
		want []string // of the failures, in their order; nil: none
	}{
		"as wanted": {"", `
upcasters:
  - {type: Added, version: 1, expression: 'event.data.?old.hasValue() ? {"n": event.data.old} : event.data'}
cases:
  - name: sums
    given:
      - {stream: order-1, type: Added, data: {n: 1}}
      - {stream: order-1, type: Added, data: {old: 2.0}, metadata: {who: ann}}
      - {stream: other-1, type: Added, data: {n: 1}}
      - {stream: order-2, type: Added, data: {n: 1}}
      - {stream: order-2, type: Gone}
    documents: {order-1: {n: 3}}
    absent: [order-2, other-1]
  - name: faults
    given: [{stream: order-1, type: Added, data: {n: x}}]
    fault: {event: 1, where: on.Added, message: string}
`, nil},
		"differences": {"", `cases:
  - name: sums
    given: [{stream: order-1, type: Added, data: {n: 1}}]
    documents:
      order-1: {n: 2, list: [1]}
      order-2: {}
    absent: [order-1]
`, []string{":5: document \"order-1\": list is missing, want [1]", ":5: document \"order-1\": n is 1, want 2", ":6: document \"order-2\" is missing; there is \"order-1\"", ":7: document \"order-1\" exists: {\"n\":1}"}},
		"an unwanted fault": {"", `{"cases": [
  {"name": "sums", "given": [{"type": "Added", "stream": "order-1"}], "documents": {"order-1": {"n": 0}}}]}`,
			[]string{":2: event 1 (Added) cannot be folded: on.Added: ", ":2: document \"order-1\" is missing; there is none"}},
		"a fault that does not exist": {"", `cases:
  - name: sums
    given: [{stream: order-1, type: Added, data: {n: 1}}]
    fault: {event: 1}
`, []string{":4: every event can be folded"}},
		"another fault": {"", `cases:
  - name: sums
    given: [{stream: order-1, type: Added}]
    fault:
      where: key
      message: nothing of the kind
`, []string{":5: event 1 is at fault in on.Added, not in key", ":5: the fault of event 1 says"}},
		"parked": {"onError: park\n", `cases:
  - name: one is parked
    given:
      - {stream: order-1, type: Added, data: {n: 1}}
      - {stream: order-1, type: Added}
      - {stream: order-1, type: Added, data: {n: 1}}
      - {stream: order-2, type: Added, data: {n: 1}}
    parked: [order-1]
    documents: {order-1: {n: 1}, order-2: {n: 1}}
  - name: another than said
    given: [{stream: order-1, type: Added}]
    parked: [order-2]
`, []string{":12: document \"order-2\" is not parked", ":10: document \"order-1\" is parked: event 1 (Added): on.Added"}},
		"a fault and another parked than said": {"onError: park\n", `cases:
  - name: both are held against the events
    given: [{stream: order-1, type: Added}]
    fault: {event: 1}
    parked: [order-2]
`, []string{":5: document \"order-2\" is not parked", ":2: document \"order-1\" is parked: event 1 (Added): on.Added"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			write(t, folder, "sums.yaml", summed+test.more)
			write(t, folder, "sums.test.yml", test.text)
			definitions, err := folding.ReadDefinitions(folder)
			if err != nil || len(definitions) != 1 {
				t.Fatal(definitions, err)
			}
			fold, err := folding.Compile(definitions[0].Definition)
			if err != nil {
				t.Fatal(err)
			}
			files, err := folding.ReadExamples(folder)
			if err != nil || len(files) != 1 || files[0].Projection != "sums" {
				t.Fatal(files, err)
			}
			var got []string
			for _, failures := range files[0].Run(t.Context(), fold) {
				for _, failure := range failures {
					got = append(got, failure.Error())
				}
			}
			for i := range max(len(got), len(test.want)) {
				if i >= len(got) || i >= len(test.want) || !strings.HasPrefix(got[i], filepath.Join(folder, "sums.test.yml")+test.want[i]) {
					t.Fatalf("failures are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
				}
			}
		})
	}
}

func TestReadExamplesRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"cases: []": ":1: cases: there is no case",
		"sample: 1": ":1: unknown field \"sample\"",
		"cases:\n - name: a\n   given: [{type: A}]":                                                                 ":2: cases[0]: the case expects nothing",
		"cases:\n - given: [{type: A}]\n   absent: [a]":                                                             ":2: cases[0]: the case has no name",
		"cases:\n - {name: a, absent: [a]}":                                                                         ":2: cases[0].given: there are 0 events",
		"cases:\n - name: a\n   absent: [a]\n   given: [{type: A, stream: x}]":                                      "cases[0].given[0].stream",
		"cases:\n - name: a\n   absent: [a]\n   given: [{type: A, recordedAt: now}]":                                ":4: cases[0].given[0].recordedAt: expected a time",
		"cases:\n - name: a\n   absent: 1\n   given: [{type: A}]":                                                   ":3: cases[0].absent: expected a list of document ids",
		"cases:\n - name: a\n   fault: {event: 0}\n   given: [{type: A}]":                                           ":3: cases[0].fault.event: expected a whole number of at least 1",
		"upcasters: [{type: A, version: 1, expression: 'x.'}]\ncases: [{name: a, absent: [b], given: [{type: A}]}]": "expression",
	} {
		folder := t.TempDir()
		write(t, folder, "a.test.yaml", text)
		_, err := folding.ReadExamples(folder)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// No text of examples causes a panic.
func FuzzReadExamples(f *testing.F) {
	f.Add("cases:\n - name: a\n   fault: {event: 1, where: key}\n   given: [{type: A, data: [1, {a: null}]}]\n   documents: {a: {b: 1}}")
	f.Add(`{"upcasters": [{"type": "A", "version": 1, "expression": "event.data"}], "cases": [{"name": "a", "parked": [], "given": [{"type": "A", "stream": "order-1"}]}]}`)
	fold, err := folding.Compile(orders)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		folder := t.TempDir()
		write(t, folder, "a.test.yaml", text)
		files, _ := folding.ReadExamples(folder)
		for i := range files {
			files[i].Run(t.Context(), fold)
		}
	})
}
