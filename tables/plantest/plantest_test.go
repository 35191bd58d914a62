package plantest

import (
	"reflect"
	"testing"
)

func TestParseText(t *testing.T) {
	t.Parallel()
	plan := parseText([]string{
		`Custom Scan (Citus Adaptive)  (cost=0.00..0.00 rows=0 width=0) (actual time=3.395..3.396 rows=2 loops=1)`,
		`  Task Count: 1`,
		`  ->  Task`,
		`        ->  Limit (actual rows=100 loops=1)`,
		`              ->  Seq Scan on events_102028 events  (cost=0.00..9.00 rows=1 width=8) (actual time=0.1..0.2 rows=300 loops=4)`,
		`                    Filter: (n > 1)`,
		`                    Rows Removed by Filter: 700`,
		`        ->  Index Scan using "a b" on events_1 (never executed)`,
	})
	want := []node{{Type: "Custom Scan (Citus Adaptive)", Rows: 2}, {Type: "Limit", Rows: 100}, {Type: "Seq Scan on events_102028 events", Rows: 300, Removed: 700}}
	if !reflect.DeepEqual(plan.Plans, want) {
		t.Errorf("it reads %+v, want %+v", plan.Plans, want)
	}
}
