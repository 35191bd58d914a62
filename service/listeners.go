package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/config"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/listen"
)

// adminConnections is the largest number of concurrent connections of the admin listener.
const adminConnections = 256

// listener is one of the process's addresses, with its server.
type listener struct {
	*listen.Listener
	server *http.Server
}

// handlers are the handlers of the process's public and admin addresses.
type handlers struct{ public, admin http.Handler }

// listen opens the process's listeners. They answer that the process is waiting, until answer is called. background
// ends with the process.
func (p *Process) listen(background context.Context) error {
	p.notReady()
	c := p.config
	networks, err := c.Proxies.Networks()
	if err != nil {
		return fmt.Errorf("proxies.trusted: %w", err)
	}
	p.public, err = p.open(background, c.TLS, listen.Config{
		Address: c.Listen, Connections: p.connections(), PerAddress: c.Limits.AddressConnections,
		Proxies: listen.Proxies{Trusted: networks, Protocol: c.Proxies.Protocol, Header: c.Proxies.Header},
	}, func(h *handlers) http.Handler { return h.public })
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	if c.Exposed() {
		p.log.Warn("keys and events cross the network unencrypted: set tls.certFile, or listen behind a proxy with a certificate and name it in proxies.trusted", "listen", c.Listen)
	}
	if c.AdminListen() == "" {
		return nil
	}
	p.admin, err = p.open(background, c.Admin.TLS, listen.Config{Address: c.AdminListen(), Connections: adminConnections},
		func(h *handlers) http.Handler { return h.admin })
	if err != nil {
		return fmt.Errorf("admin.listen: %w", err)
	}
	if c.AdminExposed() {
		p.log.Warn("the admin listener exposes metrics, and the operator's key crosses the network unencrypted: keep it within a private network, or set admin.tls", "listen", c.AdminListen())
	}
	return nil
}

// connections returns limits.connections, or less if the process may not open as many files. Some files are reserved
// for databases and the admin listener.
func (p *Process) connections() int {
	wanted := p.config.Limits.Connections
	files := listen.MaxFiles()
	if files == 0 || wanted <= files/4*3 {
		return wanted
	}
	most := max(1, files/4*3)
	p.log.Warn("the process may not have enough files open for limits.connections: raise its limit (ulimit -n)", "connections", wanted, "files", files, "used", most)
	return most
}

// open opens one listener and serves it with the handler that pick returns.
func (p *Process) open(background context.Context, files config.TLS, c listen.Config, pick func(*handlers) http.Handler) (*listener, error) {
	if files.CertFile != "" {
		certificate, err := listen.LoadCertificate(files.CertFile, files.KeyFile, p.log)
		if err != nil {
			return nil, fmt.Errorf("the certificate: %w", err)
		}
		p.background.spawn("watch the certificate", func() { certificate.Watch(background) })
		c.Certificate = certificate
	}
	full := domain.Errorf(domain.CodeOverloaded, "", "the service has too many connections; try again later")
	crowded := domain.Errorf(domain.CodeTooManyRequests, "", "your address has %d connections or requests, the most it may have; reuse them, or close some", c.PerAddress)
	c.Full, c.Crowded = problem.RawRefusal(full), problem.RawRefusal(crowded)
	inner, err := listen.Open(c)
	if err != nil {
		return nil, err
	}
	answer := http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) { pick(p.handlers.Load()).ServeHTTP(w, request) })
	l := &listener{Listener: inner, server: &http.Server{
		Handler: inner.Limit(answer, func(w http.ResponseWriter, request *http.Request, isCrowded bool) {
			if isCrowded {
				problem.Refuse(w, request, crowded)
			} else {
				problem.Refuse(w, request, full)
			}
		}),
		ErrorLog:    slog.NewLogLogger(p.log.Handler(), slog.LevelDebug), // clients may disconnect
		BaseContext: func(net.Listener) context.Context { return p.requests },
	}}
	p.serving.Go(func() {
		if err := l.Serve(l.server); !errors.Is(err, http.ErrServerClosed) {
			p.fail(fmt.Errorf("answer requests: %w", err))
		}
	})
	return l, nil
}

// notReady makes the listeners answer that the process is waiting for its database.
func (p *Process) notReady() {
	reason := func() string {
		if reason := p.waiting.Load(); reason != nil {
			return *reason
		}
		return "the process has just started"
	}
	waiting := problem.NotReady("database", reason)
	p.handlers.Store(&handlers{public: waiting, admin: waiting})
}

// answer makes the listeners answer requests from now on.
func (p *Process) answer() {
	h := &handlers{
		public: p.answering.requests(p.metrics.CountInFlight(p.api.Handler())),
		admin:  p.answering.requests(p.metrics.CountInFlight(p.api.AdminHandler())),
	}
	if !p.config.Role.Web() {
		h.public, h.admin = onlyHealth(h.public), onlyHealth(h.admin)
	}
	p.handlers.Store(h)
}

// closeListeners closes the listeners and every connection.
func (p *Process) closeListeners() error {
	var wrong []error
	for _, l := range []*listener{p.public, p.admin} {
		if l != nil {
			wrong = append(wrong, l.server.Close())
		}
	}
	return errors.Join(wrong...)
}

// onlyHealth allows only probe and metrics requests, for a process that answers no others.
func onlyHealth(all http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		switch path := request.URL.Path; {
		case path == "/livez", path == "/readyz", path == "/metrics", strings.HasPrefix(path, "/debug/pprof/"):
			all.ServeHTTP(w, request)
		default:
			http.Error(w, "this process has the role worker; ask one with the role web", http.StatusNotFound)
		}
	})
}
