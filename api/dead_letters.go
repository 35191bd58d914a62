package api

import (
	"context"
	"net/url"
	"strconv"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/subscription"
)

// deadLettersAtOnce is how many dead letters are read at once, with their events: a page of large events ends early.
const deadLettersAtOnce = 100

func (s generated) ListDeadLetters(ctx context.Context, request openapi.ListDeadLettersRequestObject) (openapi.ListDeadLettersResponseObject, error) {
	group, err := s.group(ctx, request.Name)
	if err != nil {
		return nil, err
	}
	after, err := positionToken(request.Params.PageToken)
	if err != nil {
		return nil, err
	}
	size := pageSizeOf(request.Params.PageSize)
	letters, more, err := s.deadLetters(ctx, callerOf(ctx), group.Name, after, size)
	if err != nil {
		return nil, err
	}
	answer := lettersAnswer{Body: openapi.DeadLetterList{DeadLetters: make([]openapi.DeadLetter, len(letters))}}
	if more {
		answer.Headers.Link = pageLink("/v1/subscriptions/"+group.Name+"/dead-letters", url.Values{"pageSize": {strconv.Itoa(size)}},
			tokenOf(strconv.FormatInt(letters[len(letters)-1].Position, 10)))
	}
	for i, letter := range letters {
		answer.Body.DeadLetters[i] = deadLetterAnswer(letter, group.GroupDefinition.Partitions > 0)
	}
	return answer, nil
}

// deadLetters reads a page, and says whether there is more behind it. A group that has become one of other events keeps its dead
// letters: those that the caller may not see are left out.
func (s generated) deadLetters(ctx context.Context, caller caller, name string, after int64, size int) (page []subscription.DeadLetter, more bool, err error) {
	bytes := 0
	for len(page) <= size && bytes <= maxPageBytes {
		wanted := min(deadLettersAtOnce, size+1-len(page))
		letters, err := s.config.Groups.DeadLetters(ctx, caller.tenant, name, after, wanted)
		if err != nil {
			return nil, false, err
		}
		for _, letter := range letters {
			after = letter.Position
			if caller.allow(domain.Category(letter.Event.Stream), groupReaders...) == nil {
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

// positionToken reads a page token that stands for "behind this position".
func positionToken(given *string) (int64, error) {
	text, err := pageToken(given)
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

// dealing is what is done about dead letters: of one, or with the zero id of all. It returns of how many.
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

func deadLetterAnswer(letter subscription.DeadLetter, partitions bool) openapi.DeadLetter {
	answer := openapi.DeadLetter{
		Event: eventAnswer(letter.Event), Attempts: letter.Attempt - letter.Base, Replays: letter.Replays, Reason: letter.Reason,
		FirstParkedAt: letter.FirstParkedAt.UTC(), ParkedAt: letter.ParkedAt.UTC(), ReplayAt: moment(letter.ReplayAt),
	}
	if partitions {
		answer.Partition = &letter.Partition
	}
	return answer
}

func eventAnswer(e domain.Event) openapi.Event {
	return openapi.Event{
		Id: e.ID.String(), Stream: e.Stream, Version: e.Version, Position: e.Position, Type: e.Type,
		Data: e.Data, Metadata: e.Metadata, OccurredAt: moment(e.OccurredAt), RecordedAt: e.RecordedAt.UTC(),
	}
}
