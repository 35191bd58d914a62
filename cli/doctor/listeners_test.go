package doctor

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/config"
)

// expiring writes a certificate with its key that is good for so long.
func expiring(t *testing.T, left time.Duration) (files config.TLS) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(left)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	files = config.TLS{CertFile: filepath.Join(folder, "tls.crt"), KeyFile: filepath.Join(folder, "tls.key")}
	for file, block := range map[string]*pem.Block{files.CertFile: {Type: "CERTIFICATE", Bytes: cert}, files.KeyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// The doctor reports problems of a listener before the service starts, or before a client notices them.
func TestDoctorOfListeners(t *testing.T) {
	t.Parallel()
	good := expiring(t, 90*24*time.Hour)
	for _, c := range []struct {
		listen, admin string
		tls           config.TLS
		check         string
		verdict       Verdict
		want          string
	}{
		{"127.0.0.1:8080", "", config.TLS{}, "listen", Fine, "127.0.0.1:8080"},
		{":8080", "", config.TLS{}, "listen", Warning, "in clear text"},
		{":8080", ":9080", config.TLS{}, "admin.listen", Warning, "in clear text"},
		{":8080", "", good, "listen", Fine, "with a certificate until"},
		{":8080", "", config.TLS{CertFile: good.KeyFile, KeyFile: good.CertFile}, "listen", Failure, "no certificate with its key"},
		{":8080", "", expiring(t, 24*time.Hour), "listen", Warning, "expires at"},
		{":8080", "", expiring(t, -time.Minute), "listen", Failure, "expired at"},
	} {
		d := &doctor{config: config.Default()}
		d.config.Listen, d.config.Admin.Listen, d.config.TLS = c.listen, c.admin, c.tls
		d.listeners(t.Context())
		got := found(t, d.findings, c.check)
		if got.Verdict != c.verdict || !strings.Contains(got.Message, c.want) {
			t.Errorf("%+v: it finds %+v", c, got)
		}
	}
}
