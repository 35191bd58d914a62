package client

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	mathrand "math/rand/v2"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// refusedOnWindows is WSAECONNREFUSED, which Windows reports in place of ECONNREFUSED. No other system has this number.
const refusedOnWindows = syscall.Errno(10061)

// Retry says how often, and after which pauses, a request is sent again. Fields that are zero have their defaults.
type Retry struct {
	Attempts int           // how many times a request is sent at most; default 8
	MinDelay time.Duration // the first pause; default 100 ms. Each further one is twice as long
	MaxDelay time.Duration // the longest pause, unless Retry-After asks for more; default 10 s
}

// pause returns the pause after a number of failures, half of it by chance, so that clients spread out.
func (r Retry) pause(failures int) time.Duration {
	longest := min(cmp.Or(r.MaxDelay, 10*time.Second), cmp.Or(r.MinDelay, 100*time.Millisecond)<<min(failures-1, 20))
	return longest/2 + mathrand.N(longest/2+1)
}

// WithRetries makes a client send requests again that fail for a while: after 429 and 503, and after a lost answer if
// the request cannot take effect twice. Appends, publications and commands get an Idempotency-Key, which names the same
// event ids each time. After an option that sets the HTTP client, it wraps that.
func WithRetries(retry Retry) ClientOption {
	return func(c *Client) error {
		c.Client = &retrier{next: httpClient(c), retry: retry}
		return nil
	}
}

func httpClient(c *Client) HttpRequestDoer {
	if c.Client == nil {
		return &http.Client{}
	}
	return c.Client
}

// withRetries returns the client, or a copy that sends requests again.
func (c *Client) withRetries() *Client {
	if _, ok := c.Client.(*retrier); ok {
		return c
	}
	again := *c
	again.Client = &retrier{next: httpClient(c)}
	return &again
}

// withoutRetries returns a client that sends each request once.
func (c *Client) withoutRetries() *Client {
	once, next := *c, httpClient(c)
	if r, ok := next.(*retrier); ok {
		next = r.next
	}
	once.Client = &retrier{next: next, retry: Retry{Attempts: 1}}
	return &once
}

// retrier sends requests again.
type retrier struct {
	next  HttpRequestDoer
	retry Retry
}

// Do implements HttpRequestDoer. It reads answers that are JSON to their end, since the connection may break until
// then.
func (r *retrier) Do(request *http.Request) (*http.Response, error) {
	mayRepeat, keyed := repetition(request)
	if keyed && request.Header.Get("Idempotency-Key") == "" {
		request.Header.Set("Idempotency-Key", rand.Text())
	}
	attempts := cmp.Or(r.retry.Attempts, 8)
	if request.Body != nil && request.GetBody == nil {
		attempts = 1 // the body can be read once
	}
	for attempt := 1; ; attempt++ {
		if attempt > 1 && request.GetBody != nil {
			body, err := request.GetBody()
			if err != nil {
				return nil, err
			}
			request.Body = body
		}
		response, err := readJSON(r.next.Do(request))
		again := err != nil && (mayRepeat || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, refusedOnWindows))
		var asked time.Duration
		if err == nil {
			again = isTransient(response, mayRepeat)
			asked = retryAfter(response.Header)
		}
		if !again || attempt >= attempts || request.Context().Err() != nil {
			return response, err
		}
		if response != nil {
			response.Body.Close()
		}
		if err := sleep(request.Context(), max(asked, r.retry.pause(attempt))); err != nil {
			return nil, err
		}
	}
}

// repetition reports whether a request may be sent again after a lost answer, and whether that takes an
// Idempotency-Key.
func repetition(request *http.Request) (allowed, keyed bool) {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete:
		return true, false
	}
	_, path, _ := strings.Cut(request.URL.EscapedPath(), "/v1/")
	parts := strings.Split(path, "/")
	for operation, keyed := range repeatable {
		method, template, _ := strings.Cut(operation, " /v1/")
		if method == request.Method && slices.EqualFunc(strings.Split(template, "/"), parts, func(name, part string) bool {
			return name == part || strings.HasPrefix(name, "{")
		}) {
			return true, keyed
		}
	}
	return false, false
}

// readJSON reads an answer that is JSON to its end.
func readJSON(response *http.Response, err error) (*http.Response, error) {
	if err != nil || !isJSON(response) {
		return response, err
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

func isJSON(response *http.Response) bool {
	kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return err == nil && (kind == "application/json" || kind == "application/problem+json")
}

// isTransient reports whether a request is worth sending again after an answer. It leaves the answer unread.
func isTransient(response *http.Response, mayRepeat bool) bool {
	switch response.StatusCode {
	case http.StatusTooManyRequests:
		return true // it was not carried out
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return mayRepeat
	case http.StatusServiceUnavailable:
	default:
		return false
	}
	var problem Problem
	if isJSON(response) {
		body, err := io.ReadAll(response.Body) // in memory: see readJSON
		if err != nil || json.Unmarshal(body, &problem) != nil {
			problem.Code = ""
		}
		response.Body = io.NopCloser(bytes.NewReader(body))
	}
	switch problem.Code {
	case "overloaded":
		return true // it was not carried out
	case "not-caught-up": // the service has waited as long as the caller wanted
		return false
	}
	return mayRepeat
}

// retryAfter reads a Retry-After header; 0 if there is none.
func retryAfter(header http.Header) time.Duration {
	text := header.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(seconds) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return time.Until(at)
}

// sleep waits for a duration, or until ctx ends.
func sleep(ctx context.Context, duration time.Duration) error {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
