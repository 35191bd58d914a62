package api

import (
	"context"
	"net/url"
	"strings"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/auth"
)

func (s operations) ListStreams(ctx context.Context, caller access.Caller, request openapi.ListStreamsRequest) (*openapi.Response, error) {
	if err := caller.Allow(listedCategory(request.Params), auth.ScopeEventsRead); err != nil {
		return nil, err
	}
	page, err := namePageOf(request.Params.PageSize, request.Params.PageToken)
	if err != nil {
		return nil, err
	}
	names, err := s.config.Log.Streams(ctx, caller.Tenant, value(request.Params.Category), value(request.Params.Prefix), page.after, page.size+1)
	if err != nil {
		return nil, err
	}
	names, link := cutPage(names, page.size, func(name string) string { return name }, "/v1/streams", url.Values{
		"category": optional(request.Params.Category), "prefix": optional(request.Params.Prefix),
	})
	return openapi.OK(openapi.StreamList{Streams: append([]string{}, names...)}).With("Link", link), nil
}

// listedCategory returns the common category of all listed streams, or an empty string if they may have any.
func listedCategory(params openapi.ListStreamsParams) string {
	if category := value(params.Category); category != "" {
		return category
	}
	if category, _, whole := strings.Cut(value(params.Prefix), "-"); whole {
		return category
	}
	return ""
}

func (s operations) GetStreamMetadata(ctx context.Context, caller access.Caller, request openapi.GetStreamMetadataRequest) (*openapi.Response, error) {
	if err := caller.AllowStream(request.StreamId, auth.ScopeEventsRead); err != nil {
		return nil, err
	}
	info, err := s.config.Log.StreamInfo(ctx, caller.Tenant, request.StreamId)
	if err != nil {
		return nil, err
	}
	return openapi.OK(openapi.StreamMetadata{
		Stream: info.Stream, Version: info.Version, Events: info.Events, Bytes: info.Bytes,
		FirstVersion: info.FirstVersion, FirstAt: moment(info.FirstAt), LastAt: moment(info.LastAt),
	}).With("ETag", etag(info.Version)), nil
}
