package config

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
)

// Admin configures the listener for probes, metrics, profiles and the operator.
type Admin struct {
	Listen    string `yaml:"listen" env:"LISTEN"`       // host:port; NoListener: none; empty: see Config.AdminListen
	Exclusive bool   `yaml:"exclusive" env:"EXCLUSIVE"` // the operator's keys work only here
	TLS       TLS    `yaml:"tls" envPrefix:"TLS_"`
}

// NoListener as Admin.Listen turns the admin listener off. Then Config.Listen also answers /metrics.
const NoListener = "none"

// adminOffset is added to the port of Config.Listen to get the admin listener's default port.
const adminOffset = 1000

// AdminListen returns the address of the admin listener, or "" if there is none. The default for Admin.Listen is the
// loopback address. Its port is 1000 above that of Listen, or any free port if Listen has port 0.
func (c *Config) AdminListen() string {
	switch c.Admin.Listen {
	case NoListener:
		return ""
	case "":
		_, name, err := net.SplitHostPort(c.Listen)
		if err != nil {
			return ""
		}
		port, err := net.LookupPort("tcp", name)
		switch {
		case err != nil:
			return ""
		case port > 65535-adminOffset:
			port -= adminOffset
		case port > 0:
			port += adminOffset
		}
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	}
	return c.Admin.Listen
}

// TLS is a listener's certificate and key, as PEM files. They are read again when they change.
type TLS struct {
	CertFile string `yaml:"certFile" env:"CERT_FILE"` // with its intermediate certificates; empty: no TLS
	KeyFile  string `yaml:"keyFile" env:"KEY_FILE"`
}

// Proxies are the reverse proxies and load balancers in front of the service that it trusts to report a client's
// address.
type Proxies struct {
	Trusted  []string `yaml:"trusted" env:"TRUSTED"`   // networks and addresses
	Protocol bool     `yaml:"protocol" env:"PROTOCOL"` // they send the PROXY protocol
	Header   string   `yaml:"header" env:"HEADER"`     // HeaderForwardedFor or HeaderForwarded: the header with the client's address
}

// Proxies write clients' addresses in these headers.
const (
	HeaderForwardedFor = "X-Forwarded-For"
	HeaderForwarded    = "Forwarded"
)

// Networks returns the networks of the trusted proxies.
func (p *Proxies) Networks() ([]netip.Prefix, error) {
	networks := make([]netip.Prefix, 0, len(p.Trusted))
	for _, text := range p.Trusted {
		if address, err := netip.ParseAddr(text); err == nil {
			networks = append(networks, netip.PrefixFrom(address.Unmap(), address.Unmap().BitLen()))
			continue
		}
		network, err := netip.ParsePrefix(text)
		if err != nil {
			return nil, fmt.Errorf("%q is neither an address nor a network such as 10.0.0.0/8", text)
		}
		networks = append(networks, network.Masked())
	}
	return networks, nil
}

// checkListeners reports settings of the listeners that cannot work.
func (c *Config) checkListeners(refuse func(setting, format string, args ...any)) {
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		refuse("listen", "%q is not host:port; write 127.0.0.1:8080, or :8080 for every address", c.Listen)
	}
	if _, _, err := net.SplitHostPort(c.Admin.Listen); err != nil && c.Admin.Listen != "" && c.Admin.Listen != NoListener {
		refuse("admin.listen", "%q is not host:port; write 127.0.0.1:9080, or none for no admin listener", c.Admin.Listen)
	}
	if c.Admin.Exclusive && c.Admin.Listen == NoListener {
		refuse("admin.exclusive", "without an admin listener the operator's keys would work nowhere")
	}
	for setting, files := range map[string]TLS{"tls": c.TLS, "admin.tls": c.Admin.TLS} {
		if (files.CertFile == "") != (files.KeyFile == "") {
			refuse(setting, "give both certFile and keyFile, or neither")
		}
		for name, file := range map[string]string{"certFile": files.CertFile, "keyFile": files.KeyFile} {
			if _, err := os.Stat(file); file != "" && err != nil {
				refuse(setting+"."+name, "%s", err)
			}
		}
	}
	if _, err := c.Proxies.Networks(); err != nil {
		refuse("proxies.trusted", "%s", err)
	}
	if c.Proxies.Protocol && len(c.Proxies.Trusted) == 0 {
		refuse("proxies.protocol", "it needs proxies.trusted: the addresses of those that may send it")
	}
	if c.Proxies.Header != HeaderForwardedFor && c.Proxies.Header != HeaderForwarded {
		refuse("proxies.header", "%q is not supported; write %s or %s", c.Proxies.Header, HeaderForwardedFor, HeaderForwarded)
	}
}

// Exposed reports whether other machines can reach the service without TLS and without a trusted proxy in front of
// it.
func (c *Config) Exposed() bool {
	if c.TLS.CertFile != "" || len(c.Proxies.Trusted) > 0 {
		return false
	}
	return !isLoopback(c.Listen)
}

// AdminExposed reports whether other machines can reach the admin listener without TLS.
func (c *Config) AdminExposed() bool {
	listen := c.AdminListen()
	return listen != "" && c.Admin.TLS.CertFile == "" && !isLoopback(listen)
}

// isLoopback reports whether only this machine can reach host:port.
func isLoopback(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil || host == "localhost" {
		return err == nil
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}
