package cloudevents_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
)

// logged returns the event as the log would return it after an append to a stream.
func logged(t testing.TB, e cloudevents.Event, stream string) domain.Event {
	t.Helper()
	appended, err := e.NewEvent(stream)
	if err != nil {
		t.Fatal(err)
	}
	return domain.Event{
		ID: appended.ID, Stream: stream, Version: 3, Position: 17, Type: appended.Type, Data: appended.Data, Metadata: appended.Metadata,
		OccurredAt: appended.OccurredAt, RecordedAt: recorded,
	}
}

var recorded = time.Date(2026, 3, 1, 9, 30, 0, 100_000, time.UTC)

func structured(event domain.Event) string {
	var encoder cloudevents.Encoder
	return string(encoder.Append(nil, &event))
}

const places = `"manifoldid":"0190d3a4-5b6c-7def-8123-456789abcde0","manifoldstream":"order-7","manifoldversion":"3","manifoldposition":"17","manifoldrecordedat":"2026-03-01T09:30:00.000100Z"`

func TestAnEventOfTheLogGoesOut(t *testing.T) {
	t.Parallel()
	id, _ := domain.ParseEventID("0190d3a4-5b6c-7def-8123-456789abcde0")
	event := domain.Event{ID: id, Stream: "order-7", Version: 3, Position: 17, Type: "OrderPlaced", Data: json.RawMessage(`{"n": 1}`), RecordedAt: recorded}
	const head = `{"specversion":"1.0","id":"0190d3a4-5b6c-7def-8123-456789abcde0","source":"/categories/order","type":"OrderPlaced","subject":"7","time":`
	for _, c := range []struct{ metadata, want string }{
		{``, `}`},
		{`{"user": "u\"1"}`, `,"manifoldmetadata":"{\"user\": \"u\\\"1\"}"}`},
		{`{"traceparent": "00-a-b-01"}`, `,"traceparent":"00-a-b-01"}`},
		{`{"a": 1, "traceparent": "00-a-b-01", "b": []}`, `,"traceparent":"00-a-b-01","manifoldmetadata":"{\"a\":1,\"b\":[]}"}`},
		{`{"traceparent": 5}`, `,"manifoldmetadata":"{\"traceparent\": 5}"}`},
		{`[1]`, `,"manifoldmetadata":"[1]"}`},
		{`{"cloudevents": "no"}`, `,"manifoldmetadata":"{\"cloudevents\": \"no\"}"}`},
		{`{"cloudevents": {"source": 5}, "traceparent": "x"}`, `,"manifoldmetadata":"{\"cloudevents\": {\"source\": 5}, \"traceparent\": \"x\"}"}`},
		{`{"cloudevents": {"source": "s", "data": "base64"}}`, `,"manifoldmetadata":"{\"cloudevents\": {\"source\": \"s\", \"data\": \"base64\"}}"}`},
		{"{\"a\": \"\x7f\u0085\"}", `,"manifoldmetadata":"{\"a\": \"\\u007f\\u0085\"}"}`},
	} {
		event.Metadata = nil
		if c.metadata != "" {
			event.Metadata = json.RawMessage(c.metadata)
		}
		want := head + `"2026-03-01T09:30:00.000100Z","datacontenttype":"application/json","data":{"n": 1},` + places + c.want
		if got := structured(event); got != want {
			t.Errorf("with metadata %s it is\n%s, want\n%s", c.metadata, got, want)
		}
	}
	event.Metadata, event.OccurredAt = nil, recorded.Add(-time.Second)
	if got, want := structured(event), head+`"2026-03-01T09:29:59.000100Z","datacontenttype":"application/json","data":{"n": 1},`+places+`}`; got != want {
		t.Errorf("with its own time it is\n%s, want\n%s", got, want)
	}
}

// Attributes without a field in the log's event are kept in its metadata, and come out unchanged.
func TestWhatAnEventKeeps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, metadata, out string }{
		{
			`{"specversion":"1.0","id":"0190d3a4-5b6c-7def-8123-456789abcde0","source":"/categories/order","type":"T","subject":"7","time":"2026-01-01T00:00:00.500000Z","datacontenttype":"application/json","data":{}}`, ``,
			`{"specversion":"1.0","id":"0190d3a4-5b6c-7def-8123-456789abcde0","source":"/categories/order","type":"T","subject":"7","time":"2026-01-01T00:00:00.500000Z","datacontenttype":"application/json","data":{},` + places + `}`,
		},
		{
			`{"specversion":"1.0","id":"A-1","source":"https://x.example/é","type":"T"}`,
			`{"cloudevents":{"id":"A-1","source":"https://x.example/é","data":"none"}}`,
			`{"specversion":"1.0","id":"A-1","source":"https://x.example/é","type":"T",` + places + `}`,
		},
		{
			`{"id":"A-1","source":"s","type":"T","subject":"a b/c","time":"2026-01-01T01:00:00.123456789+01:00","dataschema":"x:y","datacontenttype":"text/plain","data":"a\nb","specversion":"1.0"}`,
			`{"cloudevents":{"id":"A-1","source":"s","subject":"a b/c","time":"2026-01-01T01:00:00.123456789+01:00","datacontenttype":"text/plain","dataschema":"x:y"}}`,
			`{"specversion":"1.0","id":"A-1","source":"s","type":"T","subject":"a b/c","time":"2026-01-01T01:00:00.123456789+01:00","datacontenttype":"text/plain","dataschema":"x:y","data":"a\nb",` + places + `}`,
		},
		{
			`{"specversion":"1.0","id":"A-1","source":"s","type":"T","data_base64":"AP8=","count":-5,"yes":true,"odd":"\"%","subject":null}`,
			`{"cloudevents":{"id":"A-1","source":"s","data":"base64","count":-5,"yes":true,"odd":"\"%"}}`,
			`{"specversion":"1.0","id":"A-1","source":"s","type":"T","count":-5,"yes":true,"odd":"\"%","data_base64":"AP8=",` + places + `}`,
		},
		{ // from another log, with its places there
			`{"specversion":"1.0","id":"0190d3a4-5b6c-7def-8123-456789abcde0","source":"/categories/order","type":"T","subject":"7","time":"2026-01-01T00:00:00Z","datacontenttype":"application/json","data":1,"manifoldstream":"x-1","manifoldversion":"1","manifoldposition":"99","manifoldrecordedat":"2020-01-01T00:00:00Z","traceparent":"00-a-b-01","manifoldmetadata":"{\"user\":\"u\"}"}`,
			`{"user":"u","traceparent":"00-a-b-01"}`,
			`{"specversion":"1.0","id":"0190d3a4-5b6c-7def-8123-456789abcde0","source":"/categories/order","type":"T","subject":"7","time":"2026-01-01T00:00:00.000000Z","datacontenttype":"application/json","data":1,` + places + `,"traceparent":"00-a-b-01","manifoldmetadata":"{\"user\":\"u\"}"}`,
		},
		{ // a trace that is not plain text is an ordinary extension
			`{"specversion":"1.0","id":"A-1","source":"s","type":"T","traceparent":"a b","data":null}`,
			`{"cloudevents":{"id":"A-1","source":"s","traceparent":"a b"}}`,
			`{"specversion":"1.0","id":"A-1","source":"s","type":"T","traceparent":"a b","data":null,` + places + `}`,
		},
	} {
		event, err := cloudevents.Parse([]byte(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		kept := logged(t, event, "order-7")
		if string(kept.Metadata) != c.metadata {
			t.Errorf("%s is kept with\n%s, want\n%s", c.in, kept.Metadata, c.metadata)
		}
		if got := strings.Replace(structured(kept), `"manifoldid":"`+event.EventID().String(), `"manifoldid":"0190d3a4-5b6c-7def-8123-456789abcde0`, 1); got != c.out {
			t.Errorf("%s goes out as\n%s, want\n%s", c.in, got, c.out)
		}
	}
}

func TestTheBinaryForm(t *testing.T) {
	t.Parallel()
	header := http.Header{
		"Ce-Specversion": {"1.0"}, "Ce-Id": {"A-1"}, "Ce-Source": {`"s \"x\""`}, "Ce-Type": {"T"}, "Ce-Odd": {"100%25%zz %C3%A9 é"}, "Content-Type": {"text/plain"},
	}
	event, err := cloudevents.ParseBinary(header, []byte("héllo"))
	if err != nil {
		t.Fatal(err)
	}
	kept := logged(t, event, "order-7")
	out := http.Header{}
	var encoder cloudevents.Encoder
	if body := encoder.SetHeader(out, &kept); string(body) != "héllo" {
		t.Errorf("the body is %q", body)
	}
	for name, want := range map[string]string{
		"ce-specversion": "1.0", "ce-id": "A-1", "ce-source": "s%20%22x%22", "ce-type": "T", "ce-odd": "100%25%25zz%20%C3%A9%20%C3%A9", "content-type": "text/plain",
		"ce-manifoldid": kept.ID.String(), "ce-manifoldstream": "order-7", "ce-manifoldversion": "3", "ce-manifoldposition": "17", "ce-manifoldrecordedat": "2026-03-01T09:30:00.000100Z",
	} {
		if got := out.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if len(out) != 11 {
		t.Errorf("there are headers that nobody asked for: %v", out)
	}
}

// An id that is not a UUID gives one derived from source and id.
func TestIDs(t *testing.T) {
	t.Parallel()
	id := func(source, id string) domain.EventID {
		e := cloudevents.Event{ID: id, Source: source}
		return e.EventID()
	}
	if got := id("s", "0190D3A4-5b6c-7def-8123-456789abcde0").String(); got != "0190d3a4-5b6c-7def-8123-456789abcde0" {
		t.Errorf("a UUID becomes %s", got)
	}
	if again := id("s", "1"); id("s", "1") != again || id("s", "1") == id("t", "1") || id("s", "1") == id("s", "2") {
		t.Error("ids do not follow from source and id")
	}
	if nought := id("s", "00000000-0000-0000-0000-000000000000"); nought.IsZero() {
		t.Error("the nil UUID is an event's id")
	}
}

// Both forms of an event with erased fields name the erasure. An event that comes back loses the name.
func TestErasedEventsNameTheErasure(t *testing.T) {
	t.Parallel()
	erasure := domain.NewUUID()
	event := domain.Event{
		ID: domain.NewEventID(), Stream: "customer-7", Position: 1, Version: 1, Type: "T", Data: json.RawMessage(`{"email": null}`), RecordedAt: time.Now(),
		Erased: &domain.EventErasure{Erasure: erasure, At: time.Now()},
	}
	var encoder cloudevents.Encoder
	text := encoder.Append(nil, &event)
	if want := `"manifolderased":"` + erasure.String() + `"`; !strings.Contains(string(text), want) {
		t.Errorf("%s lacks %s", text, want)
	}
	binary := ""
	encoder.Binary(&event, func(attribute, value string) {
		if attribute == cloudevents.ExtensionErased {
			binary = value
		}
	})
	if binary != erasure.String() {
		t.Errorf("the binary form has %q", binary)
	}
	back, err := cloudevents.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	if again := structured(logged(t, back, "customer-7")); strings.Contains(again, erasure.String()) {
		t.Errorf("the event comes back as %s", again)
	}
}
