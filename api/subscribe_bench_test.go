package api_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// BenchmarkFollowers appends events one at a time, followed by 1,000 WebSockets of one tenant. An operation is one
// event that has reached all of them. Service, database and clients share the machine.
func BenchmarkFollowers(b *testing.B) {
	const followers = 1000
	w := newWorld(b, nil)
	a := w.tenant("one")
	var all sync.WaitGroup
	var caughtUp sync.WaitGroup
	caughtUp.Add(followers)
	var events, target atomic.Int64
	target.Store(-1)
	reached := make(chan struct{}, 1)
	for range followers {
		conn, err := net.Dial("tcp", strings.TrimPrefix(w.url, "http://"))
		must(b, err)
		request := a.request("GET", "/v1/subscribe/$all?from=end", nil)
		for name, value := range upgrade {
			request.Header.Set(name, value)
		}
		must(b, request.Write(conn))
		b.Cleanup(func() { conn.Close() })
		all.Go(func() {
			in := bufio.NewReaderSize(conn, 1<<14)
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					b.Error(err)
					return
				}
				if line == "\r\n" {
					break
				}
			}
			first := true
			for {
				size, err := skipFrame(in)
				switch {
				case err != nil:
					return
				case first:
					first = false
					caughtUp.Done()
				case size > 100 && events.Add(1) == target.Load(): // smaller ones report positions
					reached <- struct{}{}
				}
			}
		})
	}
	caughtUp.Wait()
	event := list{object{"type": "Happened", "data": object{"text": strings.Repeat("x", 200)}}}
	b.ResetTimer()
	const window = 50
	for n := 0; n < b.N; n += window {
		count := min(window, b.N-n)
		target.Store(events.Load() + int64(count)*followers)
		var appends sync.WaitGroup
		for i := range count {
			appends.Go(func() { a.post(fmt.Sprintf("/v1/streams/order-%d/events", n+i), event).want(201) })
		}
		appends.Wait()
		<-reached
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)*followers/b.Elapsed().Seconds(), "events/s")
}

// skipFrame reads a frame of a server, and returns the length of its payload in bytes.
func skipFrame(in *bufio.Reader) (size int, err error) {
	header, err := in.Peek(2)
	if err != nil {
		return 0, err
	}
	size, skip := int(header[1]), 2
	switch size {
	case 126:
		if header, err = in.Peek(4); err != nil {
			return 0, err
		}
		size, skip = int(binary.BigEndian.Uint16(header[2:])), 4
	case 127:
		if header, err = in.Peek(10); err != nil {
			return 0, err
		}
		size, skip = int(binary.BigEndian.Uint64(header[2:])), 10
	}
	_, err = in.Discard(skip + size)
	return size, err
}
