package relational_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/relational"
)

var dialect = relational.Dialect{
	Quotes: `""`, MaxName: 30, NameLength: func(name string) int { return len(name) },
	View: relational.ViewParts{Rows: "select * from %s where x", Of: " and t in (%s)", Without: " and t not in (%s)", Comma: ", ", Union: " union "},
}

func TestLongNamesStayDistinct(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{`a"b`: `"a""b"`, strings.Repeat("x", 30): `"` + strings.Repeat("x", 30) + `"`} {
		if got := dialect.Quote(name); got != want {
			t.Errorf("%q becomes %s, want %s", name, got, want)
		}
	}
	one, two := dialect.Shorten(strings.Repeat("é", 16)), dialect.Shorten(strings.Repeat("é", 17))
	if one == two || len(one) != 29 || !strings.HasPrefix(one, "éééééé~") {
		t.Errorf("long names become %s and %s", one, two)
	}
}

func TestViewsShowOverriddenTenantsFromTheirBuilds(t *testing.T) {
	t.Parallel()
	build := domain.Build{ProjectionID: domain.ProjectionID{Name: "p"}, Number: 1}
	other, one, two := build, domain.TenantID{1}, domain.TenantID{2}
	other.Number = 2
	const all, others = `select * from manifold_documents."p.1" where x`, ` union select * from manifold_documents."p.2" where x`
	if query := dialect.PublicView(build, nil).Query; query != all {
		t.Errorf("without overrides: %s", query)
	}
	overridden := dialect.PublicView(build, []drivers.Overridden{{Build: other, Tenants: []domain.TenantID{one, two}}})
	list := one.String() + ", " + two.String()
	if want := all + " and t not in (" + list + ")" + others + " and t in (" + list + ")"; overridden.Query != want {
		t.Errorf("with overrides: %s, want %s", overridden.Query, want)
	}
	if !slices.Equal(overridden.Tables, []string{`manifold_documents."p.1"`, `manifold_documents."p.2"`}) {
		t.Errorf("the view reads %q", overridden.Tables)
	}
}
