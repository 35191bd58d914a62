package main

import (
	"net/http"
	"net/url"
	"strings"
)

// nextPage returns the page token of an answer's Link header; empty where there is no further page.
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
