package cloudevents_test

import (
	"errors"
	"net/http"
	"reflect"
	"testing"

	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
)

// checkCame requires either an error that a client can act on, or an event that comes out unchanged.
func checkCame(t *testing.T, event cloudevents.Event, err error) {
	t.Helper()
	var kept domain.NewEvent
	if err == nil {
		kept, err = event.NewEvent("order-7")
	}
	if err != nil {
		if e, ok := errors.AsType[*domain.Error](err); !ok || e.Where == "" || e.Message == "" {
			t.Fatalf("the error is no good: %v", err)
		}
		return
	}
	for _, text := range [][]byte{kept.Data, kept.Metadata} {
		if text != nil && domain.CheckJSON(text) != nil {
			t.Fatalf("%q cannot be kept", text)
		}
	}
	out := structured(logged(t, event, "order-7"))
	again, err := cloudevents.Parse([]byte(out))
	if err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	if second := structured(logged(t, again, "order-7")); !reflect.DeepEqual(meaning(t, []byte(second)), meaning(t, []byte(out))) {
		t.Fatalf("the second time it comes out as\n%s, not as\n%s", second, out)
	}
}

func FuzzParse(f *testing.F) {
	for _, c := range structuredRefusals {
		if len(c.text) < 1000 {
			f.Add([]byte(c.text))
		}
	}
	f.Add([]byte(`{"specversion":"1.0","id":"A-1","source":"https://x.example/é","type":"T","subject":"a b","time":"2026-01-01T01:00:00.123456789+01:00","own":-5,"yes":true,"data":{"a":[1]}}`))
	f.Add([]byte(`{"specversion":"1.0","id":"A-1","source":"s","type":"T","datacontenttype":"text/plain","data_base64":"aGVsbG8=","manifoldmetadata":"{\"cloudevents\":{\"source\":\"s\"},\"traceparent\":\"x\"}"}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		event, err := cloudevents.Parse(body)
		checkCame(t, event, err)
		events, batchErr := cloudevents.ParseBatch(append(append([]byte("["), body...), ']'), 10)
		if (err == nil) && (batchErr != nil || len(events) != 1) {
			t.Fatalf("%q is good by itself, but not in a batch: %v", body, batchErr)
		}
	})
}

func FuzzParseBinary(f *testing.F) {
	f.Add("1.0", "A-1", "s", "T", "ce-own", "a%20b", "application/json", []byte(`{"a":1}`))
	f.Add("1.0", `"quoted \" id"`, "%C3%A9", "T", "ce-time", "2026-01-01T00:00:00Z", "text/plain; charset=utf-8", []byte("héllo"))
	f.Add("", "", "%", "%zz", "Ce-Traceparent", "00-a-b-01", "", []byte{0, 255})
	f.Fuzz(func(t *testing.T, version, id, source, kind, name, value, contentType string, body []byte) {
		header := http.Header{"Ce-Specversion": {version}, "Ce-Id": {id}, "Ce-Source": {source}, "Ce-Type": {kind}, name: {value}}
		if contentType != "" {
			header["Content-Type"] = []string{contentType}
		}
		event, err := cloudevents.ParseBinary(header, body)
		checkCame(t, event, err)
	})
}
