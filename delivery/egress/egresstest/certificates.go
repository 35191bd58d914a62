package egresstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"
)

// Certificates returns TLS configurations with which a server at 127.0.0.1 and its client authenticate each other. One
// authority has signed both certificates.
func Certificates(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	sign := func(serial int64, change func(*x509.Certificate), by *x509.Certificate, with *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(err)
		c := &x509.Certificate{
			SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "test"},
			NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		}
		change(c)
		if by == nil {
			by, with = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, with)
		must(err)
		made, err := x509.ParseCertificate(der)
		must(err)
		return made, key
	}
	authority, authorityKey := sign(1, func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign
	}, nil, nil)
	pool := x509.NewCertPool()
	pool.AddCert(authority)
	pair := func(serial int64) tls.Certificate {
		c, key := sign(serial, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} }, authority, authorityKey)
		return tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key, Leaf: c}
	}
	server = &tls.Config{Certificates: []tls.Certificate{pair(2)}, ClientCAs: pool}
	client = &tls.Config{Certificates: []tls.Certificate{pair(3)}, RootCAs: pool}
	return server, client
}
