package doctor

import (
	"strings"
	"testing"

	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/pg"
	"github.com/manifold-es/manifold/service"
)

// In a distributed database the doctor says that there are no public names, and notices a setting that hides all rows.
func TestDoctorOfADistributedDatabase(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	pgtest.PretendDistributed(t, db)
	f := found(t, Examine(t.Context(), "", doctorEnviron(db), service.Extensions{}, false), "documents default")
	if f.Verdict != Fine || !strings.Contains(f.Message, "no public names, because the database is distributed") {
		t.Errorf("%+v", f)
	}
	if _, err := db.Nodes(t)[0].Exec(t.Context(), "alter database "+db.Name+" set citus.propagate_set_commands = 'none'"); err != nil {
		t.Fatal(err)
	}
	findings := Examine(t.Context(), "", doctorEnviron(db), service.Extensions{}, false)
	for _, check := range []string{"schema", "documents default"} {
		if f := found(t, findings, check); f.Verdict != Failure || !strings.Contains(f.Message, "citus.propagate_set_commands is none") {
			t.Errorf("%+v", f)
		}
	}
}

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

func TestMovesAreJudged(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		refused, hidden []string
		verdict         Verdict
		says            string
	}{
		{nil, nil, Fine, "no node refuses"},
		{[]string{"a:5432"}, []string{"b:5432"}, Failure, "does not allow pgoutput on a:5432"},
		{nil, []string{"a:5432", "b:5432"}, Warning, "cannot read output_plugin_libraries on a:5432, b:5432"},
	} {
		d := &doctor{}
		d.moves(c.refused, c.hidden)
		if len(d.findings) != 1 || d.findings[0].Verdict != c.verdict || !strings.Contains(d.findings[0].Message, c.says) {
			t.Errorf("%v, %v: %+v", c.refused, c.hidden, d.findings)
		}
	}
}
