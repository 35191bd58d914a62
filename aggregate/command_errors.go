package aggregate

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

func (s *sending) conflict(version int64) error {
	problem := domain.Errorf(domain.CodeVersionConflict, "Expected-Version", "stream %s is at version %d, expected was %s", s.command.Stream, version, s.command.Expected)
	problem.CurrentVersion, problem.Stream = &version, s.command.Stream
	return problem
}

func (f *fold) noCommand(command *Command) error {
	category := domain.Category(command.Stream)
	if len(f.commands) == 0 {
		return domain.Errorf(domain.CodeNotFound, "command", "the definition of category %q has no commands; add them at /v1/aggregates/%s", category, category)
	}
	names := slices.Sorted(maps.Keys(f.commands))
	return domain.Errorf(domain.CodeNotFound, "command", "category %q has no command %q; it has %s", category, command.Name, domain.Clip(strings.Join(names, ", "), 300))
}

// ofEvents returns an append's error whose places are in the events that the command made, which no client has sent.
func ofEvents(err error) error {
	problem, ok := errors.AsType[*domain.Error](err)
	if !ok {
		return err
	}
	if problem.Code == domain.CodeConditionFailed {
		// The events may be of categories that the sender may not read.
		return domain.Errorf(problem.Code, "", "others appended what the command's boundary depends on, each time it was decided; try again")
	}
	return problem.Placed(func(where string) string {
		if where == "" {
			return ""
		}
		return "the command's " + where
	})
}

// rejection returns a rejection as the error for the client.
func rejection(r *Rejection) error {
	problem := domain.Errorf(domain.CodeRejected, "", "%s", r.Error())
	problem.Reason = r.Code
	return problem
}
