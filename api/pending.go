package api

import (
	"context"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
)

// What the contract has and is being built in this very change: each goes from here to the file of its tag.

func pending() error { return domain.Errorf(domain.CodeUnsupported, "", "this is being built") }

func (s generated) ListParkedDocuments(context.Context, openapi.ListParkedDocumentsRequestObject) (openapi.ListParkedDocumentsResponseObject, error) {
	return nil, pending()
}

func (s generated) ReplayParkedDocuments(context.Context, openapi.ReplayParkedDocumentsRequestObject) (openapi.ReplayParkedDocumentsResponseObject, error) {
	return nil, pending()
}

func (s generated) DiscardParkedDocument(context.Context, openapi.DiscardParkedDocumentRequestObject) (openapi.DiscardParkedDocumentResponseObject, error) {
	return nil, pending()
}

func (s generated) ReplayParkedDocument(context.Context, openapi.ReplayParkedDocumentRequestObject) (openapi.ReplayParkedDocumentResponseObject, error) {
	return nil, pending()
}

func (s generated) RetryProjection(context.Context, openapi.RetryProjectionRequestObject) (openapi.RetryProjectionResponseObject, error) {
	return nil, pending()
}

func (s generated) SkipEvent(context.Context, openapi.SkipEventRequestObject) (openapi.SkipEventResponseObject, error) {
	return nil, pending()
}

func (s generated) ListSkippedEvents(context.Context, openapi.ListSkippedEventsRequestObject) (openapi.ListSkippedEventsResponseObject, error) {
	return nil, pending()
}
