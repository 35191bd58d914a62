package totals

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// Bounds of a tenant's totals of a projection.
const (
	maxKeys     = 4000 // ten years of days
	maxKeyBytes = 100
)

// tally sums documents. It is not safe for concurrent use.
type tally struct {
	totals  domain.Totals
	fields  fields
	values  []json.RawMessage // of one document: those of Sum, then that of By
	byKey   map[string]*sums
	merged  bool // there were too many keys: all documents are under the empty one
	dropped bool // documents with a key are under the empty one
}

// sums are the sums of the documents with one key.
type sums struct {
	documents int64
	numbers   []int64 // by field: so many documents have a number there
	totals    []decimal
}

func newTally(totals domain.Totals) *tally {
	t := &tally{totals: totals, byKey: make(map[string]*sums), values: make([]json.RawMessage, len(totals.Sum)+1)}
	for i, path := range totals.Sum {
		t.fields.add(strings.Split(path, "."), i)
	}
	if totals.By != "" {
		t.fields.add(strings.Split(totals.By, "."), len(totals.Sum))
	}
	return t
}

// add adds a document.
func (t *tally) add(document domain.Document) error {
	clear(t.values)
	if err := t.fields.read(domain.NewStoredJSONScanner(document.Data), t.values); err != nil {
		return fmt.Errorf("read document %q: %w", domain.Clip(document.ID, 60), err)
	}
	key := keyOf(t.values[len(t.totals.Sum)])
	if len(key) > maxKeyBytes {
		key, t.dropped = "", true
	}
	of := t.sumsOf(key)
	of.documents++
	for i := range t.totals.Sum {
		if value := t.values[i]; isNumber(value) {
			of.numbers[i]++
			of.totals[i].addNumber(domain.ParseNumber(string(value)))
		}
	}
	return nil
}

// sumsOf returns the sums of a key.
func (t *tally) sumsOf(key string) *sums {
	if t.merged {
		key = ""
	}
	if of := t.byKey[key]; of != nil {
		return of
	}
	of := &sums{numbers: make([]int64, len(t.totals.Sum)), totals: make([]decimal, len(t.totals.Sum))}
	if len(t.byKey) == maxKeys {
		for _, other := range t.byKey {
			of.documents += other.documents
			for i := range of.totals {
				of.numbers[i] += other.numbers[i]
				of.totals[i].addDecimal(&other.totals[i])
			}
		}
		clear(t.byKey)
		key, t.merged, t.dropped = "", true, true
	}
	t.byKey[key] = of
	return of
}

func isNumber(value json.RawMessage) bool {
	return len(value) > 0 && (value[0] == '-' || '0' <= value[0] && value[0] <= '9')
}

// keyOf returns the key of a document with a value, which may be missing.
func keyOf(value json.RawMessage) string {
	switch {
	case isNumber(value):
		return domain.ParseNumber(string(value)).JSON()
	case len(value) > 0 && value[0] == '"':
		return domain.UnquoteJSON(value)
	case len(value) > 0 && (value[0] == 't' || value[0] == 'f'):
		return string(value)
	default:
		return ""
	}
}

// fields are the members of an object that are read.
type fields struct {
	parts map[string]*fields
	slots []int // where the value goes
}

func (f *fields) add(path []string, slot int) {
	for _, name := range path {
		part := f.parts[name]
		if part == nil {
			if f.parts == nil {
				f.parts = make(map[string]*fields)
			}
			part = &fields{}
			f.parts[name] = part
		}
		f = part
	}
	f.slots = append(f.slots, slot)
}

// read puts the values of the fields of the next object into their slots.
func (f *fields) read(text *domain.JSONScanner, values []json.RawMessage) error {
	return text.Object(func(name string) error {
		part := f.parts[name]
		if part != nil && part.parts != nil && text.Next() == '{' {
			return part.read(text, values)
		}
		value, err := text.Value()
		if err == nil && part != nil {
			for _, slot := range part.slots {
				values[slot] = value
			}
		}
		return err
	})
}
