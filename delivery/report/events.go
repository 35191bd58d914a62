package report

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// The types of reports.
const (
	TypeDeadLettered = "EventDeadLettered"
	TypeParked       = "DocumentParked"

	TypeStopped = "ProjectionStopped"
	TypeResumed = "ProjectionResumed"

	TypeProjectionBehind   = "ProjectionBehind"
	TypeProjectionCaughtUp = "ProjectionCaughtUp"
	TypeGroupBehind        = "GroupBehind"
	TypeGroupCaughtUp      = "GroupCaughtUp"

	TypeWebhookFailing   = "WebhookFailing"
	TypeWebhookRecovered = "WebhookRecovered"

	TypeQuotaNearlyReached = "QuotaNearlyReached"
	TypeQuotaRelieved      = "QuotaRelieved"
)

// subject is the event that a report is about. Its data is left out: it can be read by its position.
type subject struct {
	Position int64  `json:"position"`
	EventID  string `json:"eventId"`
	Stream   string `json:"stream"`
	Type     string `json:"type"`
}

// deadLettered is the data of EventDeadLettered.
type deadLettered struct {
	Group string `json:"group"`
	subject
	Attempts       int       `json:"attempts"`
	Reason         string    `json:"reason"`
	DeadLetteredAt time.Time `json:"deadLetteredAt"`
}

// parked is the data of DocumentParked.
type parked struct {
	Projection string `json:"projection"`
	Document   string `json:"document,omitempty"` // missing if the event's key cannot be computed
	subject
	Where    string    `json:"where"`
	Message  string    `json:"message"`
	ParkedAt time.Time `json:"parkedAt"`
}

// stopped is the data of ProjectionStopped and ProjectionResumed.
type stopped struct {
	Projection string `json:"projection"`
	subject
	Where     string    `json:"where"`
	Message   string    `json:"message"`
	StoppedAt time.Time `json:"stoppedAt"`
}

// behind is the data of the reports of a projection's or group's lag, when that was found.
type behind struct {
	Projection string `json:"projection,omitempty"`
	Group      string `json:"group,omitempty"`
	Position   int64  `json:"position"` // everything up to here was processed
	Head       int64  `json:"head"`
	LagSeconds int64  `json:"lagSeconds"`
	MaxLag     int64  `json:"maxLag"`
}

// failing is the data of WebhookFailing and WebhookRecovered.
type failing struct {
	Webhook      string    `json:"webhook"`
	FailingSince time.Time `json:"failingSince"`
	Attempts     int64     `json:"attempts"`
	Outcome      string    `json:"outcome"`
	Status       int       `json:"status,omitempty"`
	Error        string    `json:"error,omitempty"`
}

// maxText limits, in bytes, each text that a report quotes from a consumer, expression or event.
const maxText = 2000

// newReport returns a report as part of a request. cause is the event that it is about.
func newReport(id domain.EventID, stream, eventType string, at time.Time, data any, cause domain.EventID) (domain.StreamAppend, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return domain.StreamAppend{}, fmt.Errorf("encode a report: %w", err)
	}
	event := domain.NewEvent{ID: id, Type: eventType, Data: text, OccurredAt: at}
	if !cause.IsZero() {
		event.Tags = []string{domain.CauseTag(cause)}
		event.Metadata = json.RawMessage(`{"caused_by":"` + cause.String() + `"}`)
	}
	return domain.StreamAppend{Stream: stream, Expected: domain.Any, Events: []domain.NewEvent{event}}, nil
}

// quote returns a text as a report may contain it.
func quote(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(domain.Clip(text, maxText), "\uFFFD"), "\x00", "\uFFFD")
}

// streamOf returns the stream of a category for reports about another stream, which becomes the id. A hash replaces a
// name that is too long.
func streamOf(category, about string) string {
	if stream := category + "-" + about; domain.CheckStream("", stream) == nil {
		return stream
	}
	return category + "-" + domain.DeriveEventID(category, about).String()
}

// reportDeadLetters reports a slice of dead letters. A dead letter of a report is not reported: otherwise a consumer of
// reports that fails would make reports without end.
func (r *Reporter) reportDeadLetters(ctx context.Context, tenant domain.TenantID, t *reporting) (bool, error) {
	letters, err := r.config.Groups.UnreportedDeadLetters(ctx, tenant, t.Since, slice)
	if err != nil || len(letters) == 0 {
		return false, err
	}
	var reports []domain.StreamAppend
	for i := range letters {
		if domain.IsReport(letters[i].Stream) {
			continue
		}
		report, err := deadLetterReport(&letters[i])
		if err != nil {
			return false, err
		}
		reports = append(reports, report)
	}
	if err := r.append(ctx, tenant, reports); err != nil {
		return false, err
	}
	return true, r.config.Groups.MarkReported(ctx, tenant, letters)
}

func deadLetterReport(d *group.GroupDeadLetter) (domain.StreamAppend, error) {
	id := domain.DeriveEventID(TypeDeadLettered, d.Group, d.EventID.String(), strconv.FormatInt(d.ParkedAt.UnixMicro(), 10))
	return newReport(id, streamOf(domain.DeadLetterCategory(d.Group), d.Stream), TypeDeadLettered, d.ParkedAt, deadLettered{
		Group: d.Group, subject: subject{d.Position, d.EventID.String(), d.Stream, d.Type},
		Attempts: d.Attempt - d.Base, Reason: quote(d.Reason), DeadLetteredAt: d.ParkedAt,
	}, d.EventID)
}

// reportParked reports a slice of each live build's parked documents.
func (r *Reporter) reportParked(ctx context.Context, tenant domain.TenantID, t *reporting) (reported bool, err error) {
	builds, err := r.config.Registry.UnreportedBuilds(ctx, tenant, t.Since)
	if err != nil {
		return false, err
	}
	for _, b := range builds {
		live, err := r.isLive(ctx, tenant, b.ProjectionID, b.Build)
		if err != nil {
			return false, err
		}
		if !live {
			continue // it is reported if it goes live
		}
		documents, err := r.config.Registry.UnreportedParked(ctx, b, t.Since, slice)
		if err != nil {
			return false, err
		}
		var reports []domain.StreamAppend
		for i := range documents {
			if domain.IsReport(documents[i].Stream) {
				continue
			}
			report, err := parkedReport(&documents[i])
			if err != nil {
				return false, err
			}
			reports = append(reports, report)
		}
		if err := r.append(ctx, tenant, reports); err != nil {
			return false, err
		}
		if err := r.config.Registry.MarkParkedReported(ctx, tenant, documents); err != nil {
			return false, err
		}
		reported = true
	}
	return reported, nil
}

// parkedReport's id does not depend on the build, so a rebuild that parks the same document again is not reported.
func parkedReport(d *domain.ParkedDocument) (domain.StreamAppend, error) {
	id := domain.DeriveEventID(TypeParked, d.Owner.String(), d.Name, d.ID, d.EventID.String())
	return newReport(id, streamOf(domain.ParkedCategory(d.Name), d.Stream), TypeParked, d.ParkedAt, parked{
		Projection: d.Name, Document: d.DocumentID, subject: subject{d.Position, d.EventID.String(), d.Stream, d.EventType},
		Where: d.Where, Message: quote(d.Message), ParkedAt: d.ParkedAt,
	}, d.EventID)
}

// isLive reports whether a build is the projection's live one for the tenant.
func (r *Reporter) isLive(ctx context.Context, tenant domain.TenantID, id domain.ProjectionID, build int64) (bool, error) {
	p, err := r.config.Projections.Live(ctx, tenant, id.Name)
	if domain.IsCode(err, domain.CodeNotFound) {
		return false, nil
	}
	return err == nil && p.ProjectionID == id && p.Build == build, err
}
