package manifold

import (
	"errors"
	"net"
	"strings"
	"testing"
)

// A connection beyond the limit waits until another one is closed, and closing the listener ends the waiting.
func TestLimitConnections(t *testing.T) {
	t.Parallel()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limitConnections(plain, 2)
	dial := func() {
		t.Helper()
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
	}
	accepted := make(chan net.Conn)
	failed := make(chan error, 1)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				failed <- err
				return
			}
			accepted <- conn
		}
	}()
	dial()
	dial()
	dial()
	first, second := <-accepted, <-accepted
	select {
	case <-accepted:
		t.Fatal("a third connection is accepted")
	default:
	}
	// Closing twice gives one place back.
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	first.Close()
	third := <-accepted
	dial()
	select {
	case <-accepted:
		t.Fatal("a connection beyond the limit is accepted")
	default:
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed, it fails with %v", err)
	}
	second.Close()
	third.Close()
}

// What is wrong with an address is said in words, with what to write instead.
func TestListenError(t *testing.T) {
	t.Parallel()
	for _, address := range []string{"8080", "127.0.0.1:99999"} {
		_, err := net.Listen("tcp", address)
		if err == nil {
			t.Fatalf("%s can be listened on", address)
		}
		if said := listenError(address, err).Error(); !strings.Contains(said, `"`+address+`" is no address to listen on`) || !strings.Contains(said, "write 127.0.0.1:8080") {
			t.Errorf("%s: %s", address, said)
		}
	}
}
