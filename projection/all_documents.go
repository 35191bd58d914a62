package projection

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// AllDocumentsQuery asks for a page of a shared projection's documents over all tenants.
type AllDocumentsQuery struct {
	Filter    string          // as in DocumentsQuery
	Tenant    domain.TenantID // that tenant's alone; domain.Everyone: all
	PageSize  int             // at most this many; at least 1
	PageToken string          // AllDocumentsPage.Next of the page before; empty: the first
	Fields    []domain.Path   // as in DocumentsQuery
}

// TenantDocument is a document, and whose it is.
type TenantDocument struct {
	Tenant domain.TenantID
	domain.Document
}

// AllDocumentsPage is a page of documents, by tenant and then by id.
type AllDocumentsPage struct {
	Documents []TenantDocument
	Warnings  []string // as in DocumentsPage; what holds for all of these tenants' definitions
	Next      string   // opaque; empty on the last page. A page may be shorter than asked for, and empty, with others behind it
}

// Bounds of one page: so many tenants are asked, for so long, and the page ends there where they have too little to fill it.
const (
	maxPageTenants = 1000
	maxPageTime    = 5 * time.Second
)

// AllDocuments returns a page of the documents that a shared projection has for all tenants: for operators. They are read
// tenant by tenant, each from the build that is live for it, so that nothing is of one moment. A page behind the first is of
// the same builds as that, or domain.CodeGone. Errors are as those of Documents.
func (c *Catalog) AllDocuments(ctx context.Context, name string, q AllDocumentsQuery) (AllDocumentsPage, error) {
	asked, err := c.compileAll(ctx, name, q)
	if err != nil {
		return AllDocumentsPage{}, err
	}
	var last int64
	for again := false; ; again = true {
		p, err := c.Get(ctx, domain.Everyone, name)
		if err != nil {
			return AllDocumentsPage{}, err
		}
		if again && p.Build == last {
			return AllDocumentsPage{}, c.noTable(p)
		}
		page, err := c.allDocuments(ctx, p, asked, q.Fields)
		if again || !errors.Is(err, drivers.ErrNoTable) {
			return page, err
		}
		last = p.Build
	}
}

// askedAll is an AllDocumentsQuery as drivers understand it.
type askedAll struct {
	where    domain.Predicate
	tenant   domain.TenantID
	size     int
	from     *allToken // nil: the first page
	question question
}

func (c *Catalog) compileAll(ctx context.Context, name string, q AllDocumentsQuery) (askedAll, error) {
	asked := askedAll{tenant: q.Tenant, size: q.PageSize, question: questionOf(q.Tenant, name, q.Filter, "all")}
	if q.PageSize < 1 {
		return asked, domain.Errorf(domain.CodeInvalidRequest, "pageSize", "it is %d; it must be at least 1", q.PageSize)
	}
	var err error
	if q.Filter != "" {
		if asked.where, err = c.filters.compile(ctx, c.config.Requests, domain.Everyone, q.Filter); err != nil {
			return asked, notCompiled("filter", err)
		}
	}
	if q.PageToken != "" {
		opened, err := c.tokens.open(ctx, tokenOfAll, q.PageToken)
		if err != nil {
			return asked, err
		}
		from, ok := decodeAllToken(opened)
		if !ok {
			return asked, noPageToken(q.PageToken)
		}
		if from.question != asked.question {
			return asked, domain.Errorf(domain.CodeInvalidRequest, "pageToken", "it was given for another query; filter and tenant must be those of the page before, as in its Link header")
		}
		asked.from = &from
	}
	return asked, nil
}

func (c *Catalog) allDocuments(ctx context.Context, p domain.Projection, asked askedAll, fields []domain.Path) (AllDocumentsPage, error) {
	if p.Definition.Mode == domain.ModeLive {
		return AllDocumentsPage{}, domain.Errorf(domain.CodeUnsupported, "name", "projection %q is folded when a tenant asks: no documents of it are kept anywhere", p.Name)
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
	leave, err := c.place(ctx, domain.Everyone, true)
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
			if len(page.Warnings) > 0 { // its definition may be another one
				own := c.warnings(ctx, live, domain.DocumentQuery{Where: asked.where}, fields)
				page.Warnings = slices.DeleteFunc(page.Warnings, func(warning string) bool { return !slices.Contains(own, warning) })
			}
		}
		q := domain.DocumentQuery{Where: asked.where, Limit: asked.size - len(page.Documents) + 1, MaxBytes: maxPageBytes - bytes}
		if asked.from != nil && asked.from.tenant == tenant {
			if asked.from.own != live.Build {
				return AllDocumentsPage{}, pageGone()
			}
			q.After = &domain.SortKey{ID: asked.from.id}
		}
		driver, err := c.driver(live.LiveBuild())
		if err != nil {
			return AllDocumentsPage{}, err
		}
		documents, err := driver.Query(ctx, live.LiveBuild(), tenant, q)
		if err != nil {
			return AllDocumentsPage{}, err
		}
		for _, document := range documents[:min(len(documents), asked.size-len(page.Documents))] {
			page.Documents = append(page.Documents, TenantDocument{tenant, document})
			bytes += len(document.Data)
		}
		here := allToken{build: p.Build, question: asked.question, tenant: tenant, own: live.Build}
		switch {
		case !q.Ended(documents) && len(page.Documents) > 0:
			here.id = page.Documents[len(page.Documents)-1].ID
			page.Next, err = c.tokens.seal(ctx, tokenOfAll, here.encode())
			return page, err
		case i == len(tenants)-1:
		case len(page.Documents) == asked.size, bytes >= maxPageBytes, i+1 == maxPageTenants, time.Now().After(until):
			page.Next, err = c.tokens.seal(ctx, tokenOfAll, here.encode()) // after all of this tenant's
			return page, err
		}
	}
	return page, nil
}

// tenantsOf returns the tenants that the page is to be made of, in their order, and which of them have a build of their own
// in force.
func (c *Catalog) tenantsOf(ctx context.Context, p domain.Projection, asked askedAll) (tenants []domain.TenantID, own map[domain.TenantID]bool, err error) {
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
	if p.Definition.Mode != domain.ModeInline { // all are in builds of tenants, and the projection's own has no table
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
//	8 bytes      the question
//	16 bytes     the tenant
//	uvarint      the tenant's live build
//	the rest     the id behind which the page starts; nothing: behind all of the tenant's documents
type allToken struct {
	build    int64
	question question
	tenant   domain.TenantID
	own      int64
	id       string
}

// passed reports whether the token is behind all documents of a tenant; no token is behind nothing.
func (t *allToken) passed(tenant domain.TenantID) bool {
	if t == nil {
		return false
	}
	order := bytes.Compare(tenant[:], t.tenant[:])
	return order < 0 || order == 0 && t.id == ""
}

func (t *allToken) encode() []byte {
	raw := binary.AppendUvarint(nil, uint64(t.build))
	raw = append(raw, t.question[:]...)
	raw = append(raw, t.tenant[:]...)
	raw = binary.AppendUvarint(raw, uint64(t.own))
	return append(raw, t.id...)
}

// decodeAllToken reads what encode has written.
func decodeAllToken(raw []byte) (t allToken, ok bool) {
	number := func() (value int64, ok bool) {
		n, length := binary.Uvarint(raw)
		if length <= 0 || n == 0 || n > math.MaxInt64 {
			return 0, false
		}
		raw = raw[length:]
		return int64(n), true
	}
	if t.build, ok = number(); !ok || len(raw) < len(t.question)+len(t.tenant) {
		return t, false
	}
	raw = raw[copy(t.question[:], raw):]
	raw = raw[copy(t.tenant[:], raw):]
	if t.own, ok = number(); !ok {
		return t, false
	}
	t.id = string(raw)
	return t, t.id == "" || domain.CheckDocumentID("", t.id) == nil
}
