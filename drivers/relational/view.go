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

// View is the public view of a shared projection.
type View struct {
	Name   string // as it is written in statements
	Query  string
	Tables []string // that the query reads: the build's, then the overrides'
}

// SwapTable is Driver.SwapTable for a driver whose swap makes the view show the query.
func (d *Dialect) SwapTable(build domain.Build, overrides []drivers.Override, swap func(view View) error) error {
	groups, err := drivers.GroupOverrides(build, overrides)
	if err != nil || !build.Shared() {
		return err
	}
	if err := swap(d.PublicView(build, groups)); err != nil {
		return fmt.Errorf("point %s at build %d: %w", build.Name, build.Number, d.Error(err))
	}
	return nil
}

// PublicView returns the view that shows the documents of the build, except that those of the overridden tenants come
// from their builds.
func (d *Dialect) PublicView(build domain.Build, groups []drivers.Overridden) View {
	tables := []string{d.Table(build)}
	var overridden []domain.TenantID
	var others strings.Builder
	for _, group := range groups {
		table := d.Table(group.Build)
		tables, overridden = append(tables, table), append(overridden, group.Tenants...)
		others.WriteString(d.View.Union + fmt.Sprintf(d.View.Rows, table) + fmt.Sprintf(d.View.Of, d.tenants(group.Tenants)))
	}
	query := fmt.Sprintf(d.View.Rows, tables[0])
	if len(overridden) > 0 {
		query += fmt.Sprintf(d.View.Without, d.tenants(overridden))
	}
	return View{Name: d.ViewName(build.Name), Query: query + others.String(), Tables: tables}
}

// tenants returns a list of tenants. The canonical form of a UUID needs no escapes.
func (d *Dialect) tenants(tenants []domain.TenantID) string {
	texts := make([]string, len(tenants))
	for i, tenant := range tenants {
		texts[i] = tenant.String()
	}
	return strings.Join(texts, d.View.Comma)
}
