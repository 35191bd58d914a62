package cli

import (
	"iter"
	"net/http"
	"net/url"
	"strings"
)

// pageSize is how many items per page a command requests when it needs all items.
const pageSize = 1000

// pages yields the items of all pages of a list. ask requests one page, with nil as the first page's token. pages
// stops at the first error.
func pages[T any](ask func(token *string) (things []T, response *http.Response, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for token := (*string)(nil); ; {
			things, response, err := ask(token)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, thing := range things {
				if !yield(thing, nil) {
					return
				}
			}
			next := nextPage(response)
			if next == "" {
				return
			}
			token = &next
		}
	}
}

// nextPage returns the page token in an answer's Link header, or "" if there is no further page.
func nextPage(response *http.Response) string {
	for _, link := range response.Header.Values("Link") {
		target, rest, found := strings.Cut(strings.TrimPrefix(strings.TrimSpace(link), "<"), ">")
		if !found || !strings.Contains(rest, `rel="next"`) {
			continue
		}
		if u, err := url.Parse(target); err == nil {
			return u.Query().Get("pageToken")
		}
	}
	return ""
}

// upTo yields at most limit items of a list, or all if limit is 0.
func upTo[T any](all iter.Seq2[T, error], limit int) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		left := limit
		for thing, err := range all {
			if !yield(thing, err) {
				return
			}
			if left--; left == 0 {
				return
			}
		}
	}
}
