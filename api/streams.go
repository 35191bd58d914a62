package api

import (
	"context"
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
)

func (s generated) ListStreams(ctx context.Context, request openapi.ListStreamsRequestObject) (openapi.ListStreamsResponseObject, error) {
	caller := callerOf(ctx)
	if err := caller.allow(listedCategory(request.Params), domain.ScopeEventsRead); err != nil {
		return nil, err
	}
	after, err := pageToken(request.Params.PageToken)
	if err != nil {
		return nil, err
	}
	size := pageSizeOf(request.Params.PageSize)
	names, err := s.config.Streams.Streams(ctx, caller.tenant, value(request.Params.Category), value(request.Params.Prefix), after, size+1)
	if err != nil {
		return nil, err
	}
	var link *string
	if len(names) > size {
		names = names[:size]
		link = pageLink("/v1/streams", url.Values{
			"category": values(request.Params.Category), "prefix": values(request.Params.Prefix), "pageSize": {strconv.Itoa(size)},
		}, tokenOf(names[size-1]))
	}
	return openapi.ListStreams200JSONResponse{
		Body:    openapi.StreamList{Streams: append([]string{}, names...)},
		Headers: openapi.ListStreams200ResponseHeaders{Link: link},
	}, nil
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

func (s generated) GetStreamMetadata(ctx context.Context, request openapi.GetStreamMetadataRequestObject) (openapi.GetStreamMetadataResponseObject, error) {
	caller := callerOf(ctx)
	if err := domain.CheckStream("path streamId", request.StreamId); err != nil {
		return nil, err
	}
	if err := caller.allow(domain.Category(request.StreamId), domain.ScopeEventsRead); err != nil {
		return nil, inPlace("path streamId", err)
	}
	info, err := s.config.Streams.StreamInfo(ctx, caller.tenant, request.StreamId)
	if err != nil {
		return nil, err
	}
	tag := etag(info.Version)
	return openapi.GetStreamMetadata200JSONResponse{
		Body: openapi.StreamMetadata{
			Stream: info.Stream, Version: info.Version, Events: info.Events, Bytes: info.Bytes,
			FirstVersion: info.FirstVersion, FirstAt: moment(info.FirstAt), LastAt: moment(info.LastAt),
		},
		Headers: openapi.GetStreamMetadata200ResponseHeaders{ETag: &tag},
	}, nil
}

// pageSizeOf returns the number of items on a page.
func pageSizeOf(given *int) int {
	if given == nil {
		return defaultPage
	}
	return *given
}

// value returns what given points to, or the zero value.
func value[T any](given *T) (v T) {
	if given != nil {
		v = *given
	}
	return v
}

func values(given *string) []string {
	if given == nil {
		return nil
	}
	return []string{*given}
}

// tokenOf returns the page token for the page that starts after a name. The token is opaque so that its form may
// change.
func tokenOf(name string) string { return base64.RawURLEncoding.EncodeToString([]byte("n" + name)) }

// pageToken decodes a token of tokenOf.
func pageToken(given *string) (string, error) {
	if given == nil {
		return "", nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(*given)
	name, ok := strings.CutPrefix(string(raw), "n")
	if err != nil || !ok || !storable(name) {
		return "", domain.Errorf(domain.CodeInvalidRequest, "query pageToken", "it is not from a Link header of this list; leave it out to begin with the first page")
	}
	return name, nil
}

// pageLink returns the Link header for the next page of a list.
func pageLink(path string, query url.Values, token string) *string {
	query.Set("pageToken", token)
	link := "<" + path + "?" + query.Encode() + `>; rel="next"`
	return &link
}
