package systemtest

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/client"
)

// The service accepts a CloudEvent, or refuses it for a good reason. It returns an accepted event in each form, and
// recognises it when it is sent again.
func FuzzCloudEvents(f *testing.F) {
	const structured = "application/cloudevents+json"
	for _, seed := range []struct{ kind, body, topic, key, header, value string }{
		{structured, `{"specversion":"1.0","id":"A-1","source":"s","type":"T","subject":"7","time":"2026-03-01T09:30:00.123456789+01:00","own":-5,"data":{"a":[1e2,"é"]}}`, "order", "", "", ""},
		{structured, `{"specversion":"1.0","id":"A-2","source":"s","type":"order.placed","data_base64":"AP8=","manifoldmetadata":"{\"a\":1}","traceparent":"00-a-b-01"}`, "", "", "", ""},
		{"application/cloudevents-batch+json", `[{"specversion":"1.0","id":"1","source":"s","type":"T"},{"specversion":"1.0","id":"2","source":"s","type":"T","datacontenttype":"text/plain","data":"x"}]`, "order", "7", "", ""},
		{"text/plain", "héllo", "order", "", "ce-subject", "a%20b"},
		{"application/json", `{"a": 1}`, "order", "7", "ce-traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"},
		{"application/vnd.x+json", `[1.50]`, "order", "7", "ce-manifoldmetadata", "[1]"},
		{"application/cloudevents+xml", "<event/>", "a-b", "/", "ce-id", ""},
		{structured + "; charset=\"", `[]`, "order", "", "ce-own", "\"quoted\""},
	} {
		f.Add(seed.kind, []byte(seed.body), seed.topic, seed.key, seed.header, seed.value)
	}
	u := fuzzed(f)
	f.Fuzz(func(t *testing.T, kind string, body []byte, topic, key, header, value string) {
		query := url.Values{}
		if topic != "" {
			query.Set("topic", topic)
		}
		if key != "" {
			query.Set("key", key)
		}
		path := "/v1/publish?" + query.Encode()
		headers := []string{"Content-Type", kind}
		if !strings.HasPrefix(strings.ToLower(kind), "application/cloudevents") {
			headers = append(headers, "ce-specversion", "1.0", "ce-id", "A-1", "ce-source", "s", "ce-type", "T")
			if strings.HasPrefix(header, "ce-") {
				headers = append(headers, header, value)
			}
		}
		if body == nil {
			body = []byte{}
		}
		a := u.send(t, "POST", path, body, headers...)
		if a.status >= 300 {
			return
		}
		if again := u.send(t, "POST", path, body, headers...); again.status != 200 {
			t.Fatalf("%q, which was taken, is answered %s", body, again)
		}
		var published client.Published
		if err := json.Unmarshal(a.body, &published); err != nil {
			t.Fatal(err)
		}
		id := published.Events[0].Id
		got := u.send(t, "GET", "/v1/events/"+id, nil, "Accept", structured)
		if got.status != 200 {
			t.Fatalf("%q is given as %s", body, got)
		}
		// A returned event can be sent again, and is recognised.
		again := u.send(t, "POST", "/v1/streams/"+url.PathEscape(published.Events[0].Stream)+"/events", got.body, "Content-Type", structured)
		if again.status != 200 {
			t.Fatalf("%q is given as %s, which is answered %s", body, got.body, again)
		}
		if binary := u.send(t, "GET", "/v1/events/"+id, nil, "Accept", "application/cloudevents-binary"); binary.status != 200 && binary.status != 422 {
			t.Fatalf("%q is given in the binary form as %s", body, binary)
		}
	})
}
