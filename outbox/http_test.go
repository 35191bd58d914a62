package outbox_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/outbox"
)

func rowsOf(t *testing.T, payloads ...string) []outbox.Row {
	t.Helper()
	var rows []outbox.Row
	for _, payload := range payloads {
		row, err := outbox.RowOf(outbox.Event{Topic: "t", Key: "k", Payload: json.RawMessage(payload)})
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	return rows
}

// A message without an id gets the row's; any other is sent as it is.
func TestMessagesWithoutIDs(t *testing.T) {
	t.Parallel()
	var sent string
	service := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		sent = string(body)
	}))
	defer service.Close()
	publisher, err := outbox.NewHTTP(service.URL, "key", nil)
	if err != nil {
		t.Fatal(err)
	}
	var rows []outbox.Row
	for _, message := range []string{` { "topic" : "t"}`, `{ }`, `{"id": "b"}`, `[1]`, `null`, `{`, ``} {
		rows = append(rows, outbox.Row{ID: "a", Message: json.RawMessage(message)})
	}
	_ = publisher.Publish(t.Context(), rows)
	if want := `[{"id":"a", "topic" : "t"},{"id":"a" },{"id": "b"},[1],null,{,]`; sent != want {
		t.Errorf("what was sent is %s, want %s", sent, want)
	}
}

// Publish sends a publish request, and distinguishes replies: published, refused because of the content, or to be
// retried.
func TestHTTP(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status   int
		body     string
		refused  bool
		mentions string
	}{
		{201, `{"position":2,"events":[{"id":"a","position":1},{"id":"b","position":2}]}`, false, ""},
		{200, `{"position":2,"events":[{"id":"a","position":1},{"id":"b","position":2}]}`, false, ""},
		// A server that answers everything is not the service: rows sent to it would be lost.
		{200, `<html>`, false, "200"},
		{200, `{}`, false, "200"},
		{200, ``, false, "200"},
		{201, `{"position":1,"events":[{"id":"a","position":1}]}`, false, "201"},
		{409, `{"code":"partial-duplicate","detail":"some"}`, true, "partial-duplicate: some"},
		{409, `{"code":"event-id-conflict","detail":"other","where":"messages[1].id"}`, true, "at messages[1].id: other"},
		{400, `{"code":"invalid-request","detail":"x"}`, true, "invalid-request"},
		{413, `{"code":"too-large","detail":"x"}`, true, "too-large"},
		{422, `{"code":"refused","detail":"x"}`, true, "refused"},
		{403, `{"code":"forbidden","detail":"x"}`, true, "forbidden"},
		{403, `{"code":"tenant-suspended","detail":"x"}`, false, "tenant-suspended"},
		{401, `{"code":"unauthenticated","detail":"x"}`, false, "unauthenticated"},
		{429, `{"code":"too-many-requests","detail":"x"}`, false, "too-many-requests"},
		{503, `{"code":"outcome-unknown","detail":"x"}`, false, "outcome-unknown"},
		{502, `<html>`, false, "502"},
		{404, `a proxy's page`, false, "404"},
		{404, `{"code":"not-found","detail":"x"}`, false, "not-found"},
		{415, `{"code":"unsupported-media-type","detail":"x"}`, false, "unsupported-media-type"},
	} {
		t.Run(fmt.Sprint(c.status, c.body), func(t *testing.T) {
			t.Parallel()
			rows := rowsOf(t, "1", `{"a":2}`)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
				body, err := io.ReadAll(request.Body)
				want := fmt.Sprintf("[%s,%s]", rows[0].Message, rows[1].Message)
				if err != nil || string(body) != want || request.URL.Path != "/v1/publish" || request.Header.Get("Authorization") != "Bearer k" || request.Header.Get("Content-Type") != "application/json" {
					t.Errorf("%s %s: %s", request.Method, request.URL, body)
				}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}))
			defer server.Close()
			h, err := outbox.NewHTTP(server.URL+"/", "k", server.Client())
			if err != nil {
				t.Fatal(err)
			}
			err = h.Publish(t.Context(), rows)
			_, refused := errors.AsType[*outbox.RefusedError](err)
			if (err == nil) != (c.mentions == "") || refused != c.refused || err != nil && !strings.Contains(err.Error(), c.mentions) {
				t.Errorf("the error is %v", err)
			}
		})
	}
	h, err := outbox.NewHTTP("http://127.0.0.1:1", "k", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Publish(t.Context(), rowsOf(t, "1")); err == nil {
		t.Error("it is published to nobody")
	}
	for _, wrong := range [][2]string{{"", "k"}, {"ftp://a", "k"}, {"http://", "k"}, {"http://a", ""}} {
		if _, err := outbox.NewHTTP(wrong[0], wrong[1], nil); err == nil {
			t.Errorf("%v is taken", wrong)
		}
	}
}
