package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/expr/filter"
	"github.com/manifold-es/manifold/projection"
)

func (s operations) ListDocuments(ctx context.Context, caller access.Caller, request openapi.ListDocumentsRequest) (*openapi.Response, error) {
	params := request.Params
	query := projection.DocumentsQuery{
		Filter: value(params.Filter), OrderBy: value(params.OrderBy), Count: params.Count != nil,
		PageSize: cmp.Or(value(params.PageSize), defaultPage), PageToken: value(params.PageToken), Freshness: freshness(params.MinPosition, params.Timeout),
	}
	fields, pick, err := pickerOf(params.Fields)
	if err != nil {
		return nil, err
	}
	query.Fields = fields
	if caller.Tenant == domain.Everyone {
		return s.explainDocuments(ctx, request, query)
	}
	if value(params.Explain) || params.Tenant != nil {
		return nil, domain.Errorf(domain.CodeForbidden, "Authorization", "explain and tenant are for the operator's key; a tenant's key reads its own documents without them")
	}
	page, err := s.config.Projections.Documents(ctx, caller.Tenant, request.Name, query)
	if err != nil {
		return nil, err
	}
	body := openapi.DocumentList{Documents: make([]openapi.Document, len(page.Documents)), Warnings: page.Warnings}
	for i, document := range page.Documents {
		if body.Documents[i], err = pick(document); err != nil {
			return nil, err
		}
	}
	if query.Count {
		body.Count = &page.Count
	}
	answer := openapi.OK(body)
	if page.Next != "" {
		answer.With("Link", pageLink("/v1/projections/"+request.Name+"/documents", url.Values{
			"filter": optional(params.Filter), "orderBy": optional(params.OrderBy), "fields": optional(params.Fields), "count": optional(params.Count),
		}, query.PageSize, page.Next))
	}
	return answer, nil
}

// explainDocuments answers the operator, who may not read tenants' documents but may see the cost of the database
// query.
func (s operations) explainDocuments(ctx context.Context, request openapi.ListDocumentsRequest, query projection.DocumentsQuery) (*openapi.Response, error) {
	if !value(request.Params.Explain) {
		return nil, domain.Errorf(domain.CodeForbidden, "Authorization", "documents are a tenant's: they need a key of that tenant with documents:read; with the operator's key, explain=true says how they would be read")
	}
	if request.Params.Tenant == nil {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "query tenant", "required with explain: the id of the tenant whose documents are queried")
	}
	tenant, err := s.undeletedTenant(ctx, *request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	explained, err := s.config.Projections.Explain(ctx, tenant, request.Name, query)
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.DocumentList{
		Documents:   []openapi.Document{},
		Explanation: &openapi.Explanation{Database: explained.Database, Statement: explained.Statement, Plan: explained.Plan},
	}), nil
}

func (s operations) ListAllDocuments(ctx context.Context, caller access.Caller, request openapi.ListAllDocumentsRequest) (*openapi.Response, error) {
	params := request.Params
	query := projection.AllDocumentsQuery{Filter: value(params.Filter), PageSize: cmp.Or(value(params.PageSize), defaultPage), PageToken: value(params.PageToken)}
	fields, pick, err := pickerOf(params.Fields)
	if err != nil {
		return nil, err
	}
	query.Fields = fields
	if params.Tenant != nil {
		if query.Tenant, err = parseTenantID("query tenant", *params.Tenant); err != nil {
			return nil, err
		}
	}
	page, err := s.config.Projections.AllDocuments(ctx, request.Name, query)
	if err != nil {
		return nil, err
	}
	body := openapi.TenantDocumentList{Documents: make([]openapi.TenantDocument, len(page.Documents)), Warnings: page.Warnings}
	for i, document := range page.Documents {
		shown, err := pick(document.Document)
		if err != nil {
			return nil, err
		}
		body.Documents[i] = openapi.TenantDocument{
			Tenant: document.Tenant.String(), Id: shown.Id, Position: shown.Position, Document: shown.Document,
		}
	}
	answer := openapi.OK(body)
	if page.Next != "" {
		answer.With("Link", pageLink("/v1/admin/projections/"+request.Name+"/documents", url.Values{
			"filter": optional(params.Filter), "tenant": optional(params.Tenant), "fields": optional(params.Fields),
		}, query.PageSize, page.Next))
	}
	return answer, nil
}

func (s operations) GetDocument(ctx context.Context, caller access.Caller, request openapi.GetDocumentRequest) (*openapi.Response, error) {
	_, pick, err := pickerOf(request.Params.Fields)
	if err != nil {
		return nil, err
	}
	fresh := freshness(request.Params.MinPosition, request.Params.Timeout)
	document, err := s.config.Projections.Document(ctx, caller.Tenant, request.Name, request.DocumentId, fresh)
	if err != nil {
		return nil, err
	}
	answer, err := pick(document)
	return openapi.OK(answer).With("ETag", etag(document.Version)), err
}

// pickerOf returns the requested paths, and a function that turns a document into an answer with these parts, or with
// all of it. The paths do not affect how a document is read.
func pickerOf(fields *string) (paths []domain.Path, picker func(domain.Document) (openapi.Document, error), err error) {
	if fields == nil {
		return nil, func(document domain.Document) (openapi.Document, error) { return documentAnswer(document), nil }, nil
	}
	paths, err = filter.CompileFields(*fields)
	if wrong, ok := errors.AsType[*expr.CompileError](err); ok {
		return nil, nil, domain.Errorf(domain.CodeInvalidRequest, "fields", "%s", wrong)
	} else if err != nil {
		return nil, nil, fmt.Errorf("compile fields: %w", err)
	}
	return paths, func(document domain.Document) (openapi.Document, error) {
		if document.Data, err = domain.Pick(document.Data, paths); err != nil {
			return openapi.Document{}, fmt.Errorf("pick fields of document %q: %w", document.ID, err)
		}
		return documentAnswer(document), nil
	}, nil
}

func documentAnswer(d domain.Document) openapi.Document {
	return openapi.Document{Id: d.ID, Position: d.Version, Document: d.Data}
}

func freshness(minPosition *int64, timeout *int) projection.Freshness {
	fresh := projection.Freshness{MinPosition: value(minPosition)}
	if timeout != nil {
		// The catalog takes zero as its default, so a wait of zero becomes a millisecond.
		fresh.Wait = max(time.Duration(*timeout)*time.Second, time.Millisecond)
	}
	return fresh
}
