package cli_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/embedded/pgtest"
)

// short is how long a benchmark that goes by time measures in a test.
const short = "300ms"

// backlog is how many events a benchmark of a backlog begins with.
const backlog = "40000"

// attempts are the arguments of a benchmark with little load, and then with more: on a slow machine nothing may happen
// in the shortest time, and on a fast one the backlog may be gone before it is measured.
func attempts(args []string) [][]string {
	durations, backlogs := []string{short, "3s", "30s"}, []string{backlog, "200000", "1000000"}
	var all [][]string
	for i := range durations {
		more := slices.Clone(args)
		for j, arg := range more {
			switch arg {
			case short:
				more[j] = durations[i]
			case backlog:
				more[j] = backlogs[i]
			}
		}
		all = append(all, more)
	}
	return all
}

// Every benchmark runs with little load, and prints one plausible object. The tests do not check its speed.
func TestBench(t *testing.T) {
	t.Parallel()
	server := pgtest.Private(t, pgtest.Options{})
	pgtest.MigrateNew(t, server) // otherwise each benchmark takes a second of a processor to migrate its database
	super := pgtest.Migrated(t, server).Pool(t, pgtest.RoleSuperuser, 1)
	t.Cleanup(func() { // when all of them have ended
		var left int
		err := super.QueryRow(context.Background(), "select count(*) from pg_database where datname like 'manifold_bench_%'").Scan(&left)
		if err != nil || left != 0 {
			t.Errorf("%d databases are left behind, %v", left, err)
		}
	})
	for name, args := range map[string][]string{
		"direct":    {"append", "--direct", "--clients", "3", "--batch", "2", "--tenants", "2", "--preload", "100"},
		"condition": {"append", "--direct", "--clients", "3", "--preload", "100", "--condition"},
		"schema":    {"append", "--clients", "3", "--schema"},
		"command":   {"command", "--clients", "3"},
		"processes": {"append", "--direct", "--clients", "3", "--processes", "2"},
		"append":    {"append", "--clients", "3", "--batch", "4", "--preload", "100"},
		"catch-up":  {"append", "--clients", "2", "--preload", backlog, "--catch-up", "--warm-up", "1ms"},
		"rebuilt":   {"append", "--clients", "2", "--preload", backlog, "--rebuild", "--warm-up", "1ms"},
		"publish":   {"publish", "--clients", "3", "--batch", "4"},
		"read":      {"read", "--events", "3000", "--documents", "100", "--clients", "2"},
		"project":   {"project", "--events", "2000", "--documents", "100"},
		"database":  {"project", "--events", "2000", "--documents", "2000", "--database", "default"},
		"rebuild":   {"rebuild", "--events", "2000", "--documents", "100", "--shared"},
		"rare":      {"rebuild", "--events", "2000", "--documents", "100", "--rare", "100"},
		"beside":    {"rebuild", "--events", "2000", "--documents", "100", "--tenants", "3", "--rate", "100", "--warm-up", "1ms", "--duration", short},
		"isolation": {"isolation", "--backlog", backlog, "--documents", "10000", "--rate", "100", "--warm-up", "1ms", "--duration", "2s"},
		"growth":    {"growth", "--sizes", "500,800"},
		"curve":     {"growth", "--scenario", "curve", "--sizes", "500,2000", "--tenants", "5", "--duration", "50ms"},
		"query":     {"query", "--documents", "500", "--warm-up", "1ms"},
		"lag":       {"lag", "--rate", "200", "--clients", "4", "--warm-up", "100ms"},
		"state":     {"state", "--events", "250"},
		"latency":   {"subscribe", "--rate", "200", "--clients", "4", "--subscribers", "3", "--transport", "ndjson", "--warm-up", "100ms", "--duration", short},
		"fanout":    {"subscribe", "--scenario", "fanout", "--subscribers", "20", "--warm-up", "100ms", "--duration", short},
		"catchup":   {"subscribe", "--scenario", "catchup", "--events", "3000", "--streams", "100", "--transport", "sse"},
		"groups":    {"subscribe", "--scenario", "groups", "--events", "1000", "--streams", "50", "--batch", "20", "--backlog", "300"},
		"webhook":   {"webhook", "--events", "2000", "--streams", "50", "--dead", "4"},
		"late":      {"webhook", "--scenario", "latency", "--rate", "200", "--clients", "4", "--dead", "8", "--warm-up", "100ms", "--duration", short},
		"shared":    {"subscribe", "--scenario", "groups", "--events", "1000", "--streams", "50", "--batch", "20", "--partitions", "4", "--consumers", "3"},
		"gateway":   {"subscribe", "--scenario", "groups", "--events", "1000", "--streams", "50", "--batch", "20", "--gateway", "--consumers", "3"},
		"ordered":   {"subscribe", "--scenario", "groups", "--events", "1000", "--streams", "50", "--ordering", "stream", "--backlog", "300"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			subscribes, sends := args[0] == "subscribe", args[0] == "webhook"
			args := append([]string{"bench"}, args...)
			args = append(args, "--json", "--database-url", server.URL("postgres"))
			figures := args[1] == "rebuild" || name == "isolation" || name == "schema" || args[1] == "growth" || subscribes || sends
			noEvents := name == "query" || args[1] == "growth"
			measuresTime := (!figures || name == "schema") && name != "project" && name != "database" && name != "query"
			if measuresTime || name == "query" {
				args = append(args, "--duration", short)
			}
			measuresTime = measuresTime || name == "isolation" || name == "late" || subscribes && name != "catchup"
			var got map[string]any
			for i, args := range attempts(args) {
				o := run(t, nil, nil, args...)
				if strings.Contains(o.err, "nothing was measured") && i < 2 {
					continue
				}
				got = nil
				if o.code != 0 || json.Unmarshal([]byte(o.out), &got) != nil || strings.Count(o.out, "\n") != 1 {
					t.Fatalf("manifold %s ends with %d:\n%s%s", strings.Join(args, " "), o.code, o.out, o.err)
				}
				if events, _ := got["events"].(float64); events > 0 || noEvents {
					break
				}
			}
			number := func(key string) float64 {
				value, ok := got[key].(float64)
				if !ok {
					t.Errorf("%s is %v", key, got[key])
				}
				return value
			}
			for _, key := range []string{"clients", "events", "eventsPerSecond"} {
				if number(key) <= 0 && (!noEvents || key == "clients" || name == "query" && key == "events") {
					t.Errorf("%s is %v", key, got[key])
				}
			}
			told, _ := got["figures"].([]any)
			if (len(told) > 0) != (figures || name == "read" || name == "catch-up" || name == "rebuilt") {
				t.Errorf("the figures are %v", got["figures"])
			}
			for _, one := range told {
				if f := one.(map[string]any); f["name"] == "" || f["value"].(float64) < 0 {
					t.Errorf("a figure is %v", f)
				}
			}
			queries, _ := got["queries"].([]any)
			if (len(queries) > 0) != (name == "query") {
				t.Errorf("the queries are %v", got["queries"])
			}
			for _, one := range queries {
				if q := one.(map[string]any); q["p50ms"].(float64) <= 0 || q["p99ms"].(float64) < q["p50ms"].(float64) {
					t.Errorf("a query is %v", q)
				}
			}
			if p50, p99 := number("p50ms"), number("p99ms"); measuresTime && (p50 <= 0 || p99 < p50) {
				t.Errorf("the median is %v, and 99 of 100 are below %v", p50, p99)
			}
			limit, ratio := number("limitPerSecond"), number("ratio")
			if hasLimit := name != "lag" && name != "state" && name != "isolation" && !sends && !noEvents && (!subscribes || name == "catchup"); (limit > 0) != hasLimit || (ratio > 0) != hasLimit {
				t.Errorf("the limit is %v, the ratio %v", limit, ratio)
			}
			if rss := number("rssMB"); rss == 0 && name != "processes" && name != "growth" {
				t.Error("no memory was measured")
			}
			if got["syncedCommits"] != false { // the tests' server does not
				t.Errorf("syncedCommits is %v", got["syncedCommits"])
			}
			if !strings.HasPrefix(got["name"].(string), args[1]) {
				t.Errorf("the name is %v", got["name"])
			}
		})
	}
}

func TestBenchOfARunningService(t *testing.T) {
	t.Parallel()
	url, _ := serve(t)
	environ := newTenant(t, url, "acme")
	out := must(t, environ, "bench", "append", "--url", url, "--clients", "2", "--events", "50", "--warm-up", "0s")
	if !strings.Contains(out, "events/s") || strings.Contains(out, "durability") {
		t.Errorf("it prints\n%s", out)
	}
	if log := must(t, environ, "export"); strings.Count(log, "\n") < 50 {
		t.Errorf("the service has %d events", strings.Count(log, "\n"))
	}
	for _, refused := range []struct {
		args []string
		want string
	}{
		{[]string{"append", "--url", url, "--direct"}, "--direct works on a database"},
		{[]string{"append", "--batch", "1001"}, "at most 1000"},
		{[]string{"append", "--processes", "2"}, "--processes needs --direct"},
		{[]string{"append", "--distribute"}, "--distribute needs --database-url"},
		{[]string{"append", "--direct", "--processes", "2", "--distribute", "--database-url", "postgres://h"}, "--distribute needs --processes 1"},
		{[]string{"append", "--distribute", "--database-url", pgtest.Server(t).URL("postgres")}, "the coordinator of a Citus cluster"},
		{[]string{"append", "--clients", "0"}, "at least 1"},
		{[]string{"subscribe", "--scenario", "party"}, "expected latency, fanout, catchup or groups"},
		{[]string{"subscribe", "--transport", "fax"}, "expected ws, sse or ndjson"},
		{[]string{"subscribe", "--scenario", "groups", "--url", url}, "--url goes with"},
		{[]string{"webhook", "--scenario", "party"}, "expected deliver or latency"},
		{[]string{"webhook", "--url", url}, "--url goes with"},
		{[]string{"append", "--direct", "--database-url", "postgres://nobody@127.0.0.1:1/x"}, "benchmark's database"},
	} {
		if o := run(t, environ, nil, append([]string{"bench"}, refused.args...)...); o.code != 1 || !strings.Contains(o.err, refused.want) {
			t.Errorf("%v: %+v; it should say %s", refused.args, o, refused.want)
		}
	}
	if o := run(t, nil, nil, "bench", "append", "--url", url); o.code != 1 || !strings.Contains(o.err, "--url needs --key") {
		t.Errorf("without a key: %+v", o)
	}
}

// Benchmarks of appends and projections can use a cluster, and leave no database on any node.
func TestBenchOnACluster(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	if !db.Distributed() {
		t.Skip("needs a Citus cluster: set MANIFOLD_TEST_CITUS_URLS")
	}
	for _, args := range [][]string{
		{"append", "--clients", "3", "--warm-up", "1ms", "--duration", "2s"},
		{"append", "--direct", "--clients", "3", "--tenants", "2", "--preload", "100", "--inline", "1", "--warm-up", "1ms", "--duration", "2s"},
		{"project", "--events", "500", "--documents", "100"},
	} {
		args = append(append([]string{"bench"}, args...), "--json", "--distribute", "--database-url", db.URL(pgtest.RoleSuperuser))
		var got struct{ Events int }
		if out := must(t, nil, args...); json.Unmarshal([]byte(out), &got) != nil || got.Events == 0 {
			t.Errorf("%v prints %s", args, out)
		}
	}
	for number, node := range db.Nodes(t) {
		var left int
		err := node.QueryRow(t.Context(), "select count(*) from pg_database where datname like 'manifold_bench_%'").Scan(&left)
		if err != nil || left != 0 {
			t.Errorf("node %d: %d databases are left behind, %v", number, left, err)
		}
	}
}

// A key from the environment is not shown.
func TestBenchHelpShowsNoKey(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"append", "publish", "read", "subscribe", "webhook"} {
		if help := must(t, []string{"MANIFOLD_KEY=secret"}, "bench", name, "--help"); strings.Contains(help, "secret") || !strings.Contains(help, "--key") {
			t.Errorf("bench %s --help says %s", name, help)
		}
	}
}
