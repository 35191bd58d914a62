package service_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/manifold-es/manifold/embedded/pgtest"
)

// A process that stops disconnects its followers in order and promptly, and waits for them, even for one that does
// not answer.
func TestStopLetsFollowersGo(t *testing.T) {
	t.Parallel()
	p := start(t, configuration(pgtest.Database(t)))
	key := newTenant(t, p, "one")
	as(t, p, key).add("order-1", "Placed", `{}`)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	header := http.Header{"Authorization": {"Bearer " + key}}
	request, err := http.NewRequestWithContext(ctx, "GET", "http://"+p.Address()+"/v1/subscribe/$all", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	lines, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer lines.Body.Close()
	dial := func() *websocket.Conn {
		t.Helper()
		conn, _, err := websocket.Dial(ctx, "ws://"+p.Address()+"/v1/subscribe/$all", &websocket.DialOptions{HTTPHeader: header})
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	reads, silent := dial(), dial()
	defer reads.CloseNow()
	defer silent.CloseNow()
	if _, _, err := reads.Read(ctx); err != nil {
		t.Fatal(err)
	}

	closed := make(chan error, 1)
	go func() {
		for {
			if _, _, err := reads.Read(ctx); err != nil {
				closed <- err
				return
			}
		}
	}()
	began := time.Now()
	stop(t, p)
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %s", took)
	}
	if err := <-closed; websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the socket ends with %v", err)
	}
	if _, err := io.ReadAll(lines.Body); err != nil {
		t.Errorf("the lines end with %v", err)
	}
}
