package cli_test

import (
	"encoding/csv"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	url, _ := serve(t)
	operator := []string{"MANIFOLD_URL=" + url, "MANIFOLD_OPERATOR_KEY=" + operatorKey}
	names := map[string]int{"ann-inc": 3, "bob-inc": 1, "none-inc": 0}
	for name, events := range names {
		c := clientOf(t, newTenant(t, url, name))
		for range events {
			r, err := c.AppendToStreamWithBodyWithResponse(t.Context(), "order-1", nil, "application/json", strings.NewReader(`[{"type":"Placed","data":{"n": 1}}]`))
			if err != nil || r.JSON201 == nil {
				t.Fatal(err, string(r.Body))
			}
		}
		// A reader that waits gets it at once.
		if events == 0 {
			continue
		}
		if got := documents(t, c, "usage", int64(events)); len(got) == 0 || len(got) > events {
			t.Errorf("%s has used %s", name, got)
		}
	}
	table := must(t, operator, "usage")
	for _, line := range []string{`(?m)^TENANT +NAME +EVENTS +BYTES$`, `(?m)^[0-9a-f-]{36} +ann-inc +3 +24$`, `(?m)^[0-9a-f-]{36} +bob-inc +1 +8$`, `(?m)^all +4 +32$`} {
		if !regexp.MustCompile(line).MatchString(table) {
			t.Errorf("no line is %s in\n%s", line, table)
		}
	}
	if strings.Contains(table, "none-inc") {
		t.Errorf("a tenant without events is in\n%s", table)
	}
	today := time.Now().UTC()
	rows, err := csv.NewReader(strings.NewReader(must(t, operator, "usage", "--by-day", "--csv", "--from", today.AddDate(0, 0, -1).Format(time.DateOnly)))).ReadAll()
	if err != nil || len(rows) < 3 || strings.Join(rows[0], " ") != "tenant name day events bytes" || names[rows[1][1]] == 0 {
		t.Errorf("as CSV it is %v, %v", rows, err)
	}
	if past := must(t, operator, "usage", "--to", today.AddDate(0, 0, -2).Format(time.DateOnly)); strings.Contains(past, "inc") {
		t.Errorf("of days before there was a tenant it says\n%s", past)
	}
	for _, wrong := range [][]string{{"--from", "yesterday"}, {"--from", "2026-02-02", "--to", "2026-02-01"}} {
		if o := run(t, operator, nil, append([]string{"usage"}, wrong...)...); o.code != 1 {
			t.Errorf("usage %v ends with %+v", wrong, o)
		}
	}
	if o := run(t, newTenant(t, url, "curious"), nil, "usage"); o.code != 1 || strings.Contains(o.out, "ann-inc") {
		t.Errorf("a tenant's key gets %+v", o)
	}
}
