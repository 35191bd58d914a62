package cloudevents_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
)

// An event's attributes, extensions and data come out as they went in, in the structured and in the binary form. This
// holds for a log that returns JSON with another order of members and other whitespace.
func TestNothingIsLost(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		in := drawEvent(t)
		text, err := json.Marshal(in)
		must(t, err)
		event, err := cloudevents.Parse(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		kept := asKept(t, event, "order-"+rapid.StringMatching(`[a-z0-9-]{1,8}`).Draw(t, "key"))
		out := structured(kept)
		if got, want := meaning(t, []byte(out)), meaning(t, text); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s\ncomes out as\n%s\nwhich means\n%v, want\n%v", text, out, got, want)
		}
		// A second round trip, starting from the first result, changes nothing.
		again, err := cloudevents.Parse([]byte(out))
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if second := structured(asKept(t, again, kept.Stream)); second != out {
			t.Fatalf("the second time it comes out as\n%s, not as\n%s", second, out)
		}

		header := http.Header{}
		var encoder cloudevents.Encoder
		body := encoder.SetHeader(header, &kept)
		received, err := cloudevents.ParseBinary(header, body)
		if err != nil {
			t.Fatalf("%v: %v", header, err)
		}
		want := meaning(t, []byte(out))
		for name, value := range want { // headers contain only text
			if name != "data" {
				want[name] = fmt.Sprint(value)
			}
		}
		if want["data"] != nil && want["datacontenttype"] == nil && reflect.TypeOf(want["data"]) != bytesType {
			want["datacontenttype"] = "application/json"
		}
		if b, ok := want["data"].([]byte); ok && len(b) == 0 {
			delete(want, "data") // an empty body means no data
		}
		if got := meaning(t, []byte(structured(asKept(t, received, kept.Stream)))); !reflect.DeepEqual(got, want) {
			t.Fatalf("%v %q\nmeans\n%v, want\n%v", header, body, got, want)
		}
	})
}

// An event that moves from one log to another as a CloudEvent is the same there.
func TestFromLogToLog(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		event := domain.Event{
			ID: domain.NewEventID(), Stream: "order-" + rapid.StringMatching(`[!-!$&-.0->@-\[\]-~]{1,20}`).Draw(t, "key"), Version: rapid.Int64Range(1, 1<<40).Draw(t, "version"),
			Position: rapid.Int64Range(1, 1<<40).Draw(t, "position"), Type: rapid.StringMatching(`[A-Za-z0-9_.:/+-]{1,20}`).Draw(t, "type"), Data: asJSONB(t, drawJSON(t, "data")),
			OccurredAt: drawTime(t).Truncate(time.Microsecond).UTC(), RecordedAt: recorded,
		}
		if rapid.Bool().Draw(t, "metadata") {
			event.Metadata = asJSONB(t, drawMetadata(t))
		}
		var encoder cloudevents.Encoder
		var came cloudevents.Event
		var err error
		if rapid.Bool().Draw(t, "binary") {
			header := http.Header{}
			body := encoder.SetHeader(header, &event)
			came, err = cloudevents.ParseBinary(header, body)
		} else {
			came, err = cloudevents.Parse(encoder.Append(nil, &event))
		}
		must(t, err)
		there := asKept(t, came, event.Stream)
		there.Version, there.Position = event.Version, event.Position
		if there.ID != event.ID || there.Type != event.Type || !there.OccurredAt.Equal(event.OccurredAt) || !sameJSON(t, there.Data, event.Data) || !sameJSON(t, there.Metadata, event.Metadata) {
			t.Fatalf("%+v\n%s %s\nbecomes\n%+v\n%s %s", event, event.Data, event.Metadata, there, there.Data, there.Metadata)
		}
	})
}

var bytesType = reflect.TypeFor[[]byte]()

func must(t rapid.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// asKept returns the event as the log returns it.
func asKept(t rapid.TB, e cloudevents.Event, stream string) domain.Event {
	t.Helper()
	appended, err := e.NewEvent(stream)
	must(t, err)
	event := domain.Event{ID: appended.ID, Stream: stream, Version: 3, Position: 17, Type: appended.Type, Data: asJSONB(t, appended.Data), OccurredAt: appended.OccurredAt, RecordedAt: recorded}
	if appended.Metadata != nil {
		event.Metadata = asJSONB(t, appended.Metadata)
	}
	return event
}

// asJSONB returns the same JSON as a database would: with another order of members, and other whitespace and escapes.
func asJSONB(t rapid.TB, text []byte) json.RawMessage {
	t.Helper()
	must(t, domain.CheckJSON(text))
	value := unmarshal(t, text)
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	must(t, encoder.Encode(value)) // sorts the members
	plain := bytes.TrimSpace(b.Bytes())
	if plain[0] == '{' && len(plain) > 2 {
		plain = append([]byte("{ "), plain[1:]...)
	}
	return plain
}

// unmarshal reads any JSON, and keeps numbers as they are written.
func unmarshal(t rapid.TB, text []byte) (value any) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	must(t, decoder.Decode(&value))
	return value
}

func sameJSON(t rapid.TB, a, b []byte) bool {
	t.Helper()
	var x, y any
	if a != nil {
		must(t, json.Unmarshal(a, &x))
	}
	if b != nil {
		must(t, json.Unmarshal(b, &y))
	}
	return reflect.DeepEqual(x, y)
}

// meaning returns the content of a structured CloudEvent without Manifold's own extensions: each attribute, and the
// data as JSON or as bytes. A time in UTC is written without trailing zeros, because they are not kept.
func meaning(t rapid.TB, text []byte) map[string]any {
	t.Helper()
	all := unmarshal(t, text).(map[string]any)
	said := map[string]any{}
	for name, value := range all {
		if value != nil && !strings.HasPrefix(name, "manifold") && !strings.HasPrefix(name, "data_") && name != "data" {
			said[name] = value
		}
	}
	if text, ok := said["time"].(string); ok {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil && strings.HasSuffix(text, "Z") {
			said["time"] = at.Format(time.RFC3339Nano)
		}
	}
	kind, _ := all["datacontenttype"].(string)
	isJSON := kind == "" || strings.Contains(kind, "json")
	data, there := all["data"]
	if encoded, ok := all["data_base64"].(string); ok {
		raw, err := base64.StdEncoding.DecodeString(encoded)
		must(t, err)
		data, there = raw, true
		if isJSON && domain.CheckJSON(raw) == nil {
			data = unmarshal(t, raw)
		}
	} else if s, ok := data.(string); ok && !isJSON {
		data = []byte(s)
	}
	if there {
		said["data"] = data
		if data == nil {
			said["data"] = "null"
		}
	}
	return said
}

// drawText returns a text that an attribute can have.
func drawText(t *rapid.T, label string) string {
	return rapid.StringOfN(rapid.Rune().Filter(func(r rune) bool { return r >= ' ' && (r < 0x7f || r > 0x9f) && utf8.ValidRune(r) }), 1, 12, -1).Draw(t, label)
}

func drawTime(t *rapid.T) time.Time {
	zone := time.FixedZone("", 60*rapid.IntRange(-12*60, 12*60).Draw(t, "zone"))
	return time.Unix(rapid.Int64Range(-60_000_000_000, 250_000_000_000).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanoseconds")).In(zone)
}

// drawJSON returns any JSON value.
func drawJSON(t *rapid.T, label string) json.RawMessage {
	texts := rapid.SampledFrom([]string{`null`, `true`, `-12.50`, `123456789012345678901234567890`, `""`, `"a\nb\u0007é😀<&>\\\""`, `[]`, `{}`, `[1,[2,{"a":null}]]`, `{"a":{"b":[1.5,"x"]},"data":"base64"}`})
	if rapid.Bool().Draw(t, label+" is a text") {
		text, err := json.Marshal(strings.ReplaceAll(rapid.String().Draw(t, label), "\x00", ""))
		must(t, err)
		return text
	}
	return json.RawMessage(texts.Draw(t, label))
}

func drawMetadata(t *rapid.T) json.RawMessage {
	if rapid.IntRange(0, 4).Draw(t, "metadata is no object") == 0 {
		return json.RawMessage(rapid.SampledFrom([]string{`1`, `"cloudevents"`, `[{"cloudevents":{"source":"s"}}]`, `{}`}).Draw(t, "metadata"))
	}
	metadata := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "members") {
		metadata[strings.ReplaceAll(rapid.String().Draw(t, "name"), "\x00", "")] = drawJSON(t, "member")
	}
	switch rapid.IntRange(0, 5).Draw(t, "trace") {
	case 0:
		metadata["traceparent"] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	case 1:
		metadata["traceparent"] = drawJSON(t, "traceparent")
	case 2:
		metadata["cloudevents"] = drawJSON(t, "cloudevents")
	case 3:
		metadata["traceparent"], metadata["cloudevents"] = "t", json.RawMessage(`{"source":5}`)
	}
	text, err := json.Marshal(metadata)
	must(t, err)
	return text
}

// drawEvent returns any CloudEvent.
func drawEvent(t *rapid.T) map[string]any {
	e := map[string]any{"specversion": "1.0", "type": rapid.StringMatching(`[A-Za-z0-9_.:/+-]{1,20}`).Draw(t, "type")}
	e["id"] = rapid.OneOf(rapid.Just("0190d3a4-5b6c-7def-8123-456789abcde0"), rapid.Just("0190D3A4-5B6C-7DEF-8123-456789ABCDE0"), rapid.Just("00000000-0000-0000-0000-000000000000"), rapid.Custom(func(t *rapid.T) string { return drawText(t, "id") })).Draw(t, "id")
	e["source"] = rapid.SampledFrom([]string{"/categories/order", "https://x.example/a?b=c#d", "urn:x:y", "é", "a b", "//host", "mailto:a@b.c", "s%20t"}).Draw(t, "source")
	optional := func(name string, value func() any) {
		if rapid.Bool().Draw(t, "has "+name) {
			e[name] = value()
		}
	}
	optional("subject", func() any {
		return rapid.OneOf(rapid.Just("7"), rapid.Custom(func(t *rapid.T) string { return drawText(t, "subject") })).Draw(t, "subject")
	})
	optional("time", func() any { return drawTime(t).Format(time.RFC3339Nano) })
	optional("dataschema", func() any { return "https://x.example/" + rapid.StringMatching(`[a-z]{0,5}`).Draw(t, "schema") })
	for range rapid.IntRange(0, 4).Draw(t, "extensions") {
		name := rapid.OneOf(rapid.SampledFrom([]string{"traceparent", "tracestate", "partitionkey", "sequence", "manifold", "recordedtime"}), rapid.StringMatching(`[a-z0-9]{1,20}`)).Draw(t, "name")
		if _, there := e[name]; there || name == "data" {
			continue
		}
		switch rapid.IntRange(0, 4).Draw(t, "kind") {
		case 0:
			e[name] = rapid.Bool().Draw(t, "value")
		case 1:
			e[name] = rapid.Int32().Draw(t, "value")
		case 2:
			e[name] = nil
		case 3:
			e[name] = ""
		default:
			e[name] = drawText(t, "value")
		}
		if fixed := reserved(name); fixed {
			e[name] = drawText(t, "value")
		}
	}
	drawData(t, e)
	return e
}

// reserved reports whether a name is an attribute of the specification.
func reserved(name string) bool {
	switch name {
	case "id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "specversion":
		return true
	}
	return false
}

// drawData adds data of any kind to an event, or none.
func drawData(t *rapid.T, e map[string]any) {
	kind := rapid.SampledFrom([]string{"", "application/json", "application/json; charset=utf-8", "text/json", "application/vnd.x+json", "text/plain", "text/plain; charset=iso-8859-1", "application/xml", "application/octet-stream", "image/png"}).Draw(t, "media type")
	if kind != "" {
		e["datacontenttype"] = kind
	}
	isJSON := kind == "" || strings.Contains(kind, "json")
	switch rapid.IntRange(0, 2).Draw(t, "data") {
	case 0:
		if isJSON {
			e["data"] = drawJSON(t, "data")
		} else {
			e["data"] = strings.ReplaceAll(rapid.String().Draw(t, "text"), "\x00", "")
		}
	case 1:
		raw := rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "bytes")
		if rapid.Bool().Draw(t, "the bytes are JSON") {
			raw = drawJSON(t, "bytes")
		} else if isJSON && domain.CheckJSON(raw) != nil {
			raw = []byte(strconv.Quote("no JSON in the binary form"))
		}
		e["data_base64"] = base64.StdEncoding.EncodeToString(raw)
	}
}
