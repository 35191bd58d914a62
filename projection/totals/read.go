package totals

import (
	"context"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Per says what a list of totals has a row for.
type Per string

// The lists.
const (
	PerTenant Per = "tenant"
	PerKey    Per = "key"  // over all tenants
	PerBoth   Per = "both" // for each key of each tenant
)

// After is the row after which a page starts.
type After struct {
	Tenant domain.TenantID // unless the list is PerKey
	Key    string          // unless the list is PerTenant
}

// Query asks for a page of totals.
type Query struct {
	Per       Per
	Tenant    domain.TenantID // only this tenant; domain.Everyone: all
	KeyPrefix string          // only documents whose key begins with it; empty: all documents
	After     *After          // nil: the first page
	Limit     int             // at most this many rows; at least 1
}

// Answer is a page of totals, with the sums over all pages. All and Rows leave out tenants that are being deleted;
// Tenants, Pending and KeysDropped may count them.
type Answer struct {
	Totals      domain.Totals
	All         Row
	Tenants     int   // how many have totals; those without documents may have none
	Pending     *int  // tenants whose totals are not those of their newest documents; nil: a database of documents does not answer
	KeysDropped int   // tenants with State.KeysDropped, whatever Query.KeyPrefix
	Rows        []Row // by tenant, then by key
	More        bool  // there are rows after the last one
}

// Row has the sums of some documents.
type Row struct {
	Tenant     domain.TenantID // unless per key
	TenantName string
	Key        string // unless per tenant
	Documents  int64
	Sums       []Sum  // in the order of domain.Totals.Sum
	State      *State // unless per key
}

// Sum is the sum of a field.
type Sum struct {
	Field     string
	Total     string // an exact decimal number, without an exponent
	Documents int64  // those with a number in the field
}

// State says what a tenant's totals were computed from.
type State struct {
	Build       int64
	Position    int64     // events up to here are in the totals; later ones may be
	ComputedAt  time.Time // when the first document was read
	KeysDropped bool      // documents with a key are under the empty one: all if there are too many keys, or those whose key is too long
}

// stateTime bounds the search for tenants whose documents have changed since.
const stateTime = 5 * time.Second

// Read returns totals of a shared projection. The error is domain.CodeNotFound if there is no such projection, or its
// definition has no totals. Rows of a page and All are read one after the other, so they may differ a little.
func (t *Totals) Read(ctx context.Context, name string, q Query) (Answer, error) {
	p, err := t.config.Registry.Projection(ctx, domain.ProjectionID{Owner: domain.Everyone, Name: name})
	if domain.IsCode(err, domain.CodeNotFound) {
		return Answer{}, domain.Errorf(domain.CodeNotFound, "", "there is no shared projection %q", domain.Clip(name, 100))
	}
	if err != nil {
		return Answer{}, err
	}
	if p.Definition.Totals == nil {
		return Answer{}, domain.Errorf(domain.CodeNotFound, "", "the definition of projection %q has no totals; add them, such as totals: {sum: [orders]}", name)
	}
	answer := Answer{Totals: *p.Definition.Totals, Rows: []Row{}}
	states, err := t.config.Store.states(ctx, name)
	if err != nil {
		return Answer{}, err
	}
	query := sumsQuery{name: name, spec: specOf(p.Definition.Totals), prefix: q.KeyPrefix, tenant: q.Tenant}
	wanted := func(tenant domain.TenantID) bool { return q.Tenant == domain.Everyone || q.Tenant == tenant }
	for tenant, s := range states {
		if s.spec == query.spec && wanted(tenant) {
			answer.Tenants++
			if s.keysDropped {
				answer.KeysDropped++
			}
		}
	}
	answer.Pending = t.pending(ctx, p, states, query.spec, wanted)
	all, err := t.config.Store.sums(ctx, query)
	if err != nil {
		return Answer{}, err
	}
	if rows := rowsOf(answer.Totals, all); len(rows) > 0 {
		answer.All = rows[0]
	} else {
		answer.All = emptyRow(answer.Totals)
	}
	query.byTenant, query.byKey, query.after = q.Per != PerKey, q.Per != PerTenant, q.After
	query.limit = (q.Limit + 1) * (len(answer.Totals.Sum) + 1)
	page, err := t.config.Store.sums(ctx, query)
	if err != nil {
		return Answer{}, err
	}
	answer.Rows = rowsOf(answer.Totals, page)
	if answer.More = len(answer.Rows) > q.Limit; answer.More {
		answer.Rows = answer.Rows[:q.Limit]
	}
	for i := range answer.Rows {
		if s, ok := states[answer.Rows[i].Tenant]; ok {
			answer.Rows[i].State = &State{Build: s.build, Position: s.position, ComputedAt: s.computedAt, KeysDropped: s.keysDropped}
		}
	}
	return answer, nil
}

// pending counts the tenants whose totals are not those of their newest documents; nil if that cannot be found out.
func (t *Totals) pending(ctx context.Context, p domain.Projection, states map[domain.TenantID]state, spec string, wanted func(domain.TenantID) bool) *int {
	ctx, cancel := context.WithTimeout(ctx, stateTime)
	defer cancel()
	live, err := t.live(ctx, p, states)
	if err != nil {
		return nil
	}
	n := 0
	for tenant, at := range live {
		if old := states[tenant]; wanted(tenant) && (old.spec != spec || !at.computed(old)) {
			n++
		}
	}
	return &n
}

// rowsOf joins the sums of fields that belong to one row. Each row has as many: one that counts documents, which comes
// first because its field is empty, and one for each field.
func rowsOf(totals domain.Totals, sums []fieldSum) (rows []Row) {
	for _, s := range sums {
		if s.field == "" {
			row := emptyRow(totals)
			row.Tenant, row.TenantName, row.Key, row.Documents = s.tenant, s.tenantName, s.key, s.documents
			rows = append(rows, row)
			continue
		}
		row := &rows[len(rows)-1]
		for i := range row.Sums {
			if row.Sums[i].Field == s.field {
				row.Sums[i].Total, row.Sums[i].Documents = s.total, s.documents
			}
		}
	}
	return rows
}

func emptyRow(totals domain.Totals) Row {
	row := Row{Sums: make([]Sum, len(totals.Sum))}
	for i, path := range totals.Sum {
		row.Sums[i] = Sum{Field: path, Total: "0"}
	}
	return row
}
