package listen

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// issue writes a new certificate and its key to a folder.
func issue(t *testing.T, folder string, serial int64) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "manifold"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}

// notes is a log handler whose entries a test can wait for.
type notes struct {
	mu    sync.Mutex
	text  bytes.Buffer
	wrote chan struct{}
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	select {
	case n.wrote <- struct{}{}:
	default:
	}
	return n.text.Write(p)
}

func (n *notes) await(t *testing.T, want string) {
	t.Helper()
	for late := time.After(patience); ; {
		n.mu.Lock()
		said := n.text.String()
		n.mu.Unlock()
		if strings.Contains(said, want) {
			return
		}
		select {
		case <-n.wrote:
		case <-late:
			t.Fatalf("the log lacks %q:\n%s", want, said)
		}
	}
}

// A changed certificate is served without a restart. A broken one is reported, and the previous one stays in use.
func TestCertificateReload(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	certFile, keyFile := issue(t, folder, 1)
	log := &notes{wrote: make(chan struct{}, 1)}
	certificate, err := LoadCertificate(certFile, keyFile, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		certificate.Watch(ctx)
	}()
	defer func() {
		stop()
		<-watched
	}()
	b := serve(t, Config{Connections: 10, Certificate: certificate}, nil)
	serial := func() int64 {
		t.Helper()
		c, err := tls.Dial("tcp", b.address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
	}
	if got := serial(); got != 1 {
		t.Errorf("it serves number %d", got)
	}
	if err := os.WriteFile(certFile, []byte("half a certifi"), 0o600); err != nil {
		t.Fatal(err)
	}
	log.await(t, "cannot be used")
	if got := serial(); got != 1 {
		t.Errorf("with a broken file it serves number %d", got)
	}
	issue(t, folder, 2)
	log.await(t, "is in use")
	if got := serial(); got != 2 {
		t.Errorf("after the change it serves number %d", got)
	}
	if c, err := tls.Dial("tcp", b.address, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}); err == nil {
		c.Close()
		t.Error("TLS 1.1 is taken")
	}
}

// Over HTTP/2, each request under way counts like a connection. Idle connections make room as usual.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	certFile, keyFile := issue(t, t.TempDir(), 1)
	certificate, err := LoadCertificate(certFile, keyFile, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	released := make(chan struct{})
	b := serve(t, Config{Connections: 3, Certificate: certificate}, released)
	client := func() *http.Client {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport, Timeout: 2 * patience}
	}
	get := func(c *http.Client, path string) (*http.Response, error) {
		r, err := c.Get("https://" + b.address + path)
		if err == nil {
			t.Cleanup(func() { r.Body.Close() })
		}
		return r, err
	}
	greedy := client()
	for range 3 {
		r, err := get(greedy, "/known/wait")
		if err != nil || r.StatusCode != 200 || r.ProtoMajor != 2 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if r, err := get(greedy, "/"); err != nil || r.StatusCode != 503 {
		t.Errorf("a fourth request: %+v, %v", r, err)
	}
	if s := b.Stats(); s.Open != 1 {
		t.Errorf("it is %+v", s)
	}
	close(released)
	b.settles(t, func(Stats) bool { return b.underWay() == 0 })
	// Responses that a client without a key does not read are ended for requests with a key.
	for range 2 * 3 {
		if r, err := get(greedy, "/endless"); err != nil || r.StatusCode != 200 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	for range 5 {
		if r, err := get(client(), "/known"); err != nil || r.StatusCode != 200 {
			t.Fatalf("another client: %+v, %v", r, err)
		}
	}
	b.settles(t, func(s Stats) bool { return b.endless.Load() == 0 && s.Open == 3 && s.Closed == 3 && s.Refused == 7 })
}
