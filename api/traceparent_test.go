package api

import (
	"encoding/json"
	"maps"
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/domain"
)

const someTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestTraceparent(t *testing.T) {
	t.Parallel()
	for value, good := range map[string]bool{
		someTrace: true,
		"cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00": true,
		"00-00000000000000000000000000000001-0000000000000001-00": true,
		"":                    false,
		someTrace + "-more":   false,
		someTrace[:54]:        false,
		"ff" + someTrace[2:]:  false,
		"00_" + someTrace[3:]: false,
		"00-" + "4BF92F3577B34DA6" + someTrace[19:]:               false,
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01": false,
		"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01": false,
		"00-4bf92f3577b34da6a3ce929d0e0e473-600f067aa0ba902b7-01": false,
		`00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0"`: false,
	} {
		if got := wire.Traceparent(http.Header{"Traceparent": {value}}); (got == value) != good && value != "" || got != "" && !good {
			t.Errorf("%q is taken as %q", value, got)
		}
	}
	if got := wire.Traceparent(http.Header{"Traceparent": {someTrace, someTrace}}); got != "" {
		t.Errorf("two are taken as %q", got)
	}
}

// kept returns the metadata after a request with a traceparent.
func kept(metadata string) json.RawMessage {
	event := domain.NewEvent{Type: "A", Data: json.RawMessage(`1`)}
	if metadata != "" {
		event.Metadata = json.RawMessage(metadata)
	}
	request := domain.Append{Streams: []domain.StreamAppend{{Stream: "a-1", Events: []domain.NewEvent{event}}}}
	wire.KeepTrace(http.Header{"Traceparent": {someTrace}}, request)
	return request.Streams[0].Events[0].Metadata
}

func TestKeepTrace(t *testing.T) {
	t.Parallel()
	ours := `"traceparent":"` + someTrace + `"}`
	for metadata, want := range map[string]string{
		``:                            `{` + ours,
		`{}`:                          `{` + ours,
		"{ \n }":                      `{` + ours,
		`{"a":1}`:                     `{"a":1,` + ours,
		`{ "a": {"traceparent":1} }`:  `{"a": {"traceparent":1},` + ours,
		`{"a":"traceparent"}`:         `{"a":"traceparent",` + ours,
		`{"traceparent":null,"b":2}`:  `{"traceparent":null,"b":2}`,
		`{"\u0074raceparent":"mine"}`: `{"\u0074raceparent":"mine"}`,
		`[1]`:                         `[1]`,
		`"a"`:                         `"a"`,
	} {
		if got := string(kept(metadata)); got != want {
			t.Errorf("%s becomes %s, want %s", metadata, got, want)
		}
	}
	// The log refuses texts with a zero byte.
	text := rapid.String().Filter(func(text string) bool { return strings.IndexByte(text, 0) < 0 })
	rapid.Check(t, func(t *rapid.T) {
		object := rapid.MapOf(rapid.OneOf(text, rapid.Just("traceparent")), text).Draw(t, "metadata")
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]string
		if err := json.Unmarshal(kept(string(text)), &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &object); err != nil { // the text as JSON decodes it
			t.Fatal(err)
		}
		if _, has := object["traceparent"]; !has {
			object["traceparent"] = someTrace
		}
		if !maps.Equal(got, object) {
			t.Fatalf("%s becomes %v", text, got)
		}
	})
}
