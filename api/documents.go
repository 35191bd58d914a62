package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/expr/filter"
	"github.com/manifold-es/manifold/projection"
)

func (s generated) ListDocuments(ctx context.Context, request openapi.ListDocumentsRequestObject) (openapi.ListDocumentsResponseObject, error) {
	tenant := callerOf(ctx).tenant
	params := request.Params
	query := projection.DocumentsQuery{
		Filter: value(params.Filter), OrderBy: value(params.OrderBy), Count: params.Count != nil,
		PageSize: pageSizeOf(params.PageSize), PageToken: value(params.PageToken), Freshness: freshness(params.MinPosition, params.Timeout),
	}
	fields, pick, err := pickerOf(params.Fields)
	if err != nil {
		return nil, err
	}
	query.Fields = fields
	if tenant == domain.Everyone {
		return s.explainDocuments(ctx, request, query)
	}
	if value(params.Explain) || params.Tenant != nil {
		return nil, domain.Errorf(domain.CodeForbidden, "Authorization", "explain and tenant are for the operator's key; a tenant's key reads its own documents without them")
	}
	page, err := s.config.Projections.Documents(ctx, tenant, request.Name, query)
	if err != nil {
		return nil, err
	}
	answer := documentsAnswer{Body: openapi.DocumentList{Documents: make([]openapi.Document, 0, len(page.Documents))}}
	for _, document := range page.Documents {
		shown, err := pick(document)
		if err != nil {
			return nil, err
		}
		answer.Body.Documents = append(answer.Body.Documents, shown)
	}
	answer.Body.Warnings = page.Warnings
	if query.Count {
		answer.Body.Count = &page.Count
	}
	if page.Next != "" {
		answer.Headers.Link = pageLink("/v1/projections/"+request.Name+"/documents", url.Values{
			"filter": values(params.Filter), "orderBy": values(params.OrderBy), "fields": values(params.Fields), "count": values(params.Count),
			"pageSize": {strconv.Itoa(query.PageSize)},
		}, page.Next)
	}
	return answer, nil
}

// explainDocuments answers the operator, who may not read tenants' documents but may see the cost of the database
// query.
func (s generated) explainDocuments(ctx context.Context, request openapi.ListDocumentsRequestObject, query projection.DocumentsQuery) (openapi.ListDocumentsResponseObject, error) {
	if !value(request.Params.Explain) {
		return nil, domain.Errorf(domain.CodeForbidden, "Authorization", "documents are a tenant's: they need a key of that tenant with documents:read; with the operator's key, explain=true says how they would be read")
	}
	if request.Params.Tenant == nil {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "query tenant", "required with explain: the id of the tenant whose documents are queried")
	}
	id, err := parseTenantID("query tenant", *request.Params.Tenant)
	if err != nil {
		return nil, err
	}
	tenant, err := s.config.Tenants.Tenant(ctx, id)
	if err != nil {
		return nil, err
	}
	if tenant.State == domain.TenantDeleting || tenant.State == domain.TenantDeleted {
		return nil, domain.Errorf(domain.CodeNotFound, "query tenant", "the tenant %s is deleted", tenant.ID)
	}
	explained, err := s.config.Projections.Explain(ctx, tenant.ID, request.Name, query)
	if err != nil {
		return nil, err
	}
	return documentsAnswer{Body: openapi.DocumentList{
		Documents:   []openapi.Document{},
		Explanation: &openapi.Explanation{Database: explained.Database, Statement: explained.Statement, Plan: explained.Plan},
	}}, nil
}

func (s generated) ListAllDocuments(ctx context.Context, request openapi.ListAllDocumentsRequestObject) (openapi.ListAllDocumentsResponseObject, error) {
	params := request.Params
	query := projection.AllDocumentsQuery{Filter: value(params.Filter), PageSize: pageSizeOf(params.PageSize), PageToken: value(params.PageToken)}
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
	answer := allAnswer{Body: openapi.TenantDocumentList{Documents: make([]openapi.TenantDocument, len(page.Documents)), Warnings: page.Warnings}}
	for i, document := range page.Documents {
		shown, err := pick(document.Document)
		if err != nil {
			return nil, err
		}
		answer.Body.Documents[i] = openapi.TenantDocument{
			Tenant: document.Tenant.String(), Id: shown.Id, Position: shown.Position, Document: shown.Document,
		}
	}
	if page.Next != "" {
		answer.Headers.Link = pageLink("/v1/admin/projections/"+request.Name+"/documents", url.Values{
			"filter": values(params.Filter), "tenant": values(params.Tenant), "fields": values(params.Fields),
			"pageSize": {strconv.Itoa(query.PageSize)},
		}, page.Next)
	}
	return answer, nil
}

func (s generated) GetDocument(ctx context.Context, request openapi.GetDocumentRequestObject) (openapi.GetDocumentResponseObject, error) {
	tenant := callerOf(ctx).tenant
	_, pick, err := pickerOf(request.Params.Fields)
	if err != nil {
		return nil, err
	}
	fresh := freshness(request.Params.MinPosition, request.Params.Timeout)
	document, err := s.config.Projections.Document(ctx, tenant, request.Name, request.DocumentId, fresh)
	if err != nil {
		return nil, err
	}
	answer, err := pick(document)
	if err != nil {
		return nil, err
	}
	tag := etag(document.Version)
	return documentAnswer{Body: answer, Headers: openapi.GetDocument200ResponseHeaders{ETag: &tag}}, nil
}

// pickerOf returns the requested paths, and a function that turns a document into an answer with these parts, or with
// all of it. The paths do not affect how a document is read.
func pickerOf(fields *string) (paths []domain.Path, picker func(domain.Document) (openapi.Document, error), err error) {
	pick := func(data json.RawMessage) (json.RawMessage, error) { return data, nil }
	if fields != nil {
		paths, err = filter.CompileFields(*fields)
		if wrong, ok := errors.AsType[*expr.CompileError](err); ok {
			return nil, nil, domain.Errorf(domain.CodeInvalidRequest, "fields", "%s", wrong)
		} else if err != nil {
			return nil, nil, fmt.Errorf("compile fields: %w", err)
		}
		pick = func(data json.RawMessage) (json.RawMessage, error) { return domain.Pick(data, paths) }
	}
	return paths, func(document domain.Document) (openapi.Document, error) {
		data, err := pick(document.Data)
		if err != nil {
			return openapi.Document{}, fmt.Errorf("pick fields of document %q: %w", document.ID, err)
		}
		return openapi.Document{Id: document.ID, Position: document.Version, Document: data}, nil
	}, nil
}

func freshness(minPosition *int64, timeout *int) projection.Freshness {
	fresh := projection.Freshness{MinPosition: value(minPosition)}
	if timeout != nil {
		// The catalog takes zero as its default, so a wait of zero becomes a millisecond.
		fresh.Wait = max(time.Duration(*timeout)*time.Second, time.Millisecond)
	}
	return fresh
}
