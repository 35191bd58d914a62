package manifold

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// listenError says what is wrong where an address cannot be listened on.
func listenError(address string, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("another program listens on %s: stop it, or choose another address (port 0 takes a free one)", address)
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("this user may not listen on %s: choose a port above 1023", address)
	}
	if wrong, ok := errors.AsType[*net.AddrError](err); ok {
		return fmt.Errorf("%q is no address to listen on (%s); write 127.0.0.1:8080, or :8080 for every address", address, wrong.Err)
	}
	return fmt.Errorf("listen on %s: %w", address, err)
}

// limitedListener accepts a connection only when fewer than its limit are open: the others wait in the system's queue.
type limitedListener struct {
	net.Listener
	places chan struct{}
	closed chan struct{}
	once   sync.Once
}

func limitConnections(l net.Listener, most int) net.Listener {
	return &limitedListener{Listener: l, places: make(chan struct{}, most), closed: make(chan struct{})}
}

func (l *limitedListener) Accept() (net.Conn, error) {
	select {
	case l.places <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.places
		return nil, err
	}
	return &limitedConn{Conn: conn, listener: l}, nil
}

func (l *limitedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	listener *limitedListener
	once     sync.Once
}

func (c *limitedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.listener.places })
	return err
}
