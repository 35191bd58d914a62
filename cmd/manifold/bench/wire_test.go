package bench

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A service closes a connection that is idle while a benchmark loads events.
func TestWireRedials(t *testing.T) {
	t.Parallel()
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)
	}))
	defer service.Close()
	w, err := dial(service.URL, "key")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { w.close() }()
	request := func() error {
		_, err := w.do("GET", "/", "", nil, http.StatusNoContent)
		return err
	}
	if err := request(); err != nil {
		t.Fatal(err)
	}
	service.CloseClientConnections()
	w.used = time.Now().Add(-redialAfter - time.Second)
	if err := request(); err != nil {
		t.Fatal(err)
	}
}
