package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/trace"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/telemetry/tracing"
)

// Limits of a request and its response.
const (
	connectTimeout  = 10 * time.Second       // per address, and again for TLS; the webhook timeout covers all
	maxAnswerHeader = 64 << 10               // bytes
	drainBytes      = 4 << 10                // of a response body, so that its connection can be reused
	drainFor        = 250 * time.Millisecond // for the same purpose
	idleFor         = 30 * time.Second       // until an unused connection is closed
	idleAll         = 1000                   // unused connections of all webhooks
)

// sender makes requests. It follows no redirects, uses no proxy and no cookies, and connects to no address that its
// guard refuses.
type sender struct {
	guard  *guard
	http   bool // http:// is allowed
	agent  string
	dialer *net.Dialer
	client *http.Client
}

func newSender(allow []netip.Prefix, allowHTTP bool, version string) *sender {
	s := &sender{guard: newGuard(allow), http: allowHTTP, agent: "Manifold/" + version}
	// Go's resolver waits without occupying a thread, so that many slow names delay nobody.
	s.dialer = &net.Dialer{Timeout: connectTimeout, Control: s.guard.control, Resolver: &net.Resolver{PreferGo: true}}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return s.dialer.DialContext(ctx, network, address)
		},
		TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    connectTimeout, // a connection attempt does not end with its request
		MaxIdleConns:           idleAll,
		MaxIdleConnsPerHost:    maxWindow,
		IdleConnTimeout:        idleFor,
		MaxResponseHeaderBytes: maxAnswerHeader,
		DisableCompression:     true,
		Protocols:              new(http.Protocols),
	}
	// Use one request per connection, so that a hanging connection blocks no other request.
	transport.Protocols.SetHTTP1(true)
	s.client = &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return s
}

// close closes unused connections.
func (s *sender) close() { s.client.CloseIdleConnections() }

// message is what is sent to an endpoint.
type message struct {
	id          string // the same for every attempt
	contentType string
	body        []byte
	trace       trace.SpanContext // of the event; invalid: none
	delivery    *domain.Delivery  // nil: it is a test
	group       string
}

// answer is the outcome of a request.
type answer struct {
	outcome    Outcome
	status     int // 0: no response
	took       time.Duration
	err        string        // why there was no response
	excerpt    string        // of a response other than 2xx
	retryAfter time.Duration // requested by the endpoint; 0: nothing
}

// send sends a message and waits for the answer, up to timeout. If ctx ends first, the outcome is WebhookFailed with an
// error that must not be published. The caller must check ctx for this case.
func (s *sender) send(ctx context.Context, url string, timeout time.Duration, secrets []Secret, m message) answer {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	a, err := s.request(ctx, cancel, url, secrets, m)
	a.took = time.Since(began)
	if err == nil {
		return a
	}
	a.outcome = OutcomeFailed
	switch {
	case errors.Is(err, errBlocked):
		a.outcome = OutcomeBlocked
	case errors.Is(err, context.DeadlineExceeded) || isTimeout(err):
		a.outcome = OutcomeTimeout
	}
	a.err = describe(err, timeout)
	return a
}

func (s *sender) request(ctx context.Context, cancel context.CancelFunc, url string, secrets []Secret, m message) (answer, error) {
	// Settings may have changed since the webhook was stored, and control does not check ports.
	if err := s.checkURL(url); err != nil {
		return answer{}, fmt.Errorf("%w: %w", errBlocked, err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(m.body))
	if err != nil {
		return answer{}, err
	}
	now := time.Now()
	signature, err := sign(secrets, m.id, now, m.body)
	if err != nil {
		return answer{}, err
	}
	r.Header.Set("Content-Type", m.contentType)
	r.Header.Set("User-Agent", s.agent)
	if traceparent := tracing.Traceparent(ctx); traceparent != "" {
		r.Header.Set("Traceparent", traceparent)
	}
	if d := m.delivery; d != nil {
		r.Header.Set("Manifold-Group", m.group)
		r.Header.Set("Manifold-Attempts", strconv.Itoa(d.Attempts()))
		r.Header.Set("Manifold-Max-Attempts", strconv.Itoa(d.MaxAttempts))
		r.Header.Set("Manifold-Cursor", strconv.FormatInt(d.Cursor, 10))
	}
	r.Header.Set("Webhook-Id", m.id)
	r.Header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
	r.Header.Set("Webhook-Signature", signature)
	response, err := s.client.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	// The status is the answer. Wait only a moment for the rest, however slowly it comes.
	late := time.AfterFunc(drainFor, cancel)
	defer late.Stop()
	a := answer{status: response.StatusCode, retryAfter: retryAfter(response.Header.Get("Retry-After"), now)}
	body, _ := io.ReadAll(io.LimitReader(response.Body, drainBytes)) // as much as arrives
	switch {
	case a.status >= 200 && a.status < 300:
		a.outcome, a.retryAfter = OutcomeOK, 0
		return a, nil
	case a.status == http.StatusGone:
		a.outcome = OutcomeGone
	default:
		a.outcome = OutcomeFailed
	}
	a.excerpt = plain(string(body), MaxExcerptBytes)
	if location := response.Header.Get("Location"); location != "" && a.status >= 300 && a.status < 400 {
		a.err = "it redirects, which is not followed"
	}
	return a, nil
}

// retryAfter parses a Retry-After header: seconds or a time. It returns 0 for anything else.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseInt(text, 10, 32); err == nil {
		return max(0, time.Duration(seconds)*time.Second)
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}

func isTimeout(err error) bool {
	failure, ok := errors.AsType[net.Error](err)
	return ok && failure.Timeout()
}

// describe explains to the webhook's owner why there was no response. It reveals no addresses inside the network, such
// as those of its name servers or of this machine.
func describe(err error, timeout time.Duration) string {
	if failure, ok := errors.AsType[*domain.Error](err); ok {
		return plain(failure.Message, MaxErrorBytes)
	}
	if errors.Is(err, errBlocked) {
		return "the URL resolves to an address that is not public; nothing was sent"
	}
	if failure, ok := errors.AsType[*net.DNSError](err); ok {
		switch {
		case failure.IsNotFound:
			return fmt.Sprintf("the name %s is not known", plain(failure.Name, 260))
		case failure.IsTimeout:
			return fmt.Sprintf("the lookup of the name %s timed out", plain(failure.Name, 260))
		}
		return fmt.Sprintf("the lookup of the name %s failed", plain(failure.Name, 260))
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("there was no answer within %s", timeout)
	}
	if failure, ok := errors.AsType[*net.OpError](err); ok {
		if failure.Op == "dial" {
			return plain("no connection: "+failure.Err.Error(), MaxErrorBytes)
		}
		return plain("the connection broke: "+failure.Err.Error(), MaxErrorBytes)
	}
	if failure, ok := errors.AsType[*url.Error](err); ok {
		err = failure.Err // without the URL, which may contain a key
	}
	return plain(err.Error(), MaxErrorBytes)
}

// plain makes a text safe to store and show: UTF-8 without control characters, and no longer than most bytes.
func plain(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == utf8.RuneError, r < ' ' && r != '\n' && r != '\t', r >= 0x7f && r < 0xa0:
			return ' '
		}
		return r
	}, text)
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most]
}
