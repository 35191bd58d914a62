package service_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/service"
)

// Idle connections without a key, as many as permitted and more, must not keep out probes or clients.
func TestIdleConnectionsHoldUpNobody(t *testing.T) {
	t.Parallel()
	c := configuration(pgtest.Database(t))
	c.Limits.Connections, c.Limits.AddressConnections = 320, 400
	p := start(t, c)
	key := newTenant(t, p, "acme")
	for i := range 400 {
		conn, err := net.DialTimeout("tcp", p.Address(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if i%2 == 0 {
			continue // it says nothing at all
		}
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		r, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("connection %d: %+v, %v", i, r, err)
		}
	}
	fresh := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	for range 10 {
		for _, address := range []string{p.Address(), p.AdminAddress()} {
			for _, path := range []string{"/livez", "/readyz"} {
				r, err := fresh.Get("http://" + address + path)
				if err != nil {
					t.Fatal(err)
				}
				r.Body.Close()
				if r.StatusCode != http.StatusOK {
					t.Errorf("%s at %s is answered %s", path, address, r.Status)
				}
			}
		}
	}
	as(t, p, key).add("thing-1", "Added", `{"n":1}`)
	awaitMetric(t, p, `manifold_connections_refused_total{listener="public"} 0`)
}

// A client without a key has little time to send a body.
func TestSlowBodyWithoutAKey(t *testing.T) {
	t.Parallel()
	p := start(t, configuration(pgtest.Database(t)))
	conn, err := net.Dial("tcp", p.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	began := time.Now()
	if err := conn.SetDeadline(began.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "POST /v1/append HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 200000\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("its connection was open for %s", took)
	}
}

// asks makes one request with a key.
func asks(t *testing.T, address, method, path, key string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(text)
}

// The admin listener serves what the operator needs. Profiles are available only there, and tenants have no access.
func TestAdminListener(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	open := start(t, configuration(db))
	key := newTenant(t, open, "acme")
	exclusive := configuration(db)
	exclusive.Admin.Exclusive = true
	closed := start(t, exclusive)
	worker := configuration(db)
	worker.Role = config.RoleWorker
	working := start(t, worker)
	alone := configuration(db)
	alone.Admin.Listen = config.NoListener
	without := start(t, alone)
	if address := without.AdminAddress(); address != "" {
		t.Errorf("a process without an admin listener has one at %s", address)
	}
	for _, c := range []struct {
		process string
		of      *service.Process
		admin   bool
		path    string
		key     string
		want    int
	}{
		{"any", open, true, "/livez", "", 200},
		{"any", open, true, "/readyz", "", 200},
		{"any", open, true, "/metrics", "", 200},
		{"any", open, true, "/v1/tenants", operatorKey, 200},
		{"any", open, true, "/v1/tenants", "", 401},
		{"any", open, true, "/v1/projections", key, 403},
		{"any", open, true, "/v1/ws", "", 403},
		{"any", open, true, "/debug/pprof/", operatorKey, 200},
		{"any", open, true, "/debug/pprof/goroutine?debug=1", operatorKey, 200},
		{"any", open, true, "/debug/pprof/", key, 403},
		{"any", open, true, "/debug/pprof/", "", 401},
		{"any", open, true, "/debug/pprof/cmdline", "", 401},
		{"any", open, false, "/livez", "", 200},
		{"any", open, false, "/readyz", "", 200},
		{"any", open, false, "/metrics", "", 404},
		{"any", open, false, "/debug/pprof/", operatorKey, 404},
		{"any", open, false, "/v1/tenants", operatorKey, 200},
		{"any", open, false, "/v1/projections", key, 200},
		{"exclusive", closed, false, "/v1/tenants", operatorKey, 403},
		{"exclusive", closed, false, "/v1/projections", key, 200},
		{"exclusive", closed, true, "/v1/tenants", operatorKey, 200},
		{"worker", working, true, "/metrics", "", 200},
		{"worker", working, true, "/debug/pprof/", operatorKey, 200},
		{"worker", working, true, "/v1/tenants", operatorKey, 404},
		{"worker", working, false, "/readyz", "", 200},
		{"worker", working, false, "/metrics", "", 404},
		{"worker", working, false, "/debug/pprof/", operatorKey, 404},
		{"without", without, false, "/metrics", "", 200},
		{"without", without, false, "/debug/pprof/", operatorKey, 404},
	} {
		address := c.of.Address()
		if c.admin {
			address = c.of.AdminAddress()
		}
		if status, body := asks(t, address, http.MethodGet, c.path, c.key); status != c.want {
			t.Errorf("%s, admin %t: %s is answered %d, want %d: %.300s", c.process, c.admin, c.path, status, c.want, body)
		}
	}
}

// A client with too many connections gets an error in the API's format.
func TestRefusedConnection(t *testing.T) {
	t.Parallel()
	c := configuration(pgtest.Database(t))
	c.Limits.AddressConnections = 2
	p := start(t, c)
	key := newTenant(t, p, "acme")
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for range 2 {
		conn, err := net.Dial("tcp", p.Address())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if _, err := fmt.Fprintf(conn, "GET /v1/subscribe/$all HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", key); err != nil {
			t.Fatal(err)
		}
		if r, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || r.StatusCode != http.StatusOK {
			t.Fatalf("a follower is answered %+v, %v", r, err)
		}
	}
	r, err := (&http.Client{Transport: &http.Transport{}}).Get("http://" + p.Address() + "/livez")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusTooManyRequests || r.Header.Get("Retry-After") == "" || !strings.Contains(string(body), `"code":"too-many-requests"`) {
		t.Errorf("it is answered %s, %s, %v", r.Status, body, err)
	}
	if status, _ := getAt(t, p.AdminAddress(), "/livez"); status != http.StatusOK {
		t.Errorf("the admin listener answers %d", status)
	}
}

// certificate writes a certificate for 127.0.0.1 with its key, and returns the client's side of it.
func certificate(t *testing.T) (files config.TLS, trusted *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "manifold"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	text, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	files = config.TLS{CertFile: filepath.Join(folder, "tls.crt"), KeyFile: filepath.Join(folder, "tls.key")}
	for file, block := range map[string]*pem.Block{files.CertFile: {Type: "CERTIFICATE", Bytes: text}, files.KeyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	parsed, err := x509.ParseCertificate(text)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return files, &tls.Config{RootCAs: pool}
}

// Everything works over TLS: requests and followers over HTTP/2, WebSockets, and the admin listener. The start
// refuses files that contain no certificate.
func TestTLS(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	key := newTenant(t, start(t, configuration(db)), "acme")
	files, trusted := certificate(t)
	c := configuration(db)
	c.TLS, c.Admin.TLS = files, files
	p := start(t, c)
	transport := &http.Transport{TLSClientConfig: trusted, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	https := &http.Client{Transport: transport, Timeout: time.Minute}
	ask := func(method, address, path, key, body string) *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, "https://"+address+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+key)
		request.Header.Set("Content-Type", "application/json")
		r, err := https.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Body.Close() })
		if r.ProtoMajor != 2 {
			t.Errorf("%s is answered by %s", path, r.Proto)
		}
		return r
	}
	follower := ask("GET", p.Address(), "/v1/subscribe/$all?from=start", key, "")
	if r := ask("POST", p.Address(), "/v1/streams/thing-1/events", key, `[{"type":"Added","data":{"n":1}}]`); r.StatusCode != http.StatusCreated {
		t.Errorf("an append is answered %s", r.Status)
	}
	lines := bufio.NewScanner(follower.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), `"Added"`) {
	}
	if err := lines.Err(); err != nil || !strings.Contains(lines.Text(), `"Added"`) {
		t.Errorf("the follower gets %q, %v", lines.Text(), err)
	}
	if r := ask("GET", p.AdminAddress(), "/v1/tenants", operatorKey, ""); r.StatusCode != http.StatusOK {
		t.Errorf("the operator is answered %s", r.Status)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	socket, _, err := websocket.Dial(ctx, "wss://"+p.Address()+"/v1/ws", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + key}}, HTTPClient: &http.Client{Transport: &http.Transport{TLSClientConfig: trusted.Clone()}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.CloseNow() //nolint:errcheck // the test is over
	if err := socket.Write(ctx, websocket.MessageText, []byte(`{"op":"PING","id":"1"}`)); err != nil {
		t.Fatal(err)
	}
	if _, answer, err := socket.Read(ctx); err != nil {
		t.Errorf("the gateway answers %s, %v", answer, err)
	}
	follower.Body.Close()

	broken := configuration(db)
	broken.TLS = config.TLS{CertFile: files.KeyFile, KeyFile: files.CertFile}
	if q, err := service.Start(t.Context(), broken, slog.New(slog.DiscardHandler), service.Extensions{}); err == nil || !strings.Contains(err.Error(), files.KeyFile) {
		if err == nil {
			stop(t, q)
		}
		t.Errorf("files that are no certificate: %v", err)
	}
}

// A tenant may have only a limited number of requests, followers and WebSockets under way. Others do not notice.
func TestRequestsOfOneTenant(t *testing.T) {
	t.Parallel()
	c := configuration(pgtest.Database(t))
	c.Limits.TenantRequests = 2
	p := start(t, c)
	key, other := newTenant(t, p, "acme"), newTenant(t, p, "umbrella")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	dial := func(ctx context.Context, header http.Header) (*websocket.Conn, int) {
		t.Helper()
		socket, r, err := websocket.Dial(ctx, "ws://"+p.Address()+"/v1/ws", &websocket.DialOptions{HTTPHeader: header})
		if err != nil {
			return nil, r.StatusCode
		}
		t.Cleanup(func() { socket.CloseNow() }) //nolint:errcheck // the test is over
		return socket, r.StatusCode
	}
	says := func(socket *websocket.Conn, key string) (answer string) {
		t.Helper()
		late, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := socket.Write(late, websocket.MessageText, fmt.Appendf(nil, `{"op":"AUTH","id":"1","key":%q}`, key)); err != nil {
			t.Fatal(err)
		}
		_, text, err := socket.Read(late)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	unknown, _ := dial(ctx, nil)
	if answer := says(unknown, key); !strings.Contains(answer, `"OK"`) {
		t.Fatalf("AUTH is answered %s", answer)
	}
	if _, status := dial(ctx, http.Header{"Authorization": {"Bearer " + key}}); status != http.StatusSwitchingProtocols {
		t.Fatalf("a WebSocket is answered %d", status)
	}
	status, body := asks(t, p.Address(), http.MethodGet, "/v1/projections", key)
	if status != http.StatusTooManyRequests || !strings.Contains(body, "too many requests, followers and WebSockets of this tenant") {
		t.Errorf("a third is answered %d %s", status, body)
	}
	if _, status := dial(ctx, http.Header{"Authorization": {"Bearer " + key}}); status != http.StatusTooManyRequests {
		t.Errorf("a third WebSocket is answered %d", status)
	}
	late, _ := dial(ctx, nil)
	if answer := says(late, key); !strings.Contains(answer, "too-many-requests") {
		t.Errorf("a third WebSocket's AUTH is answered %s", answer)
	}
	if status, body := asks(t, p.Address(), http.MethodGet, "/v1/projections", other); status != http.StatusOK {
		t.Errorf("another tenant is answered %d %s", status, body)
	}
	unknown.CloseNow() //nolint:errcheck // it is of no interest how
	for deadline := time.Now().Add(time.Minute); ; {
		if status, _ := asks(t, p.Address(), http.MethodGet, "/v1/projections", key); status == http.StatusOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("an ended WebSocket is still counted")
		}
	}
	if answer := says(late, key); !strings.Contains(answer, `"OK"`) {
		t.Errorf("tried again, AUTH is answered %s", answer)
	}
}
