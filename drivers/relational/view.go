package relational

import (
	"fmt"
	"strings"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// ViewParts are the parts of a public view's query. In each, %s is what differs: the table, or the tenants.
type ViewParts struct {
	Rows    string // selects the documents of a table, ends with a condition
	Of      string // a further condition: only these tenants
	Without string // a further condition: not these tenants
	Comma   string // between two tenants
	Union   string // between two tables
}

// ViewQuery returns the query of a projection's public view, and the tables that it reads. It shows the documents of
// the build, except that those of the overridden tenants come from their builds.
func (d *Dialect) ViewQuery(build domain.Build, groups []drivers.Overridden) (query string, tables []string) {
	tables = []string{d.Table(build)}
	var all []domain.TenantID
	var others strings.Builder
	for _, group := range groups {
		table := d.Table(group.Build)
		tables, all = append(tables, table), append(all, group.Tenants...)
		others.WriteString(d.View.Union + fmt.Sprintf(d.View.Rows, table) + fmt.Sprintf(d.View.Of, d.tenants(group.Tenants)))
	}
	query = fmt.Sprintf(d.View.Rows, tables[0])
	if len(all) > 0 {
		query += fmt.Sprintf(d.View.Without, d.tenants(all))
	}
	return query + others.String(), tables
}

// tenants returns a list of tenants. The canonical form of a UUID needs no escapes.
func (d *Dialect) tenants(tenants []domain.TenantID) string {
	texts := make([]string, len(tenants))
	for i, tenant := range tenants {
		texts[i] = tenant.String()
	}
	return strings.Join(texts, d.View.Comma)
}
