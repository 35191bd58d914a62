package api

import (
	"net/http"

	"github.com/manifold-es/manifold/api/openapi"
)

// The answers with webhooks, written as those in verbatim.go: filters, URLs and what endpoints have said are in them.
type (
	webhooksAnswer openapi.ListWebhooks200JSONResponse
	attemptsAnswer openapi.ListWebhookAttempts200JSONResponse
	attemptAnswer  openapi.WebhookAttempt
)

// webhookAnswer is a webhook.
type webhookAnswer struct {
	status int
	body   openapi.Webhook
}

// VisitListWebhooksResponse writes the answer.
func (a webhooksAnswer) VisitListWebhooksResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a.Body, "Link", a.Headers.Link)
}

// VisitGetWebhookResponse writes the answer.
func (a webhookAnswer) VisitGetWebhookResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

// VisitPutWebhookResponse writes the answer.
func (a webhookAnswer) VisitPutWebhookResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

// VisitPauseWebhookResponse writes the answer.
func (a webhookAnswer) VisitPauseWebhookResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

// VisitResumeWebhookResponse writes the answer.
func (a webhookAnswer) VisitResumeWebhookResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

// VisitListWebhookAttemptsResponse writes the answer.
func (a attemptsAnswer) VisitListWebhookAttemptsResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a.Body, "Link", a.Headers.Link)
}

// VisitTestWebhookResponse writes the answer.
func (a attemptAnswer) VisitTestWebhookResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a, "", nil)
}
