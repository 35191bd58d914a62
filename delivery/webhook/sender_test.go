package webhook

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const patience = 30 * time.Second // for a request that should end earlier

// local returns a sender that may send to this machine.
func local(t *testing.T) *sender {
	t.Helper()
	s := newSender(prefixes("127.0.0.0/8", "::1/128"), true, "v1")
	t.Cleanup(s.close)
	return s
}

func try(t *testing.T, s *sender, url string, timeout time.Duration) answer {
	t.Helper()
	return s.send(t.Context(), url, timeout, []Secret{newSecret()}, message{id: "1", contentType: standardType, body: []byte(`{}`)})
}

// raw is a server that answers each connection through a test's function, until the test ends.
func raw(t *testing.T, answer func(ctx context.Context, conn net.Conn, request *http.Request)) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				defer context.AfterFunc(ctx, func() { conn.Close() })()
				request, err := http.ReadRequest(bufio.NewReader(conn))
				if err != nil {
					return
				}
				if _, err := io.Copy(io.Discard, request.Body); err == nil {
					answer(ctx, conn, request)
				}
			}()
		}
	}()
	t.Cleanup(func() { cancel(); listener.Close(); <-done })
	return "http://" + listener.Addr().String()
}

// drip writes a text byte by byte, and repeats it until nobody reads it.
func drip(ctx context.Context, conn net.Conn, text string) {
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for i := 0; ; i++ {
		if _, err := conn.Write([]byte{text[i%len(text)]}); err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func TestMessageAsItArrives(t *testing.T) {
	t.Parallel()
	secret := newSecret()
	receiver, err := standardwebhooks.NewWebhook(secret.Text())
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if err := receiver.Verify(body, r.Header); err != nil || r.Method != "POST" || r.Header.Get("Content-Type") != standardType || r.Header.Get("User-Agent") != "Manifold/v1" ||
			r.Header.Get("Webhook-Id") != "an-id" || r.Header.Get("Manifold-Group") != "" || r.URL.String() != "/path?key=1" || string(body) != `{"a":1}` {
			t.Errorf("%s %s, %v, %s: %v", r.Method, r.URL, r.Header, body, err)
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	defer server.Close()
	a := local(t).send(t.Context(), server.URL+"/path?key=1", patience, []Secret{secret}, message{id: "an-id", contentType: standardType, body: []byte(`{"a":1}`)})
	if a.outcome != OutcomeOK || a.status != 204 || a.err != "" || a.excerpt != "" || a.took <= 0 {
		t.Errorf("the answer is %+v", a)
	}
}

func TestAnswersOfEndpoints(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status  int
		header  string
		outcome Outcome
		after   time.Duration
	}{
		"ok":            {status: 200, outcome: OutcomeOK},
		"accepted":      {status: 202, header: "7", outcome: OutcomeOK},
		"last of 2xx":   {status: 299, outcome: OutcomeOK},
		"not modified":  {status: 304, outcome: OutcomeFailed},
		"bad request":   {status: 400, outcome: OutcomeFailed},
		"gone":          {status: 410, outcome: OutcomeGone},
		"too many":      {status: 429, header: "7", outcome: OutcomeFailed, after: 7 * time.Second},
		"error":         {status: 500, outcome: OutcomeFailed},
		"unavailable":   {status: 503, header: "soon", outcome: OutcomeFailed},
		"in the past":   {status: 503, header: "Wed, 21 Oct 2015 07:28:00 GMT", outcome: OutcomeFailed},
		"less than now": {status: 503, header: "-5", outcome: OutcomeFailed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if c.header != "" {
					w.Header().Set("Retry-After", c.header)
				}
				w.WriteHeader(c.status)
				if c.status != 304 {
					fmt.Fprint(w, "in \x00 words")
				}
			}))
			defer server.Close()
			a := try(t, local(t), server.URL, patience)
			if a.outcome != c.outcome || a.status != c.status || a.retryAfter != c.after {
				t.Errorf("the answer is %+v", a)
			}
			if want := "in   words"; a.outcome != OutcomeOK && c.status != 304 && a.excerpt != want {
				t.Errorf("the excerpt is %q, not %q", a.excerpt, want)
			}
		})
	}
}

func TestHangingEndpoint(t *testing.T) {
	t.Parallel()
	url := raw(t, func(ctx context.Context, _ net.Conn, _ *http.Request) { <-ctx.Done() })
	if a := try(t, local(t), url, 50*time.Millisecond); a.outcome != OutcomeTimeout || a.err != "there was no answer within 50ms" || a.took < 50*time.Millisecond {
		t.Errorf("the answer is %+v", a)
	}
}

// A response that arrives byte by byte ends with the timeout, however lively the connection is. A connection whose TLS
// handshake gets no answer ends by itself. Otherwise each attempt would leave a connection open.
func TestEndpointThatSaysNothingOfTLS(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	ended := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err == nil {
			defer conn.Close()
			conn.SetReadDeadline(time.Now().Add(patience)) //nolint:errcheck // it is one of TCP
			_, err = io.Copy(io.Discard, conn)
		}
		ended <- err
	}()
	s := local(t)
	transport := s.client.Transport.(*http.Transport)
	if transport.TLSHandshakeTimeout != connectTimeout {
		t.Errorf("it ends after %s", transport.TLSHandshakeTimeout)
	}
	transport.TLSHandshakeTimeout = 2 * time.Second
	a := try(t, s, "https://"+listener.Addr().String(), time.Second)
	if a.outcome != OutcomeTimeout {
		t.Errorf("it is %+v", a)
	}
	if err := <-ended; err != nil {
		t.Errorf("the connection is still there behind the request: %v", err)
	}
}

func TestSlowResponseHeader(t *testing.T) {
	t.Parallel()
	url := raw(t, func(ctx context.Context, conn net.Conn, _ *http.Request) {
		drip(ctx, conn, "HTTP/1.1 200 OK\r\nA: "+strings.Repeat("a", 10_000))
	})
	if a := try(t, local(t), url, 100*time.Millisecond); a.outcome != OutcomeTimeout || a.status != 0 {
		t.Errorf("the answer is %+v", a)
	}
}

// The status is the answer. The sender does not wait for what drips after it.
func TestSlowResponseBody(t *testing.T) {
	t.Parallel()
	for status, outcome := range map[string]Outcome{"200 OK": OutcomeOK, "500 Broken": OutcomeFailed} {
		url := raw(t, func(ctx context.Context, conn net.Conn, _ *http.Request) {
			fmt.Fprintf(conn, "HTTP/1.1 %s\r\nContent-Length: 1000000\r\n\r\n", status)
			drip(ctx, conn, "words ")
		})
		if a := try(t, local(t), url, time.Hour); a.outcome != outcome || a.status == 0 {
			t.Errorf("%s: the answer is %+v", status, a)
		}
	}
}

func TestHugeAnswers(t *testing.T) {
	t.Parallel()
	endless := func(begin, again string) func(context.Context, net.Conn, *http.Request) {
		return func(_ context.Context, conn net.Conn, _ *http.Request) {
			_, err := io.WriteString(conn, begin)
			for err == nil {
				_, err = io.WriteString(conn, again)
			}
		}
	}
	x := strings.Repeat("é", 10_000)
	if a := try(t, local(t), raw(t, endless("HTTP/1.1 200 OK\r\n\r\n", x)), patience); a.outcome != OutcomeOK {
		t.Errorf("an endless body of 200: %+v", a)
	}
	a := try(t, local(t), raw(t, endless("HTTP/1.1 500 Broken\r\n\r\n", x)), patience)
	if a.outcome != OutcomeFailed || len(a.excerpt) < MaxExcerptBytes-4 || len(a.excerpt) > MaxExcerptBytes || strings.Trim(a.excerpt, "é") != "" {
		t.Errorf("an endless body of 500: %s, %d bytes of it kept", a.outcome, len(a.excerpt))
	}
	for what, url := range map[string]string{
		"headers":       raw(t, endless("HTTP/1.1 200 OK\r\n", "A: "+strings.Repeat("a", 1000)+"\r\n")),
		"one header":    raw(t, endless("HTTP/1.1 200 OK\r\nA: ", x)),
		"status lines":  raw(t, endless("", "HTTP/1.1 100 Continue\r\n\r\n")),
		"early hints":   raw(t, endless("", "HTTP/1.1 103 Early Hints\r\nA: "+strings.Repeat("a", 1000)+"\r\n\r\n")),
		"a status line": raw(t, endless("HTTP/1.1 200 ", x)),
	} {
		if a := try(t, local(t), url, patience); a.outcome != OutcomeFailed || a.err == "" {
			t.Errorf("endless %s: %+v", what, a)
		}
	}
}

func TestConnectionsThatBreak(t *testing.T) {
	t.Parallel()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	for what, url := range map[string]string{
		"refused": "http://" + nobody.Addr().String(),
		"closed":  raw(t, func(context.Context, net.Conn, *http.Request) {}),
		"no HTTP": raw(t, func(_ context.Context, conn net.Conn, _ *http.Request) {
			fmt.Fprint(conn, "220 mail.example ESMTP\r\n")
		}),
		"cut": raw(t, func(_ context.Context, conn net.Conn, _ *http.Request) {
			fmt.Fprint(conn, "HTTP/1.1 200 OK\r\nA: b\r\n")
		}),
		"reset":  raw(t, func(_ context.Context, conn net.Conn, _ *http.Request) { conn.(*net.TCPConn).SetLinger(0) }),
		"no TLS": strings.Replace(raw(t, func(_ context.Context, conn net.Conn, _ *http.Request) {}), "http://", "https://", 1),
		"many hops": raw(t, func(_ context.Context, conn net.Conn, _ *http.Request) {
			fmt.Fprint(conn, "HTTP/1.1 999999 What\r\n\r\n")
		}),
	} {
		a := try(t, local(t), url, patience)
		if a.outcome != OutcomeFailed || a.err == "" || a.status != 0 {
			t.Errorf("%s: the answer is %+v", what, a)
		}
		if strings.Contains(a.err, "127.0.0.1") || strings.Contains(a.err, "://") {
			t.Errorf("%s: what is said names addresses: %s", what, a.err)
		}
	}
}

func TestCertificates(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	serve := func(with *tls.Config) *httptest.Server {
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
		server.TLS, server.Config.ErrorLog = with, quiet()
		server.StartTLS()
		t.Cleanup(server.Close)
		return server
	}
	trusting := func(server *httptest.Server) *sender {
		s := local(t)
		s.client.Transport.(*http.Transport).TLSClientConfig.RootCAs = server.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs
		return s
	}
	server := serve(nil)
	if a := try(t, local(t), server.URL, patience); a.outcome != OutcomeFailed || !strings.Contains(a.err, "certificate") {
		t.Errorf("of somebody unknown: %+v", a)
	}
	if a := try(t, trusting(server), server.URL, patience); a.outcome != OutcomeOK {
		t.Errorf("of somebody known: %+v", a)
	}
	// The certificate is for 127.0.0.1, and for example.com.
	n := newNames(t)
	n.set("other.test", []string{"127.0.0.1"})
	misled := trusting(server)
	misled.dialer.Resolver = n.resolver()
	if a := try(t, misled, strings.Replace(server.URL, "127.0.0.1", "other.test", 1), patience); a.outcome != OutcomeFailed || !strings.Contains(a.err, "certificate") {
		t.Errorf("of another name: %+v", a)
	}
	old := serve(&tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}) //nolint:gosec // it is to be refused
	if a := try(t, trusting(old), old.URL, patience); a.outcome != OutcomeFailed {
		t.Errorf("of an old version: %+v", a)
	}
	if hits.Load() != 1 {
		t.Errorf("%d requests have arrived, not 1", hits.Load())
	}
}

// A redirect leads nowhere inside, whatever its status, and is not a success.
func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	var inside atomic.Int64
	secret := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { inside.Add(1) }))
	defer secret.Close()
	for _, status := range []int{300, 301, 302, 303, 307, 308} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", secret.URL)
			w.WriteHeader(status)
		}))
		if a := try(t, local(t), server.URL, patience); a.outcome != OutcomeFailed || a.status != status || !strings.Contains(a.err, "redirect") {
			t.Errorf("%d: the answer is %+v", status, a)
		}
		server.Close()
	}
	if inside.Load() > 0 {
		t.Error("a redirect was followed")
	}
}

func TestNothingIsSentToInternalAddresses(t *testing.T) {
	t.Parallel()
	var hits atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits.Add(1) }))
	defer server.Close()
	server.Config.ConnState = func(net.Conn, http.ConnState) { hits.Add(1) }
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := newSender(nil, true, "v1")
	defer s.close()
	for _, host := range []string{"localhost", "127.0.0.1", "127.0.0.2", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "0.0.0.0", "[::]"} {
		if a := try(t, s, "http://"+host+":"+port, patience); a.outcome != OutcomeBlocked || a.status != 0 || a.err == "" {
			t.Errorf("%s: the answer is %+v", host, a)
		}
	}
	if transport := s.client.Transport.(*http.Transport); transport.Proxy != nil || transport.DialTLSContext != nil {
		t.Error("there is a way around the dialer")
	}
	if hits.Load() > 0 {
		t.Error("something has arrived")
	}
}

// Other spellings of an address are either unknown names, or addresses that are refused.
func TestSpellingsOfAddresses(t *testing.T) {
	t.Parallel()
	s := newSender(nil, true, "v1")
	defer s.close()
	names := newNames(t)
	s.dialer.Resolver = names.resolver()
	for _, host := range []string{"2130706433", "0x7f000001", "0x7f.1", "017700000001", "127.1", "127.0.1", "0177.0.0.1", "①②⑦.⓪.⓪.①", "127.0.0.1."} {
		if a := try(t, s, "http://"+host+":8080/", patience); a.outcome != OutcomeFailed && a.outcome != OutcomeBlocked || a.status != 0 {
			t.Errorf("%s: the answer is %+v", host, a)
		}
	}
}

func TestCancelledRequests(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	url := raw(t, func(ctx context.Context, _ net.Conn, _ *http.Request) { close(arrived); <-ctx.Done() })
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	a := local(t).send(ctx, url, patience, nil, message{id: "1", contentType: standardType, body: []byte(`{}`)})
	if a.outcome != OutcomeFailed || a.status != 0 || !errors.Is(ctx.Err(), context.Canceled) {
		t.Errorf("the answer is %+v", a)
	}
}
