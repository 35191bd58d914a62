package socket

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A client that reads slowly gets a large message. A client that reads nothing is disconnected.
func TestASlowReaderIsNoDeadOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const size = 1 << 20
		ours, theirs := net.Pipe()
		conn := &netConn{Conn: ours, stall: 30 * time.Second}
		read := make(chan int)
		go func() {
			total := 0
			for total < size {
				<-time.After(20 * time.Second) // by the clock of the bubble
				n, err := io.CopyN(io.Discard, theirs, 64<<10)
				if total += int(n); err != nil {
					break
				}
			}
			read <- total
		}()
		began := time.Now()
		if err := conn.send(make([]byte, size)); err != nil {
			t.Fatalf("the message is given up after %s: %v", time.Since(began), err)
		}
		if got := <-read; got != size {
			t.Errorf("%d bytes came", got)
		}
		began = time.Now()
		if err := conn.send(make([]byte, size)); err == nil || time.Since(began) != conn.stall {
			t.Errorf("nobody reads, and that is %v after %s", err, time.Since(began))
		}
	})
}
