package api

import (
	"bytes"
	"encoding/json"
	"net/http"

	"github.com/manifold-es/manifold/api/openapi"
)

// The answers that contain documents, states, events and definitions. They replace the generated ones, which would
// write <, > and & as \u003c, \u003e and \u0026. That is the same JSON, but longer and hard to read for people.
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

// statusAnswer is the state of a projection. A fault in it contains a document.
type statusAnswer struct {
	status int
	body   openapi.ProjectionState
}

func (a statusAnswer) VisitGetProjectionStateResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

func (a statusAnswer) VisitRetryProjectionResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

func (a statusAnswer) VisitCatchUpProjectionResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

func (a parkedAnswer) VisitListParkedDocumentsResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a.Body, "Link", a.Headers.Link)
}

// groupAnswer is a group with its filter.
type groupAnswer struct {
	status int
	body   openapi.Subscription
}

func (a groupAnswer) VisitGetSubscriptionResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

func (a groupAnswer) VisitPutSubscriptionResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

func (a groupAnswer) VisitSeekSubscriptionResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

func (a groupAnswer) VisitPauseSubscriptionResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

func (a groupAnswer) VisitResumeSubscriptionResponse(w http.ResponseWriter) error {
	return writeVerbatimAs(w, a.status, a.body, "", nil)
}

func (a groupsAnswer) VisitListSubscriptionsResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a.Body, "Link", a.Headers.Link)
}

func (a documentAnswer) VisitGetDocumentResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a.Body, "ETag", a.Headers.ETag)
}

func (a documentsAnswer) VisitListDocumentsResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a.Body, "Link", a.Headers.Link)
}

func (a allAnswer) VisitListAllDocumentsResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a.Body, "Link", a.Headers.Link)
}

func (a stateAnswer) VisitGetStateResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a.Body, "ETag", a.Headers.ETag)
}

func (a previewAnswer) VisitPreviewProjectionResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a, "", nil)
}

func (a planAnswer) VisitPlanProjectionsResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a, "", nil)
}

func (a versionsAnswer) VisitListProjectionVersionsResponse(w http.ResponseWriter) error {
	return writeVerbatim(w, a, "", nil)
}

// writeVerbatim answers with a body, and with a header unless its value is nil. It sends nothing of a body that is not
// valid JSON.
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
