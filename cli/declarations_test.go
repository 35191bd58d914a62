package cli_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// realEvents is the folder with the declarations; the test is skipped where there is none.
func realEvents(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("MANIFOLD_TEST_DATA")
	if folder == "" {
		folder = filepath.Join("..", "..", "shared", "data")
	}
	if _, err := os.Stat(filepath.Join(folder, "declarations.ndjson.gz")); err != nil {
		t.Skip("the real events are missing (set MANIFOLD_TEST_DATA to their folder):", err)
	}
	return folder
}

type unit struct {
	Declarations int64 `json:"declarations"`
	Requested    int64 `json:"requested"` // in cents
}

// figures are what the declarations amount to, as declarations.expected.json has them.
type figures struct {
	Events           int64            `json:"events"`
	Streams          int              `json:"streams"`
	ByStatus         map[string]int64 `json:"byStatus"`
	RejectionRecords int64            `json:"rejectionRecords"`
	AmountPaidCents  int64            `json:"amountPaidCents"`
	Units            map[string]unit  `json:"units"`
}

// The CLI imports real events, and three projections fold them. The figures match those computed from the same file
// by another program, also after a rebuild.
func TestDeclarations(t *testing.T) {
	t.Parallel()
	folder := realEvents(t)
	text, err := os.ReadFile(filepath.Join(folder, "declarations.expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	var want figures
	if err := json.Unmarshal(text, &want); err != nil || want.Events == 0 {
		t.Fatalf("the expected figures: %+v, %v", want, err)
	}
	environ := sharedTenant(t, "university")
	names := []string{"declaration", "unit-spend", "status-counts"}
	for _, name := range names[:2] {
		must(t, environ, "projection", "apply", filepath.Join("testdata", "projections", name+".yaml"))
	}
	file := filepath.Join(folder, "declarations.ndjson.gz")
	if out := must(t, environ, "import", file, "--strict"); !strings.Contains(out, " 0 duplicates, 0 bad") {
		t.Errorf("import: %s", out)
	}
	if out := must(t, environ, "import", file); !strings.Contains(out, " 0 appended") {
		t.Errorf("the same import again: %s", out)
	}
	// One projection exists before the events, and another is created after them.
	must(t, environ, "projection", "apply", filepath.Join("testdata", "projections", names[2]+".yaml"))
	compare := func(when string) {
		t.Helper()
		got := readFigures(t, environ, want.Events)
		if got.Streams != want.Streams || got.RejectionRecords != want.RejectionRecords || got.AmountPaidCents != want.AmountPaidCents ||
			!maps.Equal(got.ByStatus, want.ByStatus) || !maps.Equal(got.Units, want.Units) {
			t.Errorf("%s the figures are\n%+v\nand should be\n%+v", when, got, want)
		}
	}
	compare("projected,")
	for _, name := range names {
		if out := must(t, environ, "rebuild", name); !strings.Contains(out, "is live") {
			t.Errorf("rebuild %s: %s", name, out)
		}
	}
	compare("rebuilt,")
}

// readFigures works the figures out of the three projections' documents.
func readFigures(t *testing.T, environ []string, position int64) figures {
	t.Helper()
	c := clientOf(t, environ)
	f := figures{ByStatus: make(map[string]int64), Units: make(map[string]unit)}
	byDeclaration := make(map[string]int64)
	for id, document := range documents(t, c, "declaration", position) {
		var d struct {
			Status                  string
			Rejections, AmountCents int64
		}
		if err := json.Unmarshal(document, &d); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		f.Streams++
		byDeclaration[d.Status]++
		f.RejectionRecords += d.Rejections
		if d.Status == "paid" {
			f.AmountPaidCents += d.AmountCents
		}
	}
	for id, document := range documents(t, c, "unit-spend", position) {
		var d struct{ Declarations, RequestedCents int64 }
		if err := json.Unmarshal(document, &d); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		f.Units[id] = unit{d.Declarations, d.RequestedCents}
	}
	for id, document := range documents(t, c, "status-counts", position) {
		var d struct{ Counts map[string]int64 }
		if err := json.Unmarshal(document, &d); err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		for status, n := range d.Counts {
			f.ByStatus[status] += n
		}
	}
	maps.DeleteFunc(f.ByStatus, func(_ string, n int64) bool { return n == 0 })
	if !maps.Equal(byDeclaration, f.ByStatus) {
		t.Errorf("the declarations' documents give the counts %v, the counts' documents %v", byDeclaration, f.ByStatus)
	}
	return f
}
