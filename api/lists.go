package api

import (
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// listPage is the page of a list that a client asks for. The items are ordered by K.
type listPage[K any] struct {
	after K // the last item before the page; zero: the first page
	size  int
}

// listPageOf reads the parameters pageSize and pageToken.
func listPageOf[K any](size *int, token *string, parse func(string) (K, error)) (page listPage[K], err error) {
	page.size = defaultPage
	if size != nil {
		page.size = *size
	}
	if token == nil {
		return page, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(*token)
	name, ok := strings.CutPrefix(string(raw), "n")
	if err == nil && ok && storable(name) {
		if page.after, err = parse(name); err == nil {
			return page, nil
		}
	}
	return page, domain.Errorf(domain.CodeInvalidRequest, "query pageToken", "invalid token; use the Link header of the previous page, or leave it out for the first page")
}

// namePageOf is listPageOf for a list that is ordered by names.
func namePageOf(size *int, token *string) (listPage[string], error) {
	return listPageOf(size, token, func(name string) (string, error) { return name, nil })
}

// cutPage returns the page of items, of which one more than the page's size was read, and the Link header for the next
// page, which is empty after the last one. key returns what the next page starts after. query has the other parameters.
func cutPage[T any](items []T, size int, key func(T) string, path string, query url.Values) (page []T, link string) {
	if len(items) <= size {
		return items, ""
	}
	return items[:size], pageLink(path, query, size, pageToken(key(items[size-1])))
}

// pageToken returns the token for the page that starts after a key. It is opaque, so that its form may change.
func pageToken(key string) string { return base64.RawURLEncoding.EncodeToString([]byte("n" + key)) }

// pageLink returns the Link header for the next page of a list.
func pageLink(path string, query url.Values, size int, token string) string {
	if query == nil {
		query = url.Values{}
	}
	query.Set("pageSize", strconv.Itoa(size))
	query.Set("pageToken", token)
	return "<" + path + "?" + query.Encode() + `>; rel="next"`
}

// optional returns the values of a parameter that may be missing.
func optional(given *string) []string {
	if given == nil {
		return nil
	}
	return []string{*given}
}

// value returns what given points to, or the zero value.
func value[T any](given *T) (v T) {
	if given != nil {
		v = *given
	}
	return v
}

// convert converts each item. The result is never nil, and so an array in JSON.
func convert[T, A any](items []T, one func(T) A) []A {
	converted := make([]A, len(items))
	for i := range items {
		converted[i] = one(items[i])
	}
	return converted
}

// parseAt parses a part of a request, and names its place in the error.
func parseAt[T any](where, text string, parse func(string) (T, error)) (T, error) {
	parsed, err := parse(text)
	if err != nil {
		err = domain.Errorf(domain.CodeInvalidRequest, where, "%s", err)
	}
	return parsed, err
}
