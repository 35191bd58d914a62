package aggregate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// TakeSnapshot folds a stream up to its newest event, stores the state as a snapshot, and returns it. If it folds many
// events, it also stores snapshots of older versions. With acceptLoss events may be missing: the snapshots then say so,
// and are only used for loads that accept the loss. Errors are those of Load, and domain.CodeUnavailable if the
// definition changes again and again meanwhile.
func (s *States) TakeSnapshot(ctx context.Context, tenant domain.TenantID, stream string, acceptLoss bool) (taken Snapshot, err error) {
	for range 3 {
		if taken, err = s.takeSnapshot(ctx, tenant, stream, acceptLoss); !errors.Is(err, errDefinitionChanged) {
			break
		}
	}
	return taken, err
}

func (s *States) takeSnapshot(ctx context.Context, tenant domain.TenantID, stream string, acceptLoss bool) (Snapshot, error) {
	state, err := s.Load(ctx, tenant, stream, At{AcceptLoss: acceptLoss, rungs: true})
	if err != nil {
		return Snapshot{}, err
	}
	if state.Snapshot < state.Version {
		if err := s.storeState(ctx, tenant, state); err != nil {
			return Snapshot{}, err
		}
	}
	return s.readBack(ctx, tenant, state.snapshot())
}

// readBack reads a snapshot back, for the time that the database gave it. If newer snapshots have pushed it out
// meanwhile, readBack returns it as it was given.
func (s *States) readBack(ctx context.Context, tenant domain.TenantID, snapshot Snapshot) (Snapshot, error) {
	got, ok, err := s.store.Snapshot(ctx, tenant, snapshot.Stream, snapshot.Tag, snapshot.Version, true)
	if err != nil {
		return Snapshot{}, err
	}
	if !ok || got.Version != snapshot.Version {
		snapshot.TakenAt = time.Now().UTC()
		return snapshot, nil
	}
	return got, nil
}

// PutSnapshot stores a snapshot of a client that folds in its own language, and returns it as stored. It contains any
// JSON, at a version that the stream has reached, with a tag chosen by the client (checkTag). The error is
// domain.CodeVersionConflict if the stream has not reached the version, and domain.CodeNotFound if the stream has no
// events.
func (s *States) PutSnapshot(ctx context.Context, tenant domain.TenantID, snapshot Snapshot) (Snapshot, error) {
	if err := domain.CheckStream("stream", snapshot.Stream); err != nil {
		return Snapshot{}, err
	}
	if err := checkTag("tag", snapshot.Tag); err != nil {
		return Snapshot{}, err
	}
	if snapshot.Version < 1 {
		return Snapshot{}, domain.Errorf(domain.CodeInvalidRequest, "version", "%d is not a version of an event; the first is 1", snapshot.Version)
	}
	if len(snapshot.State) > domain.MaxDocumentBytes {
		return Snapshot{}, domain.Errorf(domain.CodeTooLarge, "state", "the state has %d bytes; at most %d are allowed", len(snapshot.State), domain.MaxDocumentBytes)
	}
	if err := domain.CheckJSON(snapshot.State); err != nil {
		return Snapshot{}, domain.Errorf(domain.CodeInvalidJSON, "state", "%s", err)
	}
	newest, err := s.events.StreamSlice(ctx, tenant, snapshot.Stream, domain.StreamQuery{Direction: domain.Backward, Limit: 1})
	if err != nil {
		return Snapshot{}, err
	}
	version := newest.Version()
	if version == 0 {
		return Snapshot{}, domain.Errorf(domain.CodeNotFound, "stream", "there is no stream %s", snapshot.Stream)
	}
	if snapshot.Version > version {
		problem := domain.Errorf(domain.CodeVersionConflict, "version", "stream %s is at version %d; a snapshot at version %d is invalid", snapshot.Stream, version, snapshot.Version)
		problem.CurrentVersion, problem.Stream = &version, snapshot.Stream
		return Snapshot{}, problem
	}
	if err := s.store.PutSnapshots(ctx, tenant, snapshot); err != nil {
		return Snapshot{}, err
	}
	return s.readBack(ctx, tenant, snapshot)
}

// LatestSnapshot returns the newest snapshot of a stream, up to a version (0: any), and with a tag (empty: any, whether
// folded or a client's). The error is domain.CodeNotFound if there is none.
func (s *States) LatestSnapshot(ctx context.Context, tenant domain.TenantID, stream string, atMost int64, tag string) (Snapshot, error) {
	if err := domain.CheckStream("stream", stream); err != nil {
		return Snapshot{}, err
	}
	snapshot, ok, err := s.store.LatestSnapshot(ctx, tenant, stream, atMost, tag)
	if err != nil {
		return Snapshot{}, err
	}
	if !ok {
		what := "snapshot"
		if tag != "" {
			what += " with the tag " + tag
		}
		if atMost > 0 {
			what += fmt.Sprintf(" up to version %d", atMost)
		}
		return Snapshot{}, domain.Errorf(domain.CodeNotFound, "stream", "stream %s has no %s", stream, what)
	}
	return snapshot, nil
}

// Snapshots returns the snapshots of a stream without their states, the newest first, after a key.
func (s *States) Snapshots(ctx context.Context, tenant domain.TenantID, stream string, after SnapshotKey, limit int) ([]Snapshot, error) {
	if err := domain.CheckStream("stream", stream); err != nil {
		return nil, err
	}
	return s.store.Snapshots(ctx, tenant, stream, after, limit)
}

// isClientError reports whether an error was caused by what clients sent, such as an event that their definition cannot
// fold. The operator then need not look at it.
func isClientError(err error) bool {
	problem, ok := errors.AsType[*domain.Error](err)
	return ok && problem.Code != domain.CodeUnavailable
}
