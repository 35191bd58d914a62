package cli

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/service"
)

// runCommand runs one of the program's commands.
func runCommand(t *testing.T, extensions service.Extensions, args ...string) (out, errs string, err error) {
	t.Helper()
	var outs, errors bytes.Buffer
	c := Program{Extensions: extensions}.command(context.Background())
	c.SetArgs(args)
	c.SetOut(&outs)
	c.SetErr(&errors)
	err = c.ExecuteContext(t.Context())
	return outs.String(), errors.String(), err
}

// The examples of the definitions that are here hold.
func TestExamplesHold(t *testing.T) {
	t.Parallel()
	out, errs, err := runCommand(t, service.Extensions{}, "test", filepath.Join("testdata", "projections"), filepath.Join("testdata", "aggregates"))
	if err != nil || !strings.Contains(out, " examples passed\n") {
		t.Errorf("%v\n%s%s", err, out, errs)
	}
}

func TestTestCommand(t *testing.T) {
	t.Parallel()
	type counted struct{ N int }
	counter := service.Extensions{Projections: []service.Projection{{Definition: domain.Definition{Name: "counted"}, Handler: folding.HandlerOf(folding.Rule[counted]{
		Key:  func(event domain.Event) (string, error) { return event.Stream, nil },
		Fold: func(doc *counted, event domain.Event) (bool, error) { doc.N++; return true, nil },
	})}}}
	const cases = "cases:\n  - name: counts\n    given: [{stream: order-1, type: A}, {stream: order-1, type: B}]\n    documents: {order-1: {N: 2}}\n"
	for name, test := range map[string]struct {
		extensions service.Extensions
		files      map[string]string
		want       string
		fails      bool
	}{
		"a Go handler": {counter, map[string]string{"counted.test.yaml": cases}, "ok    counted: counts\n1 examples passed\n", false},
		"a Go handler named in a file": {counter, map[string]string{
			"other.yaml": "name: other\nhandler: counted\n", "other.test.yaml": strings.Replace(cases, "N: 2", "N: 3", 1),
		}, "FAIL  other: counts\n      other.test.yaml:4: document \"order-1\": N is 2, want 3\n1 of 1 examples failed\n", true},
		"an aggregate's states": {service.Extensions{}, map[string]string{
			"order.yaml":  "category: order\non: {A: '{\"N\": state.?N.orValue(1) + 1}'}\n",
			"states.yaml": "name: states\naggregate: order\n", "states.test.yaml": cases,
		}, "ok    states: counts\n1 examples passed\n", false},
		"an aggregate without a file": {service.Extensions{}, map[string]string{
			"states.yaml": "name: states\naggregate: order\n", "states.test.yaml": cases,
		}, "states.yaml: no file in the same folder defines the aggregate \"order\"", true},
		"nothing of that name":       {service.Extensions{}, map[string]string{"counted.test.yaml": cases}, "projection \"counted\" is defined neither by a file", true},
		"a definition that is wrong": {service.Extensions{}, map[string]string{"a.yaml": "name: a\non: {A: 'dok'}\n", "a.test.yaml": cases}, "a.yaml: on.A: ", true},
		"a file that is wrong":       {service.Extensions{}, map[string]string{"a.yaml": "name: a\nonn: {}\n"}, "a.yaml:2: unknown field \"onn\"", true},
		"no examples":                {service.Extensions{}, map[string]string{"a.yaml": "name: a\non: {A: 'doc'}\n"}, "no examples found", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			for file, text := range test.files {
				if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, errs, err := runCommand(t, test.extensions, "test", folder)
			said := strings.ReplaceAll(out+errs, folder+string(filepath.Separator), "")
			if err != nil && !errors.Is(err, ErrShown) {
				said += err.Error()
			}
			if (err != nil) != test.fails || !strings.Contains(said, test.want) {
				t.Errorf("%v, it says\n%s\nwant\n%s", err, said, test.want)
			}
		})
	}
}

func TestExamplesOfAggregates(t *testing.T) {
	t.Parallel()
	definition, err := os.ReadFile(filepath.Join("testdata", "aggregates", "account.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ one, want string }{
		"another state": {"state: {balance: 1}", "x.test.yaml:4: state: balance is 0, want 1\n      x.test.yaml:4: state: open is true, want no such field\n"},
		"a fault":       {"given: [{type: Deposited, data: {}}]\n    state: {}", "x.test.yaml:4: on.Deposited: event 1 of account-1 (position 1, "},
		"a rejection": {"when: {command: Withdraw, data: {amount: 1}}\n    then:\n      - Withdrawn: {}",
			`x.test.yaml:5: the command is rejected: overdrawn, "there are 0", by rule 1, state.balance >= command.amount (state.balance is 0, command.amount is 1); want it to append Withdrawn`},
		"another rejection":    {"when: {command: Withdraw, data: {amount: 1}}\n    then: {rejected: closed}", "want it rejected: closed"},
		"another message":      {"when: {command: Withdraw, data: {amount: 1}}\n    then: {rejected: overdrawn, message: no}", `x.test.yaml:5: the message is "there are 0", want "no"`},
		"no rejection":         {"when: {command: Close}\n    then: {rejected: closed}", "the command appends Closed; want it rejected: closed"},
		"events, not nothing":  {"when: {command: Close}\n    then: {nothing: true}", "the command appends Closed; want that nothing is appended"},
		"other data":           {"when: {command: Close}\n    then:\n      - Closed: {at: '2000-01-01T00:00:00.000000Z', as: u}", `x.test.yaml:6: event 0, Closed: as is "00000000-0000-7000-8000-000000000001", want "u"`},
		"another event":        {"when: {command: Close}\n    then: [{Opened: {}}]", "event 0 is Closed, want Opened"},
		"more events":          {"when: {command: Close}\n    then: [{Closed: {}}, {Closed: {}}]", "the command appends Closed; want it to append Closed, Closed"},
		"another stream":       {"when: {command: Close}\n    then: [{Closed: {}, stream: account-2}]", "event 0, Closed, is for account-1, want account-2"},
		"other metadata":       {"when: {command: Close}\n    then: [{Closed: {}, metadata: {a: 1}}]", "event 0, Closed: metadata: a is missing, want 1"},
		"two types":            {"when: {command: Close}\n    then: [{Closed: {}, Opened: {}}]", "it names several event types"},
		"neither":              {"when: {command: Close}\n    then: {}", "expected a list of events"},
		"no such command":      {"when: {command: Open}\n    then: {nothing: true}", `x.test.yaml:4: command: category "account" has no command "Open"`},
		"data is no object":    {"when: {command: Close, data: 1}\n    then: {nothing: true}", "x.test.yaml:4: data: it must be a JSON object"},
		"an unknown field":     {"when: {command: Close}\n    than: {nothing: true}", `x.test.yaml:5: unknown field "than"`},
		"a wrong type":         {"given: {}\n    state: {}", "x.test.yaml:4: given: expected a list, not object"},
		"a wrong time":         {"when: {command: Close, now: today}\n    then: {nothing: true}", "x.test.yaml:4: "},
		"nothing is expected":  {"given: []", "x.test.yaml:3: the case expects nothing"},
		"an event's type":      {"given: [{type: 'A b'}]\n    state: {}", "x.test.yaml:4: given[0].type: "},
		"when without then":    {"when: {command: Close}\n    state: {}", "when and then belong together"},
		"a stream's id":        {"when: {command: Close, id: ''}\n    then: {nothing: true}", "x.test.yaml:4: "},
		"a number, not a case": {"state: {}\n  - 7", "x.test.yaml:5: expected an object, not number"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			for file, text := range map[string]string{"x.yaml": string(definition), "x.test.yaml": "cases:\n  -\n    name: tried\n    " + test.one + "\n"} {
				if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, errs, err := runCommand(t, service.Extensions{}, "test", folder)
			if said := strings.ReplaceAll(out+errs, folder+string(filepath.Separator), ""); err == nil || !strings.Contains(said, test.want) {
				t.Errorf("%v, it says\n%s\nwant\n%s", err, said, test.want)
			}
		})
	}
}

// A definition's mistakes are reported with their lines.
func TestWrongAggregatesAreReported(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ definition, examples, want string }{
		"two mistakes": {"category: a\non:\n  A: stat\n  B: stat\n", "cases: []", "a.yaml:3: on.A: line 1, column 1: there is no variable \"stat\" here"},
		"the second":   {"category: a\non:\n  A: stat\n  B: stat\n", "cases: []", "a.yaml:4: on.B: "},
		"a command": {"category: a\non: {A: state}\ncommands:\n  C:\n    require: []\n    emits: []\n", "cases: []",
			"a.yaml:4: commands.C: json: unknown field \"emits\""},
		"no cases":   {"category: a\non: {A: state}\n", "cases: []", "a.test.yaml:1: there is no case"},
		"two of one": {"category: a\non: {A: state}\n", "", "b.yaml:1: aggregate \"a\" is defined in a.yaml as well"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			folder := t.TempDir()
			files := map[string]string{"a.yaml": test.definition, "a.test.yaml": test.examples}
			if test.examples == "" {
				files = map[string]string{"a.yaml": test.definition, "b.yaml": test.definition}
			}
			for file, text := range files {
				if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, errs, err := runCommand(t, service.Extensions{}, "test", folder)
			if said := strings.ReplaceAll(out+errs, folder+string(filepath.Separator), ""); err == nil || !strings.Contains(said, test.want) {
				t.Errorf("%v, it says\n%s\nwant\n%s", err, said, test.want)
			}
		})
	}
}
