package outbox

import (
	"context"
	"errors"
	"time"
)

// sending is the publishing of one claim.
type sending struct {
	publish func(ctx context.Context, rows []Row) error
	outcome Outcome
	blocked map[string]bool // streams with a row that was refused: those behind it wait
}

// all publishes rows in requests that the service takes, in their order. It ends with the first error that is not about the rows.
func (s *sending) all(ctx context.Context, rows []Row) error {
	for len(rows) > 0 {
		count, size := 0, 0
		for count < min(len(rows), requestRows) {
			if size += len(rows[count].Message); size > requestBytes && count > 0 {
				break
			}
			count++
		}
		if err := s.some(ctx, rows[:count]); err != nil {
			return err
		}
		rows = rows[count:]
	}
	return nil
}

// some publishes rows in one request. Where that is refused it halves them, until those are alone that are wrong; a request with
// rows that are there already beside new ones is refused, too, and comes through in halves.
func (s *sending) some(ctx context.Context, rows []Row) error {
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
		if err := s.some(ctx, rows[:half]); err != nil {
			return err
		}
		return s.some(ctx, rows[half:])
	}
	s.blocked[rows[0].Stream] = true
	s.outcome.Refused = append(s.outcome.Refused, Refusal{Row: rows[0], Reason: clip(refused.Reason), Pause: refusedPause(rows[0].Attempts)})
	return nil
}

func (s *sending) unblocked(rows []Row) []Row {
	if len(s.blocked) == 0 {
		return rows
	}
	var free []Row
	for _, row := range rows {
		if !s.blocked[row.Stream] {
			free = append(free, row)
		}
	}
	return free
}

// refusedPause is how long a row rests that was refused so often before.
func refusedPause(attempts int) time.Duration {
	return min(firstRefusedPause<<min(attempts, 20), lastRefusedPause)
}

func clip(reason string) string {
	if len(reason) <= MaxReasonBytes {
		return reason
	}
	return reason[:MaxReasonBytes]
}
