package cli_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// The position that the command prints contains the published event, with everything that was given.
func TestPublish(t *testing.T) {
	t.Parallel()
	environ := sharedTenant(t, "acme")
	const id, cause = "0190d3a4-5b6c-7def-8123-456789abcde0", "0190d3a4-5b6c-7def-8123-456789abcde1"
	args := []string{"publish", "order", `{"n": 1}`, "--key", "1001", "--type", "OrderPlaced", "--id", id, "--caused-by", cause,
		"--header", "region=eu", "--header", "note=a=b", "--tag", "canary", "--sid", "s-1", "--ts", "2026-03-01T09:30:00Z"}
	first := must(t, environ, args...)
	if first != "1  order-1001  version 1  "+id+"\n" {
		t.Errorf("it prints %q", first)
	}
	if again := must(t, environ, args...); again != strings.TrimSuffix(first, "\n")+"  (duplicate)\n" {
		t.Errorf("again, it prints %q", again)
	}
	var event struct {
		Type     string
		Metadata map[string]any
		Time     string
	}
	if err := json.Unmarshal([]byte(must(t, environ, "export")), &event); err != nil {
		t.Fatal(err)
	}
	headers, _ := event.Metadata["headers"].(map[string]any)
	if event.Type != "OrderPlaced" || headers["note"] != "a=b" || event.Metadata["caused_by"] != cause || event.Metadata["sid"] != "s-1" || event.Time != "2026-03-01T09:30:00.000000Z" {
		t.Errorf("the event is %+v", event)
	}

	// Events are found by their causes and their correlation.
	other := domain.NewEventID().String()
	must(t, environ, "publish", "order", "2", "--key", "1002", "--caused-by", cause, "--caused-by", other, "--tag", "correlation:checkout-7", "--id", domain.NewEventID().String())
	for _, c := range []struct{ flags, want []string }{
		{[]string{"--cause", strings.ToUpper(cause)}, []string{"order-1001", "order-1002"}},
		{[]string{"--cause", cause, "--cause", other}, []string{"order-1002"}},
		{[]string{"--cause", cause, "--correlation", "checkout-7"}, []string{"order-1002"}},
		{[]string{"--correlation", "checkout-7", "--types", "OrderPlaced"}, nil},
	} {
		out := must(t, environ, append([]string{"events"}, c.flags...)...)
		if strings.Count(out, "\n") != len(c.want) || slices.ContainsFunc(c.want, func(stream string) bool { return !strings.Contains(out, stream) }) {
			t.Errorf("%q finds %q", c.flags, out)
		}
	}
	if o := run(t, environ, nil, "events", "order", "--cause", cause); o.code == 0 || !strings.Contains(o.err, "--cause and --correlation cannot be combined with a category") {
		t.Errorf("causes in a category: %+v", o)
	}

	if o := run(t, nil, nil, args...); o.code == 0 || !strings.Contains(o.err, "set MANIFOLD_KEY, or make a profile") {
		t.Errorf("without the service's key: %+v", o)
	}
	o := run(t, environ, strings.NewReader(" 7\n"), "publish", "ping", "-", "--json")
	if !strings.Contains(o.out, `"stream":"ping-`) || !strings.Contains(o.out, `"position":3`) || o.code != 0 {
		t.Errorf("%+v", o)
	}
	var lines strings.Builder
	for range 1500 {
		lines.WriteString("{\"n\":1}\n\n")
	}
	o = run(t, environ, strings.NewReader(lines.String()), "publish", "beat", "-", "--lines", "--key", "web-1")
	if !strings.HasPrefix(o.out, "4  beat-web-1  version 1  ") || !strings.Contains(o.out, "\n1503  beat-web-1  version 1500  ") || o.code != 0 {
		t.Errorf("%d %s", o.code, o.err)
	}
	o = run(t, environ, strings.NewReader("1\nx\n2\n"), "publish", "beat", "-", "--lines")
	if o.code != 1 || strings.Count(o.out, "\n") != 1 || !strings.Contains(o.err, "line 2 is not JSON") {
		t.Errorf("%+v", o)
	}
	large := `"` + strings.Repeat("x", 3<<20) + `"`
	for _, args := range [][]string{{"beat", "-"}, {"beat", "-", "--lines"}} {
		o := run(t, environ, strings.NewReader(large), append([]string{"publish"}, args...)...)
		if o.code != 1 || !strings.Contains(o.err, "at most 1 MiB is allowed") {
			t.Errorf("%v: %+v", args, o)
		}
	}
	for _, refused := range []struct {
		args []string
		want string
	}{
		{[]string{"order-1", "1"}, "topic: "},
		{[]string{"order", "text"}, "the payload is not JSON"},
		{[]string{"order", "1", "--lines"}, "--lines needs -"},
		{[]string{"order", "1", "--header", "x"}, "not NAME=VALUE"},
		{[]string{"order", "1", "--ts", "today"}, "--ts: "},
		{[]string{"order", "1", "--id", "x"}, "id: "},
	} {
		if o := run(t, environ, nil, append([]string{"publish"}, refused.args...)...); o.code != 1 || !strings.Contains(o.err, refused.want) {
			t.Errorf("%v: %+v; it should say %s", refused.args, o, refused.want)
		}
	}
}
