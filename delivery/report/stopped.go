package report

import (
	"context"
	"fmt"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/projection"
)

// findStopped looks for projections that have stopped before an event, and for open alerts of those that continue.
func (r *Reporter) findStopped(ctx context.Context, tenant domain.TenantID, f *findings, open map[string]alert) error {
	f.includeKind(KindStopped)
	faults, err := r.config.Registry.TenantFaults(ctx, tenant, maxFaults)
	if err != nil {
		return err
	}
	for i := range faults {
		fault := &faults[i]
		a, isOpen := open[fault.Name]
		switch {
		case isOpen && a.episode == episodeOf(fault):
			// A build that was replaced keeps its fault.
			live, err := r.isLive(ctx, tenant, fault.ProjectionID, fault.Build)
			if err != nil {
				return err
			}
			if live {
				f.add(KindStopped, fault.Name, holds)
			}
		case isOpen || domain.IsReport(fault.Stream):
		default:
			if err := r.findStop(ctx, tenant, f, fault); err != nil {
				return err
			}
		}
	}
	for name, a := range open {
		if _, known := f.found[KindStopped][name]; known {
			continue
		}
		status, exists, err := r.status(ctx, tenant, name)
		switch {
		case err != nil:
			return err
		case !exists:
		case !status.Known || !passed(status, a): // unknown, or a person's retry is under way
			f.add(KindStopped, name, between)
		default:
			f.add(KindStopped, name, ended)
		}
	}
	return nil
}

// findStop adds the alert of a fault, if the live build has stopped there.
func (r *Reporter) findStop(ctx context.Context, tenant domain.TenantID, f *findings, fault *domain.Fault) error {
	// A build that was replaced keeps its fault. To find out takes less than the status.
	if live, err := r.isLive(ctx, tenant, fault.ProjectionID, fault.Build); err != nil || !live {
		return err
	}
	status, exists, err := r.status(ctx, tenant, fault.Name)
	if err != nil || !exists || status.Projection.ProjectionID != fault.ProjectionID {
		return err
	}
	if status.State != projection.StateFaulted || episodeOf(status.Fault) != episodeOf(fault) {
		return nil
	}
	return f.begin(KindStopped, fault.Name, episodeOf(fault), stopped{
		Projection: fault.Name, subject: subject{fault.Position, fault.EventID.String(), fault.Stream, fault.EventType},
		Where: fault.Where, Message: quote(fault.Message), StoppedAt: fault.At,
	})
}

// episodeFormat has a fault's build and position.
const episodeFormat = "%d/%d"

func episodeOf(f *domain.Fault) string { return fmt.Sprintf(episodeFormat, f.Build, f.Position) }

// passed reports whether a projection has passed the event of an alert, or has other documents than then.
func passed(status projection.Status, a alert) bool {
	var build, position int64
	_, err := fmt.Sscanf(a.episode, episodeFormat, &build, &position)
	return err != nil || status.Projection.Build != build || status.Checkpoint >= position
}

// status returns a projection's status; exists is false if it was removed.
func (r *Reporter) status(ctx context.Context, tenant domain.TenantID, name string) (status projection.Status, exists bool, err error) {
	status, err = r.config.Projections.Status(ctx, tenant, name)
	if domain.IsCode(err, domain.CodeNotFound) {
		return status, false, nil
	}
	return status, err == nil, err
}
