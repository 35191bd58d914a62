package service

import (
	"net"
	"os"
)

// memberName returns the process's name for people: its host and the address on which it listens.
func (p *Process) memberName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	if _, port, err := net.SplitHostPort(p.Address()); err == nil {
		return net.JoinHostPort(host, port)
	}
	return host
}
