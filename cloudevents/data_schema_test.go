package cloudevents_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
)

// Structured and binary events have the dataschema that they came with, or else the encoder's.
func TestDataSchemasGoOut(t *testing.T) {
	t.Parallel()
	const ours = "https://events.example/v1/schemas/T/versions/2"
	encoder := cloudevents.Encoder{DataSchema: func(event *domain.Event) string {
		if event.Type != "T" {
			return ""
		}
		return ours
	}}
	plain := domain.Event{ID: domain.NewEventID(), Stream: "order-7", Version: 3, Position: 17, Type: "T", Data: json.RawMessage(`{"n": 1}`), RecordedAt: recorded}
	of := func(text string) domain.Event {
		event, err := cloudevents.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return logged(t, event, "order-7")
	}
	other, gap := plain, plain
	other.Type, gap.Gap, gap.Data = "U", &domain.EventGap{Reason: domain.GapRedacted}, json.RawMessage("null")
	for name, c := range map[string]struct {
		event domain.Event
		want  string
	}{
		"an event of the log":     {plain, ours},
		"one without a version":   {other, ""},
		"one without its data":    {gap, ""},
		"a CloudEvent":            {of(`{"specversion":"1.0","id":"1","source":"s","type":"T","data":1}`), ours},
		"one with a dataschema":   {of(`{"specversion":"1.0","id":"1","source":"s","type":"T","dataschema":"x:y","data":1}`), "x:y"},
		"JSON of a special type":  {of(`{"specversion":"1.0","id":"1","source":"s","type":"T","datacontenttype":"application/vnd.x+json","data_base64":"e30="}`), ours},
		"bytes":                   {of(`{"specversion":"1.0","id":"1","source":"s","type":"T","data_base64":"AP8="}`), ""},
		"a CloudEvent with none":  {of(`{"specversion":"1.0","id":"1","source":"s","type":"T"}`), ""},
		"a CloudEvent of another": {of(`{"specversion":"1.0","id":"1","source":"s","type":"U","data":1}`), ""},
	} {
		var got struct{ DataSchema string }
		text := encoder.Append(nil, &c.event)
		if err := json.Unmarshal(text, &got); err != nil || got.DataSchema != c.want || strings.Count(string(text), "dataschema") > 1 {
			t.Errorf("%s is written as %s, %v; want the dataschema %q", name, text, err, c.want)
		}
		binary := ""
		encoder.Binary(&c.event, func(attribute, value string) {
			if attribute == "dataschema" {
				binary += value
			}
		})
		if binary != c.want {
			t.Errorf("in the binary form %s has the dataschema %q, want %q", name, binary, c.want)
		}
	}
}
