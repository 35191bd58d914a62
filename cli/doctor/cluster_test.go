package doctor

import (
	"strings"
	"testing"

	"github.com/manifold-es/manifold/pg"
)

func TestNodesAreJudged(t *testing.T) {
	t.Parallel()
	fine := pg.Node{Address: "a:5432", Citus: "13.2-1", PostgreSQL: "17", WALLevel: "logical"}
	with := func(change func(*pg.Node)) []pg.Node {
		other := fine
		other.Address = "b:5432"
		change(&other)
		return []pg.Node{fine, other}
	}
	for name, c := range map[string]struct {
		nodes   []pg.Node
		verdict Verdict
		says    string
	}{
		"fine":             {with(func(*pg.Node) {}), Fine, "2 nodes answer, with Citus 13.2-1 on PostgreSQL 17"},
		"gone":             {with(func(n *pg.Node) { n.Problem = "refused" }), Failure, "b:5432 does not answer: refused"},
		"other extension":  {with(func(n *pg.Node) { n.Citus = "13.0-1" }), Warning, "different versions"},
		"other PostgreSQL": {with(func(n *pg.Node) { n.PostgreSQL = "16" }), Warning, "different versions"},
		"no logical WAL":   {with(func(n *pg.Node) { n.WALLevel = "replica" }), Warning, "wal_level is not logical on b:5432"},
	} {
		d := &doctor{}
		d.nodes(c.nodes)
		if len(d.findings) != 1 || d.findings[0].Verdict != c.verdict || !strings.Contains(d.findings[0].Message, c.says) {
			t.Errorf("%s: %+v", name, d.findings)
		}
	}
}
