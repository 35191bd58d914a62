package projection

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// AllDocumentsQuery asks for a page of a shared projection's documents across all tenants.
type AllDocumentsQuery struct {
	Filter    string          // as in DocumentsQuery
	Tenant    domain.TenantID // only this tenant; domain.Everyone: all tenants
	PageSize  int             // at most this many; at least 1
	PageToken string          // AllDocumentsPage.Next of the previous page; empty: the first page
	Fields    []domain.Path   // as in DocumentsQuery
}

// TenantDocument is a document with the tenant that owns it.
type TenantDocument struct {
	Tenant domain.TenantID
	domain.Document
}

// AllDocumentsPage is a page of documents, ordered by tenant and then by id.
type AllDocumentsPage struct {
	Documents []TenantDocument
	Warnings  []string // as in DocumentsPage; only those that apply to every tenant on the page
	Next      string   // opaque; empty on the last page. A page with a Next may be short or even empty
}

// Limits of one page. The page ends after this many tenants, or after this time, even if it is not full.
const (
	maxPageTenants = 1000
	maxPageTime    = 5 * time.Second
)

// AllDocuments returns a page of a shared projection's documents across all tenants. It is meant for operators. It
// reads tenant by tenant, each from the tenant's live build, so the page is not a snapshot of one moment. Every later
// page comes from the same builds as the first; if a build has changed, the error is domain.CodeGone. Other errors are
// those of Documents.
func (c *Catalog) AllDocuments(ctx context.Context, name string, q AllDocumentsQuery) (AllDocumentsPage, error) {
	asked, err := c.compileAll(ctx, name, q)
	if err != nil {
		return AllDocumentsPage{}, err
	}
	var page AllDocumentsPage
	find := func() (domain.Projection, error) { return c.Get(ctx, domain.Everyone, name) }
	err = c.retryDropped(find, func(p *domain.Projection) (err error) {
		page, err = c.allDocuments(ctx, *p, asked, q.Fields)
		return err
	})
	return page, err
}

// compiledAllQuery is an AllDocumentsQuery in the form that drivers take.
type compiledAllQuery struct {
	where  domain.Predicate
	tenant domain.TenantID
	size   int
	from   *allToken // nil: the first page
	id     queryID
}

func (c *Catalog) compileAll(ctx context.Context, name string, q AllDocumentsQuery) (compiledAllQuery, error) {
	asked := compiledAllQuery{tenant: q.Tenant, size: q.PageSize, id: queryIDOf(q.Tenant, name, q.Filter, "all")}
	if q.PageSize < 1 {
		return asked, domain.Errorf(domain.CodeInvalidRequest, "pageSize", "it is %d; it must be at least 1", q.PageSize)
	}
	var err error
	if q.Filter != "" {
		if asked.where, err = c.filters.compile(ctx, c.config.Requests, domain.Everyone, q.Filter); err != nil {
			return asked, invalidExpression("filter", err)
		}
	}
	if q.PageToken != "" {
		opened, err := c.tokens.open(ctx, allTokenKind, q.PageToken)
		if err != nil {
			return asked, err
		}
		from, ok := decodeAllToken(opened)
		if !ok {
			return asked, invalidPageToken(q.PageToken)
		}
		if from.query != asked.id {
			return asked, domain.Errorf(domain.CodeInvalidRequest, "pageToken", "it was given for another query; filter and tenant must be those of the page before, as in its Link header")
		}
		asked.from = &from
	}
	return asked, nil
}

func (c *Catalog) allDocuments(ctx context.Context, p domain.Projection, asked compiledAllQuery, fields []domain.Path) (AllDocumentsPage, error) {
	if p.Definition.Mode == domain.ModeLive {
		return AllDocumentsPage{}, domain.Errorf(domain.CodeUnsupported, "name", "projection %q is live: it stores no documents", p.Name)
	}
	if asked.from != nil && asked.from.build != p.Build {
		return AllDocumentsPage{}, pageGone()
	}
	if err := checkNarrowed(p.LiveBuild(), asked.where); err != nil {
		return AllDocumentsPage{}, err
	}
	tenants, own, err := c.tenantsOf(ctx, p, asked)
	if err != nil {
		return AllDocumentsPage{}, err
	}
	leave, err := c.enterCostly(ctx, domain.Everyone, true)
	if err != nil {
		return AllDocumentsPage{}, err
	}
	defer leave()
	page := AllDocumentsPage{Warnings: c.warnings(ctx, p, domain.DocumentQuery{Where: asked.where}, fields)}
	until, bytes := time.Now().Add(maxPageTime), 0
	for i, tenant := range tenants {
		live := p
		if own[tenant] {
			if live, err = c.config.Store.LiveProjection(ctx, tenant, p.ProjectionID); err != nil {
				return AllDocumentsPage{}, err
			}
			if len(page.Warnings) > 0 { // the tenant's definition may differ
				own := c.warnings(ctx, live, domain.DocumentQuery{Where: asked.where}, fields)
				page.Warnings = slices.DeleteFunc(page.Warnings, func(warning string) bool { return !slices.Contains(own, warning) })
			}
		}
		documents, more, err := c.tenantDocuments(ctx, live, tenant, asked, asked.size-len(page.Documents), maxPageBytes-bytes)
		if err != nil {
			return AllDocumentsPage{}, err
		}
		for _, document := range documents {
			page.Documents = append(page.Documents, TenantDocument{tenant, document})
			bytes += len(document.Data)
		}
		here := allToken{build: p.Build, query: asked.id, tenant: tenant, own: live.Build}
		switch {
		case more && len(page.Documents) > 0:
			here.id = page.Documents[len(page.Documents)-1].ID
			page.Next, err = c.tokens.seal(ctx, allTokenKind, here.encode())
			return page, err
		case i == len(tenants)-1:
		case len(page.Documents) == asked.size, bytes >= maxPageBytes, i+1 == maxPageTenants, time.Now().After(until):
			page.Next, err = c.tokens.seal(ctx, allTokenKind, here.encode()) // after all of this tenant's
			return page, err
		}
	}
	return page, nil
}

// tenantDocuments returns the next documents of one tenant, at most size, and whether there are more.
func (c *Catalog) tenantDocuments(ctx context.Context, live domain.Projection, tenant domain.TenantID, asked compiledAllQuery, size, bytes int) (documents []domain.Document, more bool, err error) {
	q := domain.DocumentQuery{Where: asked.where, Limit: size + 1, MaxBytes: bytes}
	if asked.from != nil && asked.from.tenant == tenant {
		if asked.from.own != live.Build {
			return nil, false, pageGone()
		}
		q.After = &domain.SortKey{ID: asked.from.id}
	}
	driver, err := c.driver(live.LiveBuild())
	if err != nil {
		return nil, false, err
	}
	if documents, err = driver.Query(ctx, live.LiveBuild(), tenant, q); err != nil {
		return nil, false, err
	}
	return documents[:min(len(documents), size)], !q.Ended(documents), nil
}

// tenantsOf returns the tenants that the page covers, in order. own says which of them have a tenant build in force.
func (c *Catalog) tenantsOf(ctx context.Context, p domain.Projection, asked compiledAllQuery) (tenants []domain.TenantID, own map[domain.TenantID]bool, err error) {
	rows, err := c.config.Store.TenantBuildsOf(ctx, p.ProjectionID)
	if err != nil {
		return nil, nil, err
	}
	own = make(map[domain.TenantID]bool)
	for _, row := range rows {
		if row.Base == 0 || row.Base == p.Build {
			own[row.Tenant] = true
		}
	}
	wanted := func(tenant domain.TenantID) bool {
		return (asked.tenant == domain.Everyone || tenant == asked.tenant) && !asked.from.passed(tenant)
	}
	for tenant := range own {
		if wanted(tenant) {
			tenants = append(tenants, tenant)
		}
	}
	driver, err := c.driver(p.LiveBuild())
	if err != nil {
		return nil, nil, err
	}
	if p.Definition.Mode != domain.ModeInline { // each tenant has its own build; the projection's build has no table
		for checkpoint, err := range driver.Checkpoints(ctx, p.LiveBuild()) {
			if err != nil {
				return nil, nil, err
			}
			if !own[checkpoint.Tenant] && wanted(checkpoint.Tenant) {
				tenants = append(tenants, checkpoint.Tenant)
			}
		}
	}
	slices.SortFunc(tenants, func(a, b domain.TenantID) int { return bytes.Compare(a[:], b[:]) })
	return tenants, own, nil
}

func pageGone() error {
	return domain.Errorf(domain.CodeGone, "pageToken", "the documents of this page were replaced by a newer build; start again from the first page")
}

// allToken says where a page of all tenants' documents starts. Clients get it encrypted (tokenSeal).
//
//	uvarint      the projection's build
//	8 bytes      the query
//	16 bytes     the tenant
//	uvarint      the tenant's live build
//	the rest     the id after which the page starts; empty: after all of the tenant's documents
type allToken struct {
	build  int64
	query  queryID
	tenant domain.TenantID
	own    int64
	id     string
}

// passed reports whether the page starts after all documents of a tenant. A nil token has passed no tenant.
func (t *allToken) passed(tenant domain.TenantID) bool {
	if t == nil {
		return false
	}
	order := bytes.Compare(tenant[:], t.tenant[:])
	return order < 0 || order == 0 && t.id == ""
}

func (t *allToken) encode() []byte {
	raw := binary.AppendUvarint(nil, uint64(t.build))
	raw = append(raw, t.query[:]...)
	raw = append(raw, t.tenant[:]...)
	raw = binary.AppendUvarint(raw, uint64(t.own))
	return append(raw, t.id...)
}

// decodeAllToken decodes the output of encode.
func decodeAllToken(raw []byte) (t allToken, ok bool) {
	number := func() (value int64, ok bool) {
		n, length := binary.Uvarint(raw)
		if length <= 0 || n == 0 || n > math.MaxInt64 {
			return 0, false
		}
		raw = raw[length:]
		return int64(n), true
	}
	if t.build, ok = number(); !ok || len(raw) < len(t.query)+len(t.tenant) {
		return t, false
	}
	raw = raw[copy(t.query[:], raw):]
	raw = raw[copy(t.tenant[:], raw):]
	if t.own, ok = number(); !ok {
		return t, false
	}
	t.id = string(raw)
	return t, t.id == "" || domain.CheckDocumentID("", t.id) == nil
}
