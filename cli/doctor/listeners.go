package doctor

import (
	"context"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/listen"
)

// expiresSoon is how long before its expiry a certificate should have been renewed.
const expiresSoon = 7 * 24 * time.Hour

// listeners checks how the service is reached: whether its certificates are usable, and whether it needs any.
func (d *doctor) listeners(context.Context) {
	d.listener("listen", d.config.Listen, d.config.TLS, d.config.Exposed(),
		"set tls.certFile and tls.keyFile, or use a proxy with a certificate, and add it to proxies.trusted")
	if address := d.config.AdminListen(); address != "" {
		d.listener("admin.listen", address, d.config.Admin.TLS, d.config.AdminExposed(), "keep it in a private network, or set admin.tls.certFile and admin.tls.keyFile")
	}
}

// listener checks one listener. exposed means that other machines can reach it without TLS, and remedy is what to do
// in that case.
func (d *doctor) listener(check, address string, files config.TLS, exposed bool, remedy string) {
	switch {
	case exposed:
		d.warn(check, fmt.Sprintf("other machines reach %s without TLS, so keys cross the network in clear text", address), remedy)
		return
	case files.CertFile == "":
		d.ok(check, "%s", address)
		return
	}
	certificate, err := listen.LoadCertificate(files.CertFile, files.KeyFile, quietLog)
	if err != nil {
		d.fail(check, err.Error(), "provide a certificate and its key as PEM; the service does not start without them")
		return
	}
	until := certificate.Until().UTC().Format(time.RFC3339)
	switch left := time.Until(certificate.Until()); {
	case left <= 0:
		d.fail(check, "the certificate expired at "+until, "renew it")
	case left < expiresSoon:
		d.warn(check, "the certificate expires at "+until, "renew it; a running service loads the new files by itself")
	default:
		d.ok(check, "%s, with a certificate until %s", address, until)
	}
}
