package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"strings"

	"github.com/manifold-es/manifold/aggregate"
	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
)

func (s operations) TakeSnapshot(ctx context.Context, caller access.Caller, request openapi.TakeSnapshotRequest) (*openapi.Response, error) {
	if err := caller.AllowStream(request.StreamId, auth.ScopeEventsAppend); err != nil {
		return nil, err
	}
	var snapshot aggregate.Snapshot
	var err error
	// The contract requires a tag, so without one there was no body.
	if body := request.Body; body.Tag != "" {
		snapshot, err = s.config.Aggregates.PutSnapshot(ctx, caller.Tenant, aggregate.Snapshot{
			Stream: request.StreamId, Version: body.Version, Tag: body.Tag, State: body.State,
		})
	} else {
		snapshot, err = s.config.Aggregates.TakeSnapshot(ctx, caller.Tenant, request.StreamId, value(request.Params.AcceptLoss))
	}
	if caller.Allow(domain.Category(request.StreamId), auth.ScopeEventsRead) != nil {
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
	return openapi.Created(snapshotAnswer(snapshot)), nil
}

func (s operations) GetLatestSnapshot(ctx context.Context, caller access.Caller, request openapi.GetLatestSnapshotRequest) (*openapi.Response, error) {
	if err := caller.AllowStream(request.StreamId, auth.ScopeEventsRead); err != nil {
		return nil, err
	}
	snapshot, err := s.config.Aggregates.LatestSnapshot(ctx, caller.Tenant, request.StreamId, value(request.Params.Version), value(request.Params.Tag))
	return openapi.OK(snapshotAnswer(snapshot)), err
}

func (s operations) ListSnapshots(ctx context.Context, caller access.Caller, request openapi.ListSnapshotsRequest) (*openapi.Response, error) {
	if err := caller.AllowStream(request.StreamId, auth.ScopeEventsRead); err != nil {
		return nil, err
	}
	page, err := listPageOf(request.Params.PageSize, request.Params.PageToken, parseSnapshotKey)
	if err != nil {
		return nil, err
	}
	snapshots, err := s.config.Aggregates.Snapshots(ctx, caller.Tenant, request.StreamId, page.after, page.size+1)
	if err != nil {
		return nil, err
	}
	snapshots, link := cutPage(snapshots, page.size, func(s aggregate.Snapshot) string { return strconv.FormatInt(s.Version, 10) + " " + s.Tag },
		"/v1/snapshots/"+url.PathEscape(request.StreamId), nil)
	return openapi.OK(openapi.SnapshotList{Snapshots: convert(snapshots, func(s aggregate.Snapshot) openapi.ListedSnapshot {
		return openapi.ListedSnapshot{Version: s.Version, Tag: s.Tag, TakenAt: openapi.At(s.TakenAt), RemovedTo: s.RemovedTo}
	})}).With("Link", link), nil
}

// parseSnapshotKey parses the key of a page of snapshots.
func parseSnapshotKey(text string) (key aggregate.SnapshotKey, err error) {
	version, tag, _ := strings.Cut(text, " ")
	key.Tag = tag
	key.Version, err = strconv.ParseInt(version, 10, 64)
	return key, err
}

func snapshotAnswer(snapshot aggregate.Snapshot) openapi.Snapshot {
	return openapi.Snapshot{
		Stream: snapshot.Stream, Version: snapshot.Version, Tag: snapshot.Tag, State: snapshot.State, TakenAt: openapi.At(snapshot.TakenAt),
		RemovedTo: snapshot.RemovedTo,
	}
}
