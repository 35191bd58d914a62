package folding_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
)

// The definitions in docs/explanation/projections.md work, and pass their examples.
func TestExamplesInTheDocumentation(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/explanation/projections.md")
	if err != nil {
		t.Fatal(err)
	}
	var fold *folding.Fold
	tried := 0
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		text := block[1]
		if !strings.HasPrefix(text, "cases:") {
			definition, err := folding.ParseDefinition([]byte(text))
			if err == nil {
				id := domain.ProjectionID{Owner: domain.NewTenantID(), Name: definition.Name}
				if definition.Totals != nil {
					id.Owner = domain.Everyone
				}
				err = rules.Check(id, definition)
			}
			if err == nil {
				fold, err = folding.Compile(definition)
			}
			if err != nil {
				t.Fatalf("%v:\n%s", err, text)
			}
			continue
		}
		folder := t.TempDir()
		write(t, folder, fold.Definition().Name+".test.yaml", text)
		files, err := folding.ReadExamples(folder)
		if err != nil {
			t.Fatal(err)
		}
		for _, failures := range files[0].Run(t.Context(), fold) {
			tried++
			for _, failure := range failures {
				t.Errorf("%s: %v", fold.Definition().Name, failure)
			}
		}
	}
	if tried < 4 {
		t.Errorf("only %d examples were found", tried)
	}
}
