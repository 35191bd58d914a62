package folding

import (
	"time"

	"github.com/manifold-es/manifold/domain"
)

// UsageName is the name of the projection that Manifold itself deploys: how much each tenant has appended, by day.
const UsageName = "usage"

// UsageDefinition is the definition of the projection `usage`, a shared one, whose handler is UsageHandler.
func UsageDefinition() domain.Definition {
	return WithDefaults(domain.Definition{Name: UsageName, Handler: UsageName})
}

// usage is a document of the projection `usage`.
type usage struct {
	Day    string `json:"day"`    // in UTC, by the time of recording
	Events int64  `json:"events"` // recorded on that day
	Bytes  int64  `json:"bytes"`  // of their data and metadata as JSON text
}

// UsageHandler counts a tenant's events and their bytes by the UTC day of recording, which is the document's id.
func UsageHandler() Handler {
	return usageHandler{HandlerOf(Rule[usage]{
		Key: func(event domain.Event) (string, error) { return dayOf(event.RecordedAt), nil },
		Fold: func(doc *usage, event domain.Event) (bool, error) {
			doc.Day = dayOf(event.RecordedAt)
			doc.Events++
			doc.Bytes += int64(len(event.Data) + len(event.Metadata))
			return true, nil
		},
	})}
}

type usageHandler struct{ Handler }

func (usageHandler) asRecorded() {}

// usageInterval is how far usage may lag: nobody is billed by the second, and each turn writes the day's document.
const usageInterval = 10 * time.Second

// Interval implements Relaxed.
func (usageHandler) Interval() time.Duration { return usageInterval }

// asRecorded is a Handler that gets events as they are in the log, without upcasting.
type asRecorded interface{ asRecorded() }

func dayOf(moment time.Time) string { return moment.UTC().Format(time.DateOnly) }

// BuiltIn reports whether Manifold itself deploys the projection.
func BuiltIn(id domain.ProjectionID) bool { return id.Shared() && id.Name == UsageName }

// CheckReserved reserves the names of the projections that Manifold itself deploys.
func CheckReserved(id domain.ProjectionID, definition domain.Definition) error {
	if id.Name != UsageName || BuiltIn(id) && definition.Handler == UsageName {
		return nil
	}
	return domain.Errorf(domain.CodeInvalidDefinition, "name", "%q is the name of a built-in projection; choose another name", UsageName)
}
