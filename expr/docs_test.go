package expr

import (
	"encoding/json"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// TestExamplesInTheDocumentation evaluates every example of docs/reference/expressions.md.
func TestExamplesInTheDocumentation(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reference/expressions.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```(\\w+)\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	var doc *Object
	var event *Event
	examples := 0
	for _, block := range blocks {
		switch {
		case block[1] == "json" && doc == nil:
			if doc, err = ParseDocument([]byte(block[2])); err != nil {
				t.Fatal(err)
			}
		case block[1] == "json":
			event = documentedEvent(t, block[2])
		case block[1] == "cel":
			for line := range strings.Lines(block[2]) {
				checkExample(t, strings.TrimSpace(line), doc, event)
				examples++
			}
		}
	}
	if examples < 100 {
		t.Errorf("only %d examples were found", examples)
	}
}

func documentedEvent(t *testing.T, text string) *Event {
	var event struct {
		ID, Stream, Type       string
		Version, Position      int64
		Data, Metadata         json.RawMessage
		OccurredAt, RecordedAt time.Time
	}
	if err := json.Unmarshal([]byte(text), &event); err != nil {
		t.Fatal(err)
	}
	id, err := domain.ParseEventID(event.ID)
	if err != nil {
		t.Fatal(err)
	}
	return NewEvent(&domain.Event{
		ID: id, Stream: event.Stream, Type: event.Type, Version: event.Version, Position: event.Position,
		Data: event.Data, Metadata: event.Metadata, OccurredAt: event.OccurredAt, RecordedAt: event.RecordedAt,
	})
}

// checkExample evaluates "expression // => result", "expression // fault: kind" or "expression // error: part of it".
func checkExample(t *testing.T, line string, doc *Object, event *Event) {
	cut := strings.LastIndex(line, " // ")
	if cut < 0 {
		t.Errorf("%s\n  says nothing of its result", line)
		return
	}
	source, comment := strings.TrimSpace(line[:cut]), line[cut+len(" // "):]
	program, err := Compile(ScopeProjection, source)
	if want, isError := strings.CutPrefix(comment, "error: "); isError {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n  compiles with %v; want %q", source, err, want)
		}
		return
	}
	if err != nil {
		t.Errorf("%s\n  %v", source, err)
		return
	}
	v, err := program.Eval(doc, event)
	if want, isFault := strings.CutPrefix(comment, "fault: "); isFault {
		if fault, ok := errors.AsType[*EvalError](err); !ok || string(fault.Kind) != want {
			t.Errorf("%s\n  gives %v, %v; want a fault of kind %s", source, v, err, want)
		}
		return
	}
	want, isResult := strings.CutPrefix(comment, "=> ")
	if !isResult {
		t.Errorf("%s\n  says nothing of its result", line)
		return
	}
	if err != nil {
		t.Errorf("%s\n  %v; want %s", source, err, want)
		return
	}
	if text, err := AppendJSON(nil, v); err != nil || string(text) != want {
		t.Errorf("%s\n  gives %s, %v; want %s", source, text, err, want)
	}
}

// TestTheDocumentationIsComplete looks for every function and macro, and for every kind of fault.
func TestTheDocumentationIsComplete(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/reference/expressions.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range functions() {
		if !strings.HasPrefix(f.name, "@") && !strings.Contains(string(page), f.name+"(") {
			t.Errorf("%s is not described", f.name)
		}
	}
	for name := range macros {
		if !strings.Contains(string(page), name+"(") {
			t.Errorf("%s is not described", name)
		}
	}
	for _, kind := range []Kind{KindCost, KindMemory, KindType, KindMissingField, KindIndex, KindOverflow, KindDivision, KindValue, KindResult, KindInput, KindInternal} {
		if !strings.Contains(string(page), "`"+string(kind)+"`") {
			t.Errorf("faults of kind %s are not described", kind)
		}
	}
}
