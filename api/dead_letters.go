package api

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// deadLettersAtOnce is how many dead letters are read at once, with their events. A page of large events ends early.
const deadLettersAtOnce = 100

// listDeadLetters is GET /v1/subscriptions/{name}/dead-letters. It does not use the generated code because the client
// chooses the form of the answer.
func (s *Server) listDeadLetters(c echo.Context, caller access.Caller) error {
	name := c.Param("name")
	request := c.Request()
	ctx, query := request.Context(), c.QueryParams()
	of, err := s.config.Groups.Get(ctx, caller.Tenant, name)
	if err == nil {
		err = caller.AllowSelection(of.Selection, groupPeekers...)
	}
	if err != nil {
		return err
	}
	page, err := deadLettersPage(query)
	if err != nil {
		return err
	}
	letters, more, err := s.deadLetters(ctx, caller, of.Name, page.after, page.size)
	if err != nil {
		return err
	}
	header := c.Response().Header()
	header.Set("Cache-Control", "no-store")
	if more {
		last := strconv.FormatInt(letters[len(letters)-1].Position, 10)
		header.Set("Link", pageLink("/v1/subscriptions/"+of.Name+"/dead-letters", nil, page.size, pageToken(last)))
	}
	partitions := of.GroupDefinition.Partitions > 0
	if wire.Accepts(request, cloudevents.BatchType) {
		return c.Blob(http.StatusOK, cloudevents.BatchType, appendCloudLetters(nil, letters, partitions))
	}
	return openapi.OK(openapi.DeadLetterList{DeadLetters: convert(letters, func(letter group.DeadLetter) openapi.DeadLetter {
		return deadLetterAnswer(letter, partitions)
	})}).Send(c)
}

// appendCloudLetters appends dead letters as a batch of CloudEvents, with their details as extensions.
func appendCloudLetters(b []byte, letters []group.DeadLetter, partitions bool) []byte {
	var encoder wire.EventEncoder
	b = append(b, '[')
	for i := range letters {
		if i > 0 {
			b = append(b, ',')
		}
		letter := &letters[i]
		b = encoder.CloudEvent(b, &letter.Event)
		b = b[:len(b)-1] // reopens the object
		b = wire.AppendNumber(b, cloudevents.ExtensionAttempts, int64(letter.Attempt-letter.Base))
		if letter.Replays > 0 {
			b = wire.AppendNumber(b, cloudevents.ExtensionReplays, int64(letter.Replays))
		}
		if letter.Reason != "" {
			b = wire.AppendJSONText(append(b, `,"`+cloudevents.ExtensionReason+`":`...), onOneLine(letter.Reason))
		}
		b = wire.AppendTime(b, cloudevents.ExtensionFirstParked, letter.FirstParkedAt)
		b = wire.AppendTime(b, cloudevents.ExtensionParkedAt, letter.ParkedAt)
		if !letter.ReplayAt.IsZero() {
			b = wire.AppendTime(b, cloudevents.ExtensionReplayAt, letter.ReplayAt)
		}
		if partitions {
			b = wire.AppendNumber(b, cloudevents.ExtensionPartition, int64(letter.Partition))
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
func (s *Server) deadLetters(ctx context.Context, caller access.Caller, name string, after int64, size int) (page []group.DeadLetter, more bool, err error) {
	bytes := 0
	for len(page) <= size && bytes <= maxPageBytes {
		wanted := min(deadLettersAtOnce, size+1-len(page))
		letters, err := s.config.Groups.DeadLetters(ctx, caller.Tenant, name, after, wanted)
		if err != nil {
			return nil, false, err
		}
		for _, letter := range letters {
			after = letter.Position
			if caller.Allow(domain.Category(letter.Event.Stream), groupPeekers...) == nil {
				bytes += letter.Event.Bytes()
				page = append(page, letter)
			}
		}
		if len(letters) < wanted {
			return page, false, nil
		}
	}
	return page[:min(size, len(page))], true, nil
}

// deadLettersPage reads the page's parameters. Its token names a position.
func deadLettersPage(query url.Values) (listPage[int64], error) {
	size, err := integer(query, "pageSize")
	if err != nil {
		return listPage[int64]{}, err
	}
	var token *string
	if query.Has("pageToken") {
		token = new(query.Get("pageToken"))
	}
	return listPageOf(new(cmp.Or(int(size), defaultPage)), token, func(text string) (int64, error) {
		position, err := strconv.ParseInt(text, 10, 64)
		if err == nil && position < 1 {
			err = strconv.ErrRange
		}
		return position, err
	})
}

func (s operations) ReplayDeadLetters(ctx context.Context, caller access.Caller, request openapi.ReplayDeadLettersRequest) (*openapi.Response, error) {
	replayed, err := s.onDeadLetters(ctx, caller, request.Name, domain.EventID{}, s.config.Groups.Replay)
	return openapi.Accepted(openapi.ReplayedDeadLetters{Replayed: replayed}), err
}

func (s operations) ReplayDeadLetter(ctx context.Context, caller access.Caller, request openapi.ReplayDeadLetterRequest) (*openapi.Response, error) {
	replayed, err := s.onDeadLetter(ctx, caller, request.Name, request.EventId, s.config.Groups.Replay)
	return openapi.Accepted(openapi.ReplayedDeadLetters{Replayed: replayed}), err
}

func (s operations) DiscardDeadLetters(ctx context.Context, caller access.Caller, request openapi.DiscardDeadLettersRequest) (*openapi.Response, error) {
	discarded, err := s.onDeadLetters(ctx, caller, request.Name, domain.EventID{}, s.config.Groups.Discard)
	return openapi.OK(openapi.Discarded{Discarded: discarded}), err
}

func (s operations) DiscardDeadLetter(ctx context.Context, caller access.Caller, request openapi.DiscardDeadLetterRequest) (*openapi.Response, error) {
	_, err := s.onDeadLetter(ctx, caller, request.Name, request.EventId, s.config.Groups.Discard)
	return openapi.NoContent(), err
}

// deadLetterAction acts on one dead letter or, with the zero id, on all. It returns how many it acted on.
type deadLetterAction func(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error)

func (s operations) onDeadLetters(ctx context.Context, caller access.Caller, name string, id domain.EventID, act deadLetterAction) (int64, error) {
	if err := caller.AllowGroup(ctx, s.config.Groups, name, auth.ScopeSubscriptionsWrite); err != nil {
		return 0, err
	}
	return act(ctx, caller.Tenant, name, id)
}

func (s operations) onDeadLetter(ctx context.Context, caller access.Caller, name, text string, act deadLetterAction) (int64, error) {
	id, err := domain.ParseEventID(text)
	if err == nil && id.IsZero() {
		err = domain.Errorf(domain.CodeInvalidRequest, "", "no event has the id %s", text)
	}
	if err != nil {
		return 0, domain.Errorf(domain.CodeInvalidRequest, "path eventId", "%s", err)
	}
	return s.onDeadLetters(ctx, caller, name, id, act)
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
