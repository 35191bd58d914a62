package proxy

import (
	"io"
	"net"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// A client keeps sending through a network that hangs and heals: its connection ends, and nothing leaks.
func TestHangAndHeal(t *testing.T) {
	defer goleak.VerifyNone(t)
	t.Run("connections", func(t *testing.T) {
		p := New(t, echoServer(t))
		for range 5 {
			var clients sync.WaitGroup
			for range 4 {
				client, err := net.Dial("tcp", p.Address())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := client.Write([]byte("x")); err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
				clients.Go(func() {
					defer client.Close()
					go io.Copy(io.Discard, client)
					for block := make([]byte, 1000); ; {
						if _, err := client.Write(block); err != nil {
							return
						}
					}
				})
			}
			p.Hang(ToServer)
			p.Hang(ToClient)
			p.Heal()
			clients.Wait()
		}
	})
}

// echoServer returns what it receives, until the test ends.
func echoServer(t *testing.T) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer connection.Close()
				_, _ = io.Copy(connection, connection) // the proxy ends it
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
	return listener.Addr().String()
}
