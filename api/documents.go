package api

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

func (s generated) ListDocuments(ctx context.Context, request openapi.ListDocumentsRequestObject) (openapi.ListDocumentsResponseObject, error) {
	tenant := callerOf(ctx).tenant
	params := request.Params
	size := pageSizeOf(params.PageSize)
	page, err := s.config.Projections.Documents(ctx, tenant, request.Name, projection.DocumentsQuery{
		PageToken: value(params.PageToken), PageSize: size, Freshness: freshness(params.MinPosition, params.Timeout),
	})
	if err != nil {
		return nil, err
	}
	answer := openapi.ListDocuments200JSONResponse{Body: openapi.DocumentList{Documents: []openapi.Document{}}}
	for _, document := range page.Documents {
		answer.Body.Documents = append(answer.Body.Documents, documentAnswer(document))
	}
	if page.Next != "" {
		answer.Headers.Link = pageLink("/v1/projections/"+request.Name+"/documents", url.Values{"pageSize": {strconv.Itoa(size)}}, page.Next)
	}
	return answer, nil
}

func (s generated) GetDocument(ctx context.Context, request openapi.GetDocumentRequestObject) (openapi.GetDocumentResponseObject, error) {
	tenant := callerOf(ctx).tenant
	fresh := freshness(request.Params.MinPosition, request.Params.Timeout)
	document, err := s.config.Projections.Document(ctx, tenant, request.Name, request.DocumentId, fresh)
	if err != nil {
		return nil, err
	}
	tag := etag(document.Version)
	return openapi.GetDocument200JSONResponse{
		Body: documentAnswer(document), Headers: openapi.GetDocument200ResponseHeaders{ETag: &tag},
	}, nil
}

func freshness(minPosition *int64, timeout *int) projection.Freshness {
	fresh := projection.Freshness{MinPosition: value(minPosition)}
	if timeout != nil {
		// For the catalog zero is its default; who asks for no waiting gets next to none.
		fresh.Wait = max(time.Duration(*timeout)*time.Second, time.Millisecond)
	}
	return fresh
}

func documentAnswer(document domain.Document) openapi.Document {
	return openapi.Document{Id: document.ID, Position: document.Version, Document: document.Data}
}
