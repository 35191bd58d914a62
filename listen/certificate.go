package listen

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// checkInterval is how often the certificate's files are checked for changes.
const checkInterval = 2 * time.Second

// Certificate is a certificate and its key, from files that may change while it is in use.
type Certificate struct {
	certFile, keyFile string
	log               *slog.Logger
	current           atomic.Pointer[tls.Certificate]
	cert, key         []byte // the files' content when they were last read
}

// LoadCertificate reads a certificate with its chain, and its key. Both files are PEM.
func LoadCertificate(certFile, keyFile string, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, log: log}
	if _, err := c.load(); err != nil {
		return nil, err
	}
	return c, nil
}

// Until returns when the certificate in use expires.
func (c *Certificate) Until() time.Time { return c.current.Load().Leaf.NotAfter }

// load reads the files and uses their content if it is new. After a failure the previous certificate stays in use.
func (c *Certificate) load() (changed bool, err error) {
	cert, err := os.ReadFile(c.certFile)
	if err != nil {
		return false, err
	}
	key, err := os.ReadFile(c.keyFile)
	if err != nil {
		return false, err
	}
	if bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return false, nil
	}
	c.cert, c.key = cert, key // report broken content only once
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return false, fmt.Errorf("%s and %s are no certificate with its key: %w", c.certFile, c.keyFile, err)
	}
	c.current.Store(&pair)
	return true, nil
}

// Watch reloads the files when they change, until ctx ends.
func (c *Certificate) Watch(ctx context.Context) {
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	reported := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch changed, err := c.load(); {
		case err != nil && err.Error() != reported:
			reported = err.Error()
			c.log.Error("a changed certificate cannot be used; the one before stays in use", "certificate", c.certFile, "error", err)
		case changed:
			reported = ""
			c.log.Info("a changed certificate is in use", "certificate", c.certFile, "until", c.Until())
		}
	}
}

func (c *Certificate) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
}
