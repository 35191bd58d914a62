package api

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/manifold-es/manifold/api/openapi"
)

// The answers that have documents, states, events and definitions in them. They stand for the generated ones, which would write <, > and & in
// them as \u003c, \u003e and \u0026: the same JSON, but longer, and hard to read where people look at it.
type (
	documentAnswer  openapi.GetDocument200JSONResponse
	documentsAnswer openapi.ListDocuments200JSONResponse
	allAnswer       openapi.ListAllDocuments200JSONResponse
	stateAnswer     openapi.GetState200JSONResponse
	previewAnswer   openapi.PreviewResult
	planAnswer      openapi.PlanResult
	versionsAnswer  openapi.ProjectionVersionList
	parkedAnswer    openapi.ListParkedDocuments200JSONResponse
	groupsAnswer    openapi.ListSubscriptions200JSONResponse
)

// statusAnswer is how a projection is doing; a fault has a document in it.
type statusAnswer struct {
	status int
	body   openapi.ProjectionState
}

// VisitGetProjectionStateResponse writes the answer.
func (a statusAnswer) VisitGetProjectionStateResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

// VisitRetryProjectionResponse writes the answer.
func (a statusAnswer) VisitRetryProjectionResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

// VisitCatchUpProjectionResponse writes the answer.
func (a statusAnswer) VisitCatchUpProjectionResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

// VisitListParkedDocumentsResponse writes the answer.
func (a parkedAnswer) VisitListParkedDocumentsResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a.Body, "Link", a.Headers.Link)
}

// groupAnswer is a group, with its filter.
type groupAnswer struct {
	status int
	body   openapi.Subscription
}

// VisitGetSubscriptionResponse writes the answer.
func (a groupAnswer) VisitGetSubscriptionResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

// VisitPutSubscriptionResponse writes the answer.
func (a groupAnswer) VisitPutSubscriptionResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

// VisitSeekSubscriptionResponse writes the answer.
func (a groupAnswer) VisitSeekSubscriptionResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

// VisitPauseSubscriptionResponse writes the answer.
func (a groupAnswer) VisitPauseSubscriptionResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

// VisitResumeSubscriptionResponse writes the answer.
func (a groupAnswer) VisitResumeSubscriptionResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

// VisitListSubscriptionsResponse writes the answer.
func (a groupsAnswer) VisitListSubscriptionsResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a.Body, "Link", a.Headers.Link)
}

// VisitGetDocumentResponse writes the answer.
func (a documentAnswer) VisitGetDocumentResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a.Body, "ETag", a.Headers.ETag)
}

// VisitListDocumentsResponse writes the answer.
func (a documentsAnswer) VisitListDocumentsResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a.Body, "Link", a.Headers.Link)
}

// VisitListAllDocumentsResponse writes the answer.
func (a allAnswer) VisitListAllDocumentsResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a.Body, "Link", a.Headers.Link)
}

// VisitGetStateResponse writes the answer.
func (a stateAnswer) VisitGetStateResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a.Body, "ETag", a.Headers.ETag)
}

// VisitPreviewProjectionResponse writes the answer.
func (a previewAnswer) VisitPreviewProjectionResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a, "", nil)
}

// VisitPlanProjectionsResponse writes the answer.
func (a planAnswer) VisitPlanProjectionsResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a, "", nil)
}

// VisitListProjectionVersionsResponse writes the answer.
func (a versionsAnswer) VisitListProjectionVersionsResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a, "", nil)
}

// writeVerbatim answers with a body, and with a header unless its value is nil. Nothing is sent of a body that is no JSON.
func writeVerbatim(w http.ResponseWriter, body any, header string, value *string) error {
	return writeVerbatimAs(w, http.StatusOK, body, header, value)
}

func writeVerbatimAs(w http.ResponseWriter, status int, body any, header string, value *string) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	if value != nil {
		w.Header().Set(header, *value)
	}
	w.WriteHeader(status)
	_, err := text.WriteTo(w)
	return err
}
