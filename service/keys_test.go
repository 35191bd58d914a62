package service_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// A key with networks works only for clients there, by the address that a trusted proxy reports.
func TestKeysWorkFromTheirNetworks(t *testing.T) {
	t.Parallel()
	c := configuration(pgtest.Database(t))
	c.Proxies.Trusted = []string{"127.0.0.1"}
	p := start(t, c)
	admin := as(t, p, newTenant(t, p, "acme"))
	made, err := admin.CreateKeyWithResponse(t.Context(), client.NewKey{Name: "office", Scopes: []string{"events:read"}, Networks: []string{"203.0.113.0/24"}})
	if err != nil || made.JSON201 == nil {
		t.Fatalf("create the key: %v, %s", err, made.Body)
	}
	key := made.JSON201.Key
	from := func(address string) client.ClientOption {
		return client.WithRequestEditorFn(client.RequestEditorFn(func(_ context.Context, request *http.Request) error {
			if address != "" {
				request.Header.Set("X-Forwarded-For", address)
			}
			return nil
		}))
	}
	for address, want := range map[string]int{"203.0.113.7": 200, "198.51.100.1, 203.0.113.7": 200, "203.0.113.7, 198.51.100.1": 403, "": 403} {
		reader, err := client.NewClientWithResponses("http://"+p.Address(), client.WithKey(key), from(address))
		if err != nil {
			t.Fatal(err)
		}
		got, err := reader.ReadAllWithResponse(t.Context(), nil)
		if err != nil || got.StatusCode() != want {
			t.Fatalf("from %q: %v, %s", address, err, got.Body)
		}
		if want == 403 && !strings.Contains(string(got.Body), "198.51.100.1") && !strings.Contains(string(got.Body), "is unknown") {
			t.Errorf("from %q: %s", address, got.Body)
		}
		header := http.Header{"Authorization": {"Bearer " + key}}
		if address != "" {
			header.Set("X-Forwarded-For", address)
		}
		socket, response, err := websocket.Dial(t.Context(), "ws://"+p.Address()+"/v1/ws", &websocket.DialOptions{HTTPHeader: header})
		if (err == nil) != (want == 200) || err != nil && response.StatusCode != want {
			t.Errorf("a gateway from %q: %v", address, err)
		}
		if socket != nil {
			_ = socket.CloseNow()
		}
	}
}
