package filter

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// TestExamplesOfFilters asks what docs/reference/filters.md asks of its documents.
func TestExamplesOfFilters(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/reference/filters.md")
	if err != nil {
		t.Fatal(err)
	}
	var documents []domain.Document
	examples := map[string]int{}
	for _, block := range regexp.MustCompile("(?s)```(\\w+)\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		if block[1] == "json" {
			documents = documentsOf(t, block[2])
			continue
		}
		answer := map[string]func(string, []domain.Document) (string, error){"cel": filtered, "order": ordered, "fields": picked}[block[1]]
		if answer == nil {
			t.Fatalf("a block of %s", block[1])
		}
		for line := range strings.Lines(block[2]) {
			examples[block[1]]++
			source, comment, ok := strings.Cut(strings.TrimSpace(line), " // ")
			if !ok {
				t.Errorf("%s says nothing of its result", line)
				continue
			}
			source = strings.TrimSpace(source)
			got, err := answer(source, documents)
			want, isResult := strings.CutPrefix(comment, "=>")
			says, isError := strings.CutPrefix(comment, "error: ")
			switch {
			case isResult && (err != nil || got != strings.TrimSpace(want)):
				t.Errorf("%s\n  gives %s, %v; want %s", source, got, err, want)
			case isError && (err == nil || !strings.Contains(err.Error(), says)):
				t.Errorf("%s\n  gives %s, %v; want the error %q", source, got, err, says)
			case !isResult && !isError:
				t.Errorf("%s says nothing of its result", line)
			}
		}
	}
	if examples["cel"] < 60 || examples["order"] < 10 || examples["fields"] < 5 {
		t.Errorf("only these examples were found: %v", examples)
	}
}

func documentsOf(t *testing.T, text string) []domain.Document {
	var byID map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &byID); err != nil {
		t.Fatal(err)
	}
	var documents []domain.Document
	for id, data := range byID {
		documents = append(documents, domain.Document{ID: id, Data: data})
	}
	slices.SortFunc(documents, func(a, b domain.Document) int { return strings.Compare(a.ID, b.ID) })
	return documents
}

func filtered(source string, documents []domain.Document) (string, error) {
	predicate, err := Compile(source)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, document := range documents {
		matches, err := domain.Match(predicate, document)
		if err != nil {
			return "", err
		}
		if matches {
			ids = append(ids, document.ID)
		}
	}
	return strings.Join(ids, " "), nil
}

func ordered(source string, documents []domain.Document) (string, error) {
	order, err := CompileOrder(source)
	if err != nil {
		return "", err
	}
	var keys []domain.SortKey
	for _, document := range documents {
		key, err := domain.SortKeyOf(document, order)
		if err != nil {
			return "", err
		}
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b domain.SortKey) int { return a.Compare(b, order) })
	var ids []string
	for _, key := range keys {
		ids = append(ids, key.ID)
	}
	return strings.Join(ids, " "), nil
}

func picked(source string, documents []domain.Document) (string, error) {
	fields, err := CompileFields(source)
	if err != nil {
		return "", err
	}
	data, err := domain.Pick(documents[0].Data, fields)
	return string(data), err
}
