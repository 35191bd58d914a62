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
	out, errs, err := runCommand(t, service.Extensions{}, "test", filepath.Join("testdata", "projections"))
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
