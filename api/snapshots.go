package api

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
)

func (s generated) TakeSnapshot(ctx context.Context, request openapi.TakeSnapshotRequestObject) (openapi.TakeSnapshotResponseObject, error) {
	caller := callerOf(ctx)
	if err := domain.CheckStream("path streamId", request.StreamId); err != nil {
		return nil, err
	}
	if err := caller.allow(domain.Category(request.StreamId), domain.ScopeEventsAppend); err != nil {
		return nil, inPlace("path streamId", err)
	}
	var snapshot domain.Snapshot
	var err error
	// The generated code represents a missing body by an empty one. Every other body has a tag, because the contract
	// requires it.
	if body := request.Body; body != nil && body.Tag != "" {
		snapshot, err = s.config.Aggregates.PutSnapshot(ctx, caller.tenant, domain.Snapshot{
			Stream: request.StreamId, Version: body.Version, Tag: body.Tag, State: body.State,
		})
	} else {
		snapshot, err = s.config.Aggregates.TakeSnapshot(ctx, caller.tenant, request.StreamId, value(request.Params.AcceptLoss))
	}
	if caller.allow(domain.Category(request.StreamId), domain.ScopeEventsRead) != nil {
		// A caller that may only append must not learn what others have appended: neither the state nor an event's
		// content.
		snapshot.State = json.RawMessage("null")
		if fault, ok := errors.AsType[*domain.Error](err); ok && fault.Code == domain.CodeFaulted {
			err = domain.Errorf(domain.CodeFaulted, "", "an event of %s cannot be folded; a key with the scope events:read gets the event and the reason", request.StreamId)
		}
	}
	if err != nil {
		return nil, err
	}
	return openapi.TakeSnapshot201JSONResponse(snapshotAnswer(snapshot)), nil
}

func (s generated) GetLatestSnapshot(ctx context.Context, request openapi.GetLatestSnapshotRequestObject) (openapi.GetLatestSnapshotResponseObject, error) {
	caller := callerOf(ctx)
	if err := domain.CheckStream("path streamId", request.StreamId); err != nil {
		return nil, err
	}
	if err := caller.allow(domain.Category(request.StreamId), domain.ScopeEventsRead); err != nil {
		return nil, inPlace("path streamId", err)
	}
	snapshot, err := s.config.Aggregates.LatestSnapshot(ctx, caller.tenant, request.StreamId)
	if err != nil {
		return nil, err
	}
	return openapi.GetLatestSnapshot200JSONResponse(snapshotAnswer(snapshot)), nil
}

func snapshotAnswer(snapshot domain.Snapshot) openapi.Snapshot {
	return openapi.Snapshot{
		Stream: snapshot.Stream, Version: snapshot.Version, Tag: snapshot.Tag, State: snapshot.State, TakenAt: openapi.At(snapshot.TakenAt),
		RemovedTo: snapshot.RemovedTo,
	}
}
