package reactor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/manifold-es/manifold/delivery/consume"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
	"github.com/manifold-es/manifold/projection/folding"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// Bounds of publishing changes.
const (
	changesBatch    = 200 // events looked at together
	changesChunk    = 32  // documents whose changes are appended together
	changesBytes    = 4 << 20
	changesTries    = 5  // after conflicts with others that append the same changes
	changesAttempts = 20 // before an event with a parked document becomes a dead letter: some hours with back-off
)

// writer publishes the changes that one tenant's events have made to a projection's documents.
type writer struct {
	consume.Round
	changes *Changes
	id      domain.ProjectionID
}

// newWriter returns a writer that publishes one batch of events after the other.
func newWriter(c *Changes, id domain.ProjectionID, source consume.Group) *writer {
	w := &writer{changes: c, id: id, Round: consume.Round{Group: source, Together: true, SettleTimeout: settleTimeout}}
	w.Room = func(unsettled int) (int, time.Time) {
		if unsettled > 0 {
			return 0, time.Time{}
		}
		return changesBatch, time.Time{}
	}
	w.Handle = w.publish
	return w
}

// touched is a document that events have changed, in its current state.
type touched struct {
	id         string
	stream     string
	document   *domain.Document
	by         domain.Event // the last of these events
	deliveries []*sharedDelivery
}

// sharedDelivery is a delivery in progress. It is settled when the changes of all of its event's documents are
// published.
type sharedDelivery struct {
	domain.Delivery
	left   int             // documents whose changes are not published yet
	answer consume.Outcome // if all goes well for the remaining documents
}

// version returns the log position that the document reflects, as far as known. A removed document has no version, so
// the event's position is used.
func (t *touched) version() int64 {
	if t.document != nil {
		return t.document.Version
	}
	return t.by.Position
}

// publish publishes the changes of the delivered events. nextRun is set if the projection has not reached them yet.
func (w *writer) publish(ctx context.Context, deliveries []domain.Delivery) (nextRun time.Time, err error) {
	documents, err := w.touch(ctx, deliveries)
	if err != nil {
		w.SettleAs(consume.GiveBack, deliveries...)
		return nextRun, err
	}
	for chunk := range slices.Chunk(documents, changesChunk) {
		if err == nil {
			err = w.publishChunk(ctx, chunk)
		}
		for _, t := range chunk {
			w.settle(t, err)
		}
	}
	return w.PauseIfAhead(deliveries), err
}

// settle settles the deliveries whose last document this is. err means that its change was not published.
func (w *writer) settle(t *touched, err error) {
	refused := ""
	if err == nil {
		refused = t.refused()
	}
	for _, p := range t.deliveries {
		switch {
		case err != nil:
			p.answer = consume.Outcome{Delivery: p.Delivery, Answer: consume.GiveBack}
		case refused != "" && p.answer.Answer == consume.Ack:
			p.answer = consume.Outcome{Delivery: p.Delivery, Answer: consume.Nack, Nack: domain.Nack{Action: domain.NackPark, Delay: -1, Reason: refused}}
		}
		if p.left--; p.left == 0 {
			w.Settle(p.answer)
		}
	}
}

// touch returns the documents of the events, ordered by the last event of each. It settles the events without a
// document. Parked documents hold back their events, but not the changes of the events' other documents.
func (w *writer) touch(ctx context.Context, deliveries []domain.Delivery) ([]*touched, error) {
	found, err := w.Documents(ctx, deliveries)
	if err != nil {
		return nil, err
	}
	var all []*touched
	byID := make(map[string]*touched)
	for i, d := range deliveries {
		stored := slices.DeleteFunc(found[i].All, func(of projection.EventDocument) bool { return of.Waiting })
		if w.IsAhead(&d) || len(stored) == 0 {
			settleWithoutDocument(&w.Round, &d, found[i])
			continue
		}
		p := &sharedDelivery{Delivery: d, left: len(stored), answer: consume.Outcome{Delivery: d, Answer: consume.Ack}}
		if found[i].Waiting {
			p.answer = consume.Retry(d, found[i].Reason())
		}
		for _, of := range stored {
			t := byID[of.ID]
			if t == nil {
				t = &touched{id: of.ID, stream: domain.ChangesStream(w.id.Name, of.ID)}
				byID[of.ID] = t
				all = append(all, t)
			}
			t.document, t.deliveries = of.Document, append(t.deliveries, p)
			if d.Event.Position > t.by.Position {
				t.by = d.Event
			}
		}
	}
	slices.SortFunc(all, func(a, b *touched) int { return int(a.by.Position - b.by.Position) })
	return all, nil
}

// publishChunk publishes the changes of documents. If another process publishes them at the same time, it compares
// again.
func (w *writer) publishChunk(ctx context.Context, chunk []*touched) error {
	emptyStreams := make(map[string]int64) // versions of the streams whose newest event is gone
	for try := 0; ; try++ {
		err := w.append(ctx, chunk, emptyStreams)
		if err == nil {
			break
		}
		conflict, ok := errors.AsType[*domain.Error](err)
		if !ok || conflict.Code != domain.CodeVersionConflict || try == changesTries {
			return err
		}
		if conflict.CurrentVersion != nil {
			emptyStreams[conflict.Stream] = *conflict.CurrentVersion
		}
		// Use the current documents, because others may have published later changes.
		if err := w.reload(ctx, chunk); err != nil {
			return err
		}
	}
	return nil
}

// reload loads the documents again.
func (w *writer) reload(ctx context.Context, chunk []*touched) error {
	var events []domain.Event
	of := make(map[int64][]*touched) // by the position of the event that changed them
	for _, t := range chunk {
		if of[t.by.Position] == nil {
			events = append(events, t.by)
		}
		of[t.by.Position] = append(of[t.by.Position], t)
	}
	for len(events) > 0 {
		found, err := w.Projections.DocumentsOf(ctx, w.Tenant, w.Projection, events)
		if err != nil {
			return err
		}
		n := 0
		for ; n < len(events) && !found[n].Left; n++ {
			for _, t := range of[events[n].Position] {
				i := slices.IndexFunc(found[n].All, func(d projection.EventDocument) bool { return d.ID == t.id && !d.Waiting })
				if i < 0 {
					return fmt.Errorf("document %q of projection %q cannot be published: the projection's definition or build has just changed", t.id, w.Projection)
				}
				t.document = found[n].All[i].Document
			}
		}
		events = events[n:]
	}
	return nil
}

// change is the data of an event with a document's new state.
type change struct {
	Document string          `json:"document"`
	Version  int64           `json:"version"` // the position that the state reflects
	Data     json.RawMessage `json:"data"`    // null: the document was removed
}

// data returns the event data for the document's current state.
func (t *touched) data() json.RawMessage {
	id, _ := json.Marshal(t.id) // a string always has a JSON form
	data := json.RawMessage("null")
	if t.document != nil {
		data = t.document.Data
	}
	return slices.Concat([]byte(`{"document":`), id, []byte(`,"version":`), strconv.AppendInt(nil, t.version(), 10), []byte(`,"data":`), data, []byte("}"))
}

// refused returns why the change cannot be an event, or an empty string if it can.
func (t *touched) refused() string {
	data := t.data()
	if len(data) > domain.MaxEventBytes-eventMargin {
		return fmt.Sprintf("document %q has %d bytes, which is more than an event may have", consume.Truncate(t.id, 100), len(data))
	}
	if err := domain.CheckJSON(data); err != nil {
		return fmt.Sprintf("document %q cannot be in an event: %s", consume.Truncate(t.id, 100), err)
	}
	return ""
}

// eventMargin is the maximum number of bytes in a change's event besides the data.
const eventMargin = 200

// isIn reports whether the newest event of the document's stream already has the current state.
func (t *touched) isIn(newest domain.Event) bool {
	var last change
	if json.Unmarshal(newest.Data, &last) != nil || last.Document != t.id {
		return false // written by someone else
	}
	if last.Version >= t.version() {
		return true // this state or a later one
	}
	if t.document == nil {
		return isNull(last.Data)
	}
	return folding.SameValue(last.Data, t.document.Data)
}

func isNull(data json.RawMessage) bool { return len(data) == 0 || string(data) == "null" }

// append appends the changes of the documents whose streams do not have their current state.
func (w *writer) append(ctx context.Context, chunk []*touched, emptyStreams map[string]int64) error {
	streams := make([]string, len(chunk))
	for i, t := range chunk {
		streams[i] = t.stream
	}
	latest, err := w.changes.config.Events.Latest(ctx, w.Tenant, streams, 0)
	if err != nil {
		return err
	}
	newest := make(map[string]domain.Event, len(latest))
	for _, event := range latest {
		newest[event.Stream] = event
	}
	var request domain.Append
	bytes := 0
	flush := func() error {
		if len(request.Streams) == 0 {
			return nil
		}
		_, err := w.changes.config.Appends.Append(ctx, w.Tenant, request)
		if err == nil {
			w.changes.config.Published(w.id, len(request.Streams))
		}
		request, bytes = domain.Append{}, 0
		return err
	}
	category := domain.ChangesCategory(w.id.Name)
	for _, t := range chunk {
		last, there := newest[t.stream]
		switch {
		case there && t.isIn(last):
			continue
		case !there && t.document == nil:
			continue // it was created and removed unseen
		case t.refused() != "":
			continue
		}
		expected := domain.Expected(emptyStreams[t.stream])
		if there {
			expected = domain.Expected(last.Version)
		}
		data := t.data()
		if bytes += len(data); bytes > changesBytes {
			if err := flush(); err != nil {
				return err
			}
			bytes = len(data)
		}
		request.Streams = append(request.Streams, domain.StreamAppend{Stream: t.stream, Expected: expected, Events: []domain.NewEvent{{
			ID: domain.NewEventID(), Type: category, Data: data, Tags: []string{domain.CauseTag(t.by.ID)}, Metadata: json.RawMessage(`{"caused_by":"` + t.by.ID.String() + `"` + tracing.Metadata(t.by.Metadata) + `}`),
		}}})
	}
	return flush()
}
