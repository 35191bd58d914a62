package cloudevents_test

import (
	"cmp"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
)

// wantRefusal fails the test unless err is a client error with the given code, place and words.
func wantRefusal(t *testing.T, what string, err error, code domain.Code, where, words string) {
	t.Helper()
	if e, ok := errors.AsType[*domain.Error](err); !ok || e.Code != code || e.Where != where || !strings.Contains(e.Message, words) {
		t.Errorf("%.200s: %v, want %s at %q with %q", what, err, code, where, words)
	}
}

// structuredRefusals are structured CloudEvents with one error each.
var structuredRefusals = []struct {
	text  string
	code  domain.Code
	where string // empty: the event itself
	words string
}{
	{`{"id":"1","source":"s","type":"T"}`, domain.CodeInvalidRequest, "specversion", "required, but missing"},
	{`{"specversion":"0.3","id":"1","source":"s","type":"T"}`, domain.CodeUnsupported, "specversion", `unsupported version "0.3"`},
	{`{"specversion":1.0,"id":"1","source":"s","type":"T"}`, domain.CodeUnsupported, "specversion", "1.0"},
	{`{"specversion":"1.0","source":"s","type":"T"}`, domain.CodeInvalidRequest, "id", "required, but missing"},
	{`{"specversion":"1.0","id":null,"source":"s","type":"T"}`, domain.CodeInvalidRequest, "id", "required, but missing"},
	{`{"specversion":"1.0","id":"","source":"s","type":"T"}`, domain.CodeInvalidRequest, "id", "empty"},
	{`{"specversion":"1.0","id":5,"source":"s","type":"T"}`, domain.CodeInvalidRequest, "id", "a string"},
	{`{"specversion":"1.0","id":"1","type":"T"}`, domain.CodeInvalidRequest, "source", "required, but missing"},
	{`{"specversion":"1.0","id":"1","source":":no","type":"T"}`, domain.CodeInvalidRequest, "source", "URI reference"},
	{`{"specversion":"1.0","id":"1","source":"s"}`, domain.CodeInvalidRequest, "type", "required, but missing"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"Order Placed"}`, domain.CodeInvalidRequest, "type", "' '"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","subject":""}`, domain.CodeInvalidRequest, "subject", "empty"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","subject":"a\nb"}`, domain.CodeInvalidRequest, "subject", "U+000A at byte 2"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","subject":"a\u0085"}`, domain.CodeInvalidRequest, "subject", "U+0085"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","time":"yesterday"}`, domain.CodeInvalidRequest, "time", "2026-03-01T09:30:00Z"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","time":"0001-01-01T00:00:00Z"}`, domain.CodeInvalidRequest, "time", "out of range"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","datacontenttype":"json"}`, domain.CodeInvalidRequest, "datacontenttype", "media type"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","dataschema":"/relative"}`, domain.CodeInvalidRequest, "dataschema", "is not a URI"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","id":"2"}`, domain.CodeInvalidRequest, "id", "twice"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","my_own":"x"}`, domain.CodeInvalidRequest, "my_own", "lower-case letters and digits"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","Own":"x"}`, domain.CodeInvalidRequest, "Own", "lower-case letters and digits"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","":"x"}`, domain.CodeInvalidRequest, "", "1 to 100 characters"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","own":{}}`, domain.CodeInvalidRequest, "own", "into data"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","own":2147483648}`, domain.CodeInvalidRequest, "own", "2147483647"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","own":1.5}`, domain.CodeInvalidRequest, "own", "whole"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","own":"\u0007"}`, domain.CodeInvalidRequest, "own", "control character"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","data_base64":5}`, domain.CodeInvalidRequest, "data_base64", "a string"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","data_base64":"AP8"}`, domain.CodeInvalidRequest, "data_base64", "padding"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","data_base64":"AP\n8="}`, domain.CodeInvalidRequest, "data_base64", "base64"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","data":1,"data_base64":"AP8="}`, domain.CodeInvalidRequest, "data_base64", "data is there as well"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","manifoldmetadata":5}`, domain.CodeInvalidRequest, "manifoldmetadata", "a string"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","manifoldmetadata":"{"}`, domain.CodeInvalidJSON, "manifoldmetadata", "at byte 1"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","manifoldmetadata":"[1e400]"}`, domain.CodeInvalidJSON, "manifoldmetadata", "at /0, byte 1"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","data":{"a":1e131071}}`, domain.CodeInvalidJSON, "", "the number is too long"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","data":[1` + strings.Repeat(",1e300", 7000) + `]}`, domain.CodeInvalidJSON, "", "without exponents"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T","data":"` + strings.Repeat("x", domain.MaxEventBytes) + `"}`, domain.CodeTooLarge, "data", "an event has at most"},
	{`{"specversion":"1.0","id":"1","source":"s","type":"T"` + manyExtensions(101) + `}`, domain.CodeTooLarge, "x100", "more than 100 extensions"},
}

func manyExtensions(count int) string {
	var b strings.Builder
	for i := range count {
		b.WriteString(`,"x` + string(rune('0'+i/100)) + string(rune('0'+i/10%10)) + string(rune('0'+i%10)) + `":1`)
	}
	return b.String()
}

func TestMalformedStructuredEvents(t *testing.T) {
	t.Parallel()
	const good = `{"specversion":"1.0","id":"1","source":"s","type":"T"}`
	for _, c := range structuredRefusals {
		_, err := cloudevents.Parse([]byte(c.text))
		wantRefusal(t, c.text, err, c.code, cmp.Or(c.where, "body"), c.words)
		// In a batch, the error also names the event.
		where := "events[1]." + c.where
		if c.where == "" {
			where = "events[1]"
		}
		_, err = cloudevents.ParseBatch([]byte("["+good+","+c.text+"]"), 2)
		wantRefusal(t, "in a batch "+c.text, err, c.code, where, c.words)
	}
	for _, c := range []struct {
		text string
		code domain.Code
	}{{``, domain.CodeInvalidJSON}, {`{"specversion"`, domain.CodeInvalidJSON}, {good + good, domain.CodeInvalidJSON}, {`{"data":"\u0000"}`, domain.CodeInvalidJSON}, {`[]`, domain.CodeInvalidRequest}, {`5`, domain.CodeInvalidRequest}, {"{\"id\":\"\xff\"}", domain.CodeInvalidJSON}} {
		_, err := cloudevents.Parse([]byte(c.text))
		wantRefusal(t, c.text, err, c.code, "body", "byte ")
	}
}

func TestMalformedBatches(t *testing.T) {
	t.Parallel()
	const good = `{"specversion":"1.0","id":"1","source":"s","type":"T"}`
	for _, c := range []struct {
		text, where, words string
		code               domain.Code
	}{
		{`[]`, "events", "at least one", domain.CodeInvalidRequest},
		{good, "body", "an array", domain.CodeInvalidRequest},
		{`[` + good + `,`, "events[1]", "in the middle of an array", domain.CodeInvalidJSON},
		{`[` + good + `,5]`, "events[1]", "an object", domain.CodeInvalidRequest},
		{`[` + good + `] x`, "body", "text after", domain.CodeInvalidJSON},
		{`[` + good + `,` + good + `,` + good + `]`, "events", "more than 2 events", domain.CodeTooLarge},
	} {
		_, err := cloudevents.ParseBatch([]byte(c.text), 2)
		wantRefusal(t, c.text, err, c.code, c.where, c.words)
	}
}

func TestMalformedBinaryEvents(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		values []string // nil: the header is left out
		code   domain.Code
		where  string
		words  string
	}{
		{"Ce-Specversion", nil, domain.CodeInvalidRequest, "ce-specversion", "required"},
		{"Ce-Specversion", []string{"2.0"}, domain.CodeUnsupported, "ce-specversion", "2.0"},
		{"Ce-Id", nil, domain.CodeInvalidRequest, "ce-id", "required"},
		{"Ce-Id", []string{""}, domain.CodeInvalidRequest, "ce-id", "empty"},
		{"Ce-Id", []string{"1", "2"}, domain.CodeInvalidRequest, "ce-id", "2 times"},
		{"Ce-Id", []string{"%FF"}, domain.CodeInvalidRequest, "ce-id", "UTF-8"},
		{"Ce-Id", []string{"\xff"}, domain.CodeInvalidRequest, "ce-id", "UTF-8"},
		{"Ce-Id", []string{"a%0Ab"}, domain.CodeInvalidRequest, "ce-id", "control character"},
		{"Ce-Type", []string{"a%20b"}, domain.CodeInvalidRequest, "ce-type", "event type"},
		{"Ce-Source", []string{"%3Ano"}, domain.CodeInvalidRequest, "ce-source", "URI reference"},
		{"Ce-Time", []string{"now"}, domain.CodeInvalidRequest, "ce-time", "time"},
		{"Ce-My-Own", []string{"x"}, domain.CodeInvalidRequest, "ce-my-own", "digits only"},
		{"Ce-Data", []string{"x"}, domain.CodeInvalidRequest, "ce-data", "no attribute"},
		{"Ce-Datacontenttype", []string{"text/plain"}, domain.CodeInvalidRequest, "ce-datacontenttype", "Content-Type"},
		{"Content-Type", []string{"nothing"}, domain.CodeInvalidRequest, "Content-Type", "media type"},
		{"Content-Type", []string{"a/b", "a/c"}, domain.CodeInvalidRequest, "Content-Type", "2 times"},
		{"Content-Type", []string{"application/json"}, domain.CodeInvalidJSON, "body", "its Content-Type says JSON"},
	} {
		header := http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"s"}, "Ce-Type": {"T"}, "Content-Type": {"text/plain"}}
		delete(header, c.name)
		if c.values != nil {
			header[c.name] = c.values
		}
		_, err := cloudevents.ParseBinary(header, []byte("no JSON"))
		wantRefusal(t, c.name, err, c.code, c.where, c.words)
	}
	header := http.Header{"Ce-Specversion": {"1.0"}, "Ce-Id": {"1"}, "Ce-Source": {"s"}, "Ce-Type": {"T"}, "Content-Type": {"image/png"}}
	_, err := cloudevents.ParseBinary(header, make([]byte, domain.MaxEventBytes*3/4))
	wantRefusal(t, "a picture", err, domain.CodeTooLarge, "body", "as it is kept")
}

// Valid events that cannot be stored.
func TestWhatCannotBeKept(t *testing.T) {
	t.Parallel()
	event, err := cloudevents.Parse([]byte(`{"specversion":"1.0","id":"1","source":"s","type":"T","manifoldmetadata":"[1]"}`))
	must(t, err)
	_, err = event.NewEvent("order-1")
	wantRefusal(t, "metadata that is no object", err, domain.CodeInvalidRequest, "manifoldmetadata", "JSON object")
	event, err = cloudevents.Parse([]byte(`{"specversion":"1.0","id":"1","source":"s","type":"T","own":"` + strings.Repeat("x", domain.MaxEventBytes) + `"}`))
	must(t, err)
	_, err = event.Message("order", "")
	wantRefusal(t, "attributes that are too long", err, domain.CodeTooLarge, "data", "data and attributes")
}

// Metadata that only resembles that of a CloudEvent is ordinary metadata: the event goes out like any other, with its
// metadata.
func TestMetadataThatIsNoCloudEvents(t *testing.T) {
	t.Parallel()
	for _, member := range []string{
		`{}`, `[]`, `{"subject":"x"}`, `{"source":""}`, `{"source":"s","data":1}`, `{"source":"s","data":"base64"}`, `{"source":"s","type":"T"}`, `{"source":"s","specversion":"1.0"}`,
		`{"source":"s","my_own":1}`, `{"source":"s","own":[]}`, `{"source":"s","own":"\u0001"}`, `{"source":"s","time":"x"}`, `{"source":"s","manifoldmetadata":"1"}`, `{"source":"s","source":"t"}`,
		`{"source":"s","own":1,"own":2}`, `{"source":"s"` + manyExtensions(101) + `}`,
	} {
		metadata := `{"cloudevents":` + member + `}`
		event := domain.Event{ID: domain.NewEventID(), Stream: "order-7", Version: 1, Position: 1, Type: "T", Data: []byte(`{}`), Metadata: []byte(metadata), RecordedAt: recorded}
		out := unmarshal(t, []byte(structured(event))).(map[string]any)
		if out["source"] != "/categories/order" || out["manifoldmetadata"] != metadata {
			t.Errorf("with metadata %.100s it goes out as %.300s", metadata, structured(event))
		}
	}
}
