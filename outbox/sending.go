package outbox

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// sending publishes the rows of one claim.
type sending struct {
	publish func(ctx context.Context, rows []Row) error
	outcome Outcome
	blocked map[string]bool // streams with a refused row: their later rows wait
}

// publishAll publishes rows in their order, in requests that the service accepts. It ends with the first error that is
// not about the rows.
func (s *sending) publishAll(ctx context.Context, rows []Row) error {
	for len(rows) > 0 {
		count, size := 0, 0
		for count < min(len(rows), requestRows) {
			if size += len(rows[count].Message); size > requestBytes && count > 0 {
				break
			}
			count++
		}
		if err := s.publishTogether(ctx, rows[:count]); err != nil {
			return err
		}
		rows = rows[count:]
	}
	return nil
}

// publishTogether publishes rows in one request. If the request is refused, it splits it into halves until the faulty
// rows are alone. A request that combines new rows with already published ones is refused too, and succeeds in halves.
func (s *sending) publishTogether(ctx context.Context, rows []Row) error {
	rows = s.unblocked(rows)
	if len(rows) == 0 {
		return nil
	}
	err := s.publish(ctx, rows)
	refused, ok := errors.AsType[*RefusedError](err)
	switch {
	case err == nil:
		s.outcome.Published = append(s.outcome.Published, rows...)
		return nil
	case !ok:
		return err
	case len(rows) > 1:
		half := len(rows) / 2
		if err := s.publishTogether(ctx, rows[:half]); err != nil {
			return err
		}
		return s.publishTogether(ctx, rows[half:])
	}
	s.blocked[rows[0].Stream] = true
	s.outcome.Refused = append(s.outcome.Refused, Refusal{Row: rows[0], Reason: clip(refused.Reason), Pause: refusedPause(rows[0].Attempts)})
	return nil
}

func (s *sending) unblocked(rows []Row) []Row {
	return slices.DeleteFunc(slices.Clone(rows), func(row Row) bool { return s.blocked[row.Stream] })
}

// refusedPause returns how long a row rests after this many earlier refusals.
func refusedPause(attempts int) time.Duration {
	return min(firstRefusedPause<<min(attempts, 20), maxRefusedPause)
}

func clip(reason string) string {
	return strings.ToValidUTF8(reason[:min(len(reason), MaxReasonBytes)], "")
}
