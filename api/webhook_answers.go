package api

import (
	"net/http"

	"github.com/manifold-es/manifold/api/openapi"
)

// The answers with webhooks, written like those in verbatim.go, since they contain filters, URLs and endpoints'
// responses.
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

func (a webhooksAnswer) VisitListWebhooksResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a.Body, "Link", a.Headers.Link)
}

func (a webhookAnswer) VisitGetWebhookResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

func (a webhookAnswer) VisitPutWebhookResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

func (a webhookAnswer) VisitPauseWebhookResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

func (a webhookAnswer) VisitResumeWebhookResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

func (a attemptsAnswer) VisitListWebhookAttemptsResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a.Body, "Link", a.Headers.Link)
}

func (a attemptAnswer) VisitTestWebhookResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a, "", nil)
}
