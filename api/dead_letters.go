package api

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// deadLettersAtOnce is how many dead letters are read at once, with their events. A page of large events ends early.
const deadLettersAtOnce = 100

// listDeadLetters is GET /v1/subscriptions/{name}/dead-letters. It does not use the generated code because the client
// chooses the form of the answer.
func (s *Server) listDeadLetters(c echo.Context, caller caller) error {
	name, err := pathParam(c, "name")
	if err != nil {
		return err
	}
	request := c.Request()
	ctx, query := request.Context(), c.QueryParams()
	group, err := s.config.Groups.Get(ctx, caller.tenant, name)
	if err == nil {
		err = caller.allowSelection(group.Selection, groupPeekers...)
	}
	if err != nil {
		return err
	}
	after, err := positionToken(query)
	if err != nil {
		return err
	}
	size, err := integer(query, "pageSize")
	if err != nil {
		return err
	}
	if size == 0 {
		size = defaultPage
	}
	letters, more, err := s.deadLetters(ctx, caller, group.Name, after, int(size))
	if err != nil {
		return err
	}
	header := c.Response().Header()
	header.Set("Cache-Control", "no-store")
	if more {
		header.Set("Link", *pageLink("/v1/subscriptions/"+group.Name+"/dead-letters", url.Values{"pageSize": {strconv.FormatInt(size, 10)}},
			tokenOf(strconv.FormatInt(letters[len(letters)-1].Position, 10))))
	}
	partitions := group.GroupDefinition.Partitions > 0
	if accepts(request, cloudevents.BatchType) {
		return c.Blob(http.StatusOK, cloudevents.BatchType, appendCloudLetters(nil, letters, partitions))
	}
	body := openapi.DeadLetterList{DeadLetters: make([]openapi.DeadLetter, len(letters))}
	for i, letter := range letters {
		body.DeadLetters[i] = deadLetterAnswer(letter, partitions)
	}
	return writeVerbatim(c.Response(), body, "", nil)
}

// appendCloudLetters appends dead letters as a batch of CloudEvents, with their details as extensions.
func appendCloudLetters(b []byte, letters []group.DeadLetter, partitions bool) []byte {
	var encoder eventEncoder
	b = append(b, '[')
	for i := range letters {
		if i > 0 {
			b = append(b, ',')
		}
		letter := &letters[i]
		b = encoder.cloudEvent(b, &letter.Event)
		b = b[:len(b)-1] // reopens the object
		number := func(name string, value int) {
			b = strconv.AppendInt(append(append(append(b, `,"`...), name...), `":`...), int64(value), 10)
		}
		moment := func(name string, at time.Time) {
			b = append(append(append(b, `,"`...), name...), `":"`...)
			b = append(domain.AppendTime(b, at), '"')
		}
		number(cloudevents.ExtensionAttempts, letter.Attempt-letter.Base)
		if letter.Replays > 0 {
			number(cloudevents.ExtensionReplays, letter.Replays)
		}
		if letter.Reason != "" {
			b = appendJSONText(append(b, `,"`+cloudevents.ExtensionReason+`":`...), onOneLine(letter.Reason))
		}
		moment(cloudevents.ExtensionFirstParked, letter.FirstParkedAt)
		moment(cloudevents.ExtensionParkedAt, letter.ParkedAt)
		if !letter.ReplayAt.IsZero() {
			moment(cloudevents.ExtensionReplayAt, letter.ReplayAt)
		}
		if partitions {
			number(cloudevents.ExtensionPartition, letter.Partition)
		}
		b = append(b, '}')
	}
	return append(b, "]\n"...)
}

// onOneLine replaces control characters by blanks, since an attribute of a CloudEvent must not contain any.
func onOneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// deadLetters reads a page, and reports whether more follow. A group keeps its dead letters when its selection of
// events changes, so the page leaves out those that the caller may not see.
func (s *Server) deadLetters(ctx context.Context, caller caller, name string, after int64, size int) (page []group.DeadLetter, more bool, err error) {
	bytes := 0
	for len(page) <= size && bytes <= maxPageBytes {
		wanted := min(deadLettersAtOnce, size+1-len(page))
		letters, err := s.config.Groups.DeadLetters(ctx, caller.tenant, name, after, wanted)
		if err != nil {
			return nil, false, err
		}
		for _, letter := range letters {
			after = letter.Position
			if caller.allow(domain.Category(letter.Event.Stream), groupPeekers...) == nil {
				bytes += len(letter.Event.Data) + len(letter.Event.Metadata)
				page = append(page, letter)
			}
		}
		if len(letters) < wanted {
			return page, false, nil
		}
	}
	return page[:min(size, len(page))], true, nil
}

// positionToken reads a page token that names the position after which the page starts.
func positionToken(query url.Values) (int64, error) {
	if !query.Has("pageToken") {
		return 0, nil
	}
	given := query.Get("pageToken")
	text, err := pageToken(&given)
	if err != nil || text == "" {
		return 0, err
	}
	position, err := strconv.ParseInt(text, 10, 64)
	if err != nil || position < 1 {
		return 0, domain.Errorf(domain.CodeInvalidRequest, "query pageToken", "it is not from a Link header of this list; leave it out to begin with the first page")
	}
	return position, nil
}

func (s generated) ReplayDeadLetters(ctx context.Context, request openapi.ReplayDeadLettersRequestObject) (openapi.ReplayDeadLettersResponseObject, error) {
	replayed, err := s.deal(ctx, request.Name, domain.EventID{}, s.config.Groups.Replay)
	if err != nil {
		return nil, err
	}
	return openapi.ReplayDeadLetters202JSONResponse{Replayed: replayed}, nil
}

func (s generated) ReplayDeadLetter(ctx context.Context, request openapi.ReplayDeadLetterRequestObject) (openapi.ReplayDeadLetterResponseObject, error) {
	replayed, err := s.dealWithOne(ctx, request.Name, request.EventId, s.config.Groups.Replay)
	if err != nil {
		return nil, err
	}
	return openapi.ReplayDeadLetter202JSONResponse{Replayed: replayed}, nil
}

func (s generated) DiscardDeadLetters(ctx context.Context, request openapi.DiscardDeadLettersRequestObject) (openapi.DiscardDeadLettersResponseObject, error) {
	discarded, err := s.deal(ctx, request.Name, domain.EventID{}, s.config.Groups.Discard)
	if err != nil {
		return nil, err
	}
	return openapi.DiscardDeadLetters200JSONResponse{Discarded: discarded}, nil
}

func (s generated) DiscardDeadLetter(ctx context.Context, request openapi.DiscardDeadLetterRequestObject) (openapi.DiscardDeadLetterResponseObject, error) {
	if _, err := s.dealWithOne(ctx, request.Name, request.EventId, s.config.Groups.Discard); err != nil {
		return nil, err
	}
	return openapi.DiscardDeadLetter204Response{}, nil
}

// dealing acts on one dead letter or, with the zero id, on all. It returns how many it acted on.
type dealing func(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error)

func (s generated) deal(ctx context.Context, name string, id domain.EventID, how dealing) (int64, error) {
	caller := callerOf(ctx)
	if err := s.allowGroup(ctx, caller, name, domain.ScopeSubscriptionsWrite); err != nil {
		return 0, err
	}
	return how(ctx, caller.tenant, name, id)
}

func (s generated) dealWithOne(ctx context.Context, name, text string, how dealing) (int64, error) {
	id, err := domain.ParseEventID(text)
	if err == nil && id.IsZero() {
		err = domain.Errorf(domain.CodeInvalidRequest, "", "no event has the id %s", text)
	}
	if err != nil {
		return 0, domain.Errorf(domain.CodeInvalidRequest, "path eventId", "%s", err)
	}
	return s.deal(ctx, name, id, how)
}

func deadLetterAnswer(letter group.DeadLetter, partitions bool) openapi.DeadLetter {
	answer := openapi.DeadLetter{
		Event: eventAnswer(letter.Event), Attempts: letter.Attempt - letter.Base, Replays: letter.Replays, Reason: letter.Reason,
		FirstParkedAt: openapi.At(letter.FirstParkedAt), ParkedAt: openapi.At(letter.ParkedAt), ReplayAt: moment(letter.ReplayAt),
	}
	if partitions {
		answer.Partition = &letter.Partition
	}
	return answer
}

func eventAnswer(e domain.Event) openapi.Event {
	answer := openapi.Event{
		Id: e.ID.String(), Stream: e.Stream, Version: e.Version, Position: e.Position, Type: e.Type,
		Data: e.Data, Metadata: e.Metadata, OccurredAt: moment(e.OccurredAt), RecordedAt: openapi.At(e.RecordedAt),
	}
	if e.Gap != nil {
		answer.Gap = &openapi.EventGap{Reason: string(e.Gap.Reason), Message: e.Gap.Message, At: openapi.At(e.Gap.At)}
	}
	return answer
}
