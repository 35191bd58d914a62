package aggregate

import (
	"context"
	"errors"
	"strings"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
)

// PreviewQuery asks to try out a definition, which need not be stored.
type PreviewQuery struct {
	Definition Definition
	Stream     string         // of the definition's category
	Events     []domain.Event // in order, at most MaxTrialEvents; nil: the stream's first ones, and the boundary's, in the log
	Version    int64          // without Events: the last version to read; 0: any
	Command    *TrialCommand  // decided on the state after the events; nil: none
}

// Preview folds events with a definition and with the tenant's upcasters, decides a command, and stores nothing. Events
// that retention has removed are missing. The errors are those of NewTrial and Trial.Run, with their places in the
// query. They are domain.CodeNotFound without stream and command, or for a version that the stream has not reached, and
// domain.CodeTooLarge if the version, or the newest one for a command, is after the first MaxTrialEvents events.
// Config.Requests limits the cost.
func (s *States) Preview(ctx context.Context, tenant domain.TenantID, q PreviewQuery) (result TrialResult, err error) {
	if err := domain.CheckStream("stream", q.Stream); err != nil {
		return TrialResult{}, err
	}
	if category := domain.Category(q.Stream); category != q.Definition.Category {
		return TrialResult{}, domain.Errorf(domain.CodeInvalidRequest, "stream", "%s is a stream of the category %s, but the definition is of %q", q.Stream, category, domain.Clip(q.Definition.Category, 60))
	}
	ctx, end, err := s.requests.Begin(ctx, tenant, trialAdvice)
	if err != nil {
		return TrialResult{}, err
	}
	defer end()
	defer func() { err = budget.Cause(ctx, err) }()
	upcasters, err := s.upcasters.Now(ctx, tenant)
	if err != nil {
		return TrialResult{}, err
	}
	trial, err := NewTrial(ctx, q.Definition, upcasters)
	if err != nil {
		return TrialResult{}, domain.Within("definition", err)
	}
	if q.Events != nil {
		result, err = trial.Run(ctx, domain.Key(q.Stream), q.Events, q.Command)
	} else {
		result, err = s.previewLog(ctx, tenant, trial, q)
	}
	if problem, ok := errors.AsType[*domain.Error](err); ok {
		err = problem.Placed(placeInPreview)
	}
	if result.Failure != nil {
		result.Failure = result.Failure.Placed(placeInPreview)
	}
	return result, err
}

// previewLog tries a definition on a stream and the boundary of the command as they are in the log.
func (s *States) previewLog(ctx context.Context, tenant domain.TenantID, trial *Trial, q PreviewQuery) (TrialResult, error) {
	events, err := s.previewEvents(ctx, tenant, q)
	if err != nil {
		return TrialResult{}, err
	}
	head, err := s.events.Head(ctx, tenant)
	if err != nil {
		return TrialResult{}, err
	}
	return trial.run(ctx, domain.Key(q.Stream), events, q.Command, func(ctx context.Context, b *bound) error {
		return s.readBoundary(ctx, tenant, b, head.Position)
	})
}

// previewEvents reads the first events of a stream.
func (s *States) previewEvents(ctx context.Context, tenant domain.TenantID, q PreviewQuery) ([]domain.Event, error) {
	slice, err := s.events.StreamSlice(ctx, tenant, q.Stream, domain.StreamQuery{From: 1, To: q.Version, Limit: MaxTrialEvents, MaxBytes: maxTrialBytes})
	if err != nil {
		return nil, err
	}
	newest, err := s.events.StreamSlice(ctx, tenant, q.Stream, domain.StreamQuery{Limit: 1, Direction: domain.Backward})
	if err != nil {
		return nil, err
	}
	switch wanted, read := q.Version, slice.Version(); {
	case newest.Version() == 0 && q.Command == nil:
		return nil, domain.Errorf(domain.CodeNotFound, "stream", "there is no stream %s", q.Stream)
	case wanted > newest.Version():
		return nil, domain.Errorf(domain.CodeNotFound, "version", "stream %s is at version %d; it has no version %d", q.Stream, newest.Version(), wanted)
	case wanted > read, wanted == 0 && q.Command != nil && newest.Version() > read:
		return nil, domain.Errorf(domain.CodeTooLarge, "version", "stream %s is at version %d, and a preview reads up to %d events and %d bytes; give a version up to %d",
			q.Stream, newest.Version(), MaxTrialEvents, maxTrialBytes, read)
	}
	return domain.WithData(slice.Events), nil
}

// placeInPreview returns the place in a PreviewQuery of what Trial.Run or the decision of a command names.
func placeInPreview(where string) string {
	switch name, _, _ := strings.Cut(where, "."); name {
	case "given":
		return "events"
	case "command":
		return "command.name"
	case "data", "metadata":
		return "command." + where
	case "commands", "on":
		return "definition." + where
	}
	return where
}
