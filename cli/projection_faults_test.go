package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// Each command about faults sends what its flags say, and prints the answer.
func TestFaultCommands(t *testing.T) {
	t.Parallel()
	const fault = `{"position":4,"eventId":"0190d3a4-5b6c-7def-8123-456789abcde0","where":"key","message":"no such field","at":"2026-03-01T10:00:00Z"}`
	const skipped = `{"position":4,"eventId":"0190d3a4-5b6c-7def-8123-456789abcde0","version":2,"lasting":true,"message":"no such\n field","reason":"old","by":"operator","at":"2026-03-01T10:00:00Z"}`
	for _, c := range []struct {
		args    []string
		request string
		status  int
		answer  string
		code    int
		want    []string
	}{
		{[]string{"retry", "orders"}, "POST /v1/projections/orders/retry", 202, `{"name":"orders","state":"running","build":1,"head":4}`, 0, []string{"orders: retrying"}},
		{[]string{"skip", "orders", "4", "--reason", "old"}, `POST /v1/projections/orders/skip {"position":4,"reason":"old"}`, 200, skipped, 0, []string{"orders: event 4", "is skipped from version 2 on"}},
		{[]string{"skip", "orders", "4x"}, "", 0, "", 1, []string{`"4x" is not a position`}},
		{[]string{"skipped", "orders"}, "GET /v1/projections/orders/skipped", 200, `{"skipped":[` + skipped + `]}`, 0, []string{"POSITION", "2+", "operator", "no such field"}},
		{[]string{"unskip", "orders", "4"}, "DELETE /v1/projections/orders/skipped/4", 204, "", 0, []string{"orders: event 4 is no longer skipped"}},
		{[]string{"unskip", "orders", "four"}, "", 0, "", 1, []string{"is not a position"}},
		{[]string{"parked", "orders"}, "GET /v1/projections/orders/parked", 200, `{"parked":[{"id":"order-1","events":3,"fault":` + fault + `}]}`, 0, []string{"order-1: 3 events wait\n", "  part:       key\n"}},
		{[]string{"replay", "orders"}, "POST /v1/projections/orders/parked/replay", 200, `{"documents":2,"events":7,"stillParked":0}`, 0, []string{"7 events took effect, 2 documents are no longer parked"}},
		{[]string{"replay", "orders", "order/1"}, "POST /v1/projections/orders/parked/order%2F1/replay", 200, `{"documents":0,"events":0,"stillParked":1}`, 1, []string{"1 documents are still parked"}},
		{[]string{"discard", "orders", "order-1"}, "", 0, "", 1, []string{"--yes"}},
		{[]string{"discard", "orders", "order-1", "--yes"}, "DELETE /v1/projections/orders/parked/order-1", 204, "", 0, nil},
	} {
		var got string
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			body, _ := io.ReadAll(request.Body)
			got = strings.TrimSpace(request.Method + " " + request.URL.EscapedPath() + " " + string(body))
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.answer)
		}))
		t.Cleanup(service.Close)
		o := run(t, []string{"MANIFOLD_URL=" + service.URL, "MANIFOLD_KEY=k"}, nil, append([]string{"projection"}, c.args...)...)
		if o.code != c.code || got != c.request {
			t.Errorf("%v sends %q: %+v", c.args, got, o)
		}
		for _, want := range c.want {
			if !strings.Contains(o.out+o.err, want) {
				t.Errorf("%v says %+v; it should say %q", c.args, o, want)
			}
		}
	}
}
