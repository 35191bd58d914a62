package client

import (
	"context"
	"iter"
	"net/http"
	"regexp"
	"strings"
)

var nextPage = regexp.MustCompile(`<([^>]*)>\s*;\s*rel="?next"?`)

// Pages iterates over the pages of a list, from the answer to its first request. The iteration ends after an error.
//
//	for page, err := range client.Pages[client.StreamList](ctx, c)(c.ListStreams(ctx, nil)) {
func Pages[T any](ctx context.Context, c *Client) func(first *http.Response, err error) iter.Seq2[T, error] {
	return func(response *http.Response, err error) iter.Seq2[T, error] {
		return func(yield func(T, error) bool) {
			for {
				page, readErr := Read[T](response, err)
				if !yield(page, readErr) || readErr != nil {
					return
				}
				next := nextPage.FindStringSubmatch(response.Header.Get("Link"))
				if next == nil {
					return
				}
				response, err = c.get(ctx, next[1])
			}
		}
	}
}

// get requests a path of the service.
func (c *Client) get(ctx context.Context, path string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.Server, "/")+path, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if err := c.applyEditors(ctx, request, nil); err != nil {
		return nil, err
	}
	return c.Client.Do(request)
}

// Documents iterates over the documents of a projection that params select, on all pages. The iteration ends after an
// error.
func (c *Client) Documents(ctx context.Context, projection string, params *ListDocumentsParams) iter.Seq2[Document, error] {
	return func(yield func(Document, error) bool) {
		for page, err := range Pages[DocumentList](ctx, c)(c.ListDocuments(ctx, projection, params)) {
			if err != nil {
				yield(Document{}, err)
				return
			}
			for _, document := range page.Documents {
				if !yield(document, nil) {
					return
				}
			}
		}
	}
}

// Search reads all events that a query matches after a position. They are complete up to the returned position, which
// is the after of an append's condition.
func (c *Client) Search(ctx context.Context, query Query, after int64) (events []Event, position int64, err error) {
	for {
		answer, err := Read[QueryAnswer](c.ReadByQuery(ctx, QueryRequest{Query: query, After: after, Count: 1000}))
		if err != nil {
			return nil, 0, err
		}
		events = append(events, answer.Events...)
		if !answer.More {
			return events, answer.Position, nil
		}
		after = answer.Next
	}
}
