package outbox_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/outbox"
)

// Causes can be read from what they are written as.
func TestCausesGoThroughJSON(t *testing.T) {
	t.Parallel()
	for _, causes := range []outbox.Causes{{"a"}, {"a", "b"}, {}} {
		text, err := json.Marshal(outbox.Event{CausedBy: causes, Payload: json.RawMessage("1")})
		if err != nil {
			t.Fatal(err)
		}
		var event outbox.Event
		if err := json.Unmarshal(text, &event); err != nil || !slices.Equal(event.CausedBy, causes) {
			t.Errorf("%s is read as %v, %v", text, event.CausedBy, err)
		}
	}
}

// The row contains all of the event, as it is published, and its future stream.
func TestRowOf(t *testing.T) {
	t.Parallel()
	id, cause := outbox.NewID(), outbox.NewID()
	row, err := outbox.RowOf(outbox.Event{
		ID: strings.ToUpper(id), Topic: "order", Key: "1-2", Type: "OrderPaid", Payload: json.RawMessage(`{"a":"<b>"}`), Headers: map[string]string{"h": "v"},
		Tags: []string{"t"}, CausedBy: outbox.Causes{cause}, SID: "s", OccurredAt: time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC),
	})
	want := `{"id":"` + id + `","topic":"order","key":"1-2","type":"OrderPaid","payload":{"a":"<b>"},"headers":{"h":"v"},"tags":["t"],"caused_by":"` + cause + `","sid":"s","ts":"2026-03-01T09:30:00Z"}`
	if err != nil || string(row.Message) != want || row.ID != id || row.Stream != "order-1-2" {
		t.Errorf("the row is %+v, %s; %v", row, row.Message, err)
	}
	row, err = outbox.RowOf(outbox.Event{Topic: "ping", Payload: json.RawMessage("null")})
	if err != nil || string(row.Message) != `{"id":"`+row.ID+`","topic":"ping","payload":null}` || row.Stream != "ping-"+row.ID || row.ID[14] != '7' {
		t.Errorf("the row is %+v, %s; %v", row, row.Message, err)
	}
}

// An event that would never be accepted is refused before it is added.
func TestRowOfRefuses(t *testing.T) {
	t.Parallel()
	payload := json.RawMessage("1")
	cause := outbox.NewID()
	var thirtyTwo []string
	for i := range domain.MaxTags {
		thirtyTwo = append(thirtyTwo, fmt.Sprintf("t:%d", i))
	}
	for _, c := range []struct {
		event outbox.Event
		where string
	}{
		{outbox.Event{Payload: payload}, "topic"},
		{outbox.Event{Topic: "a"}, "payload"},
		{outbox.Event{Topic: "a-b", Payload: payload}, "topic"},
		{outbox.Event{Topic: "a", Key: "b c", Payload: payload}, "key"},
		{outbox.Event{Topic: "a", Key: "\x00", Payload: payload}, "key"},
		{outbox.Event{Topic: "a", Type: "b c", Payload: payload}, "type"},
		{outbox.Event{Topic: "a"}, "payload"},
		{outbox.Event{Topic: "a", Payload: json.RawMessage(`"\u0000"`)}, "payload"},
		{outbox.Event{Topic: "a", Payload: json.RawMessage(`1,"key":2`)}, "payload"},
		{outbox.Event{Topic: "a", Payload: json.RawMessage(`"` + strings.Repeat("x", domain.MaxEventBytes) + `"`)}, "payload"},
		{outbox.Event{Topic: "a", Payload: payload, Headers: map[string]string{"h": strings.Repeat("x", domain.MaxEventBytes)}}, "payload"},
		{outbox.Event{Topic: "a", Payload: payload, Headers: map[string]string{"h": "\x00"}}, "headers"},
		{outbox.Event{Topic: "a", Payload: payload, ID: "x"}, "id"},
		{outbox.Event{Topic: "a", Payload: payload, ID: "00000000-0000-0000-0000-000000000000"}, "id"},
		{outbox.Event{Topic: "a", Payload: payload, CausedBy: outbox.Causes{cause, "x"}}, "caused_by"},
		{outbox.Event{Topic: "a", Payload: payload, CausedBy: outbox.Causes{"00000000-0000-0000-0000-000000000000"}}, "caused_by"},
		{outbox.Event{Topic: "a", Payload: payload, Tags: thirtyTwo, CausedBy: outbox.Causes{cause}}, "caused_by"},
		{outbox.Event{Topic: "a", Payload: nested(domain.MaxJSONDepth - 1)}, "payload"}, // it is published in an object in an array
		{outbox.Event{Topic: "a", Payload: payload, SID: strings.Repeat("\xff", domain.MaxSIDBytes)}, "sid"},
		{outbox.Event{Topic: "a", Payload: payload, Headers: map[string]string{"h": "\xff"}}, "headers"},
		{outbox.Event{Topic: "a", Payload: payload, Headers: map[string]string{"\xff": "v"}}, "headers"},
		{outbox.Event{Topic: "a", Payload: payload, Tags: []string{"\xff"}}, "tags[0]"},
		{outbox.Event{Topic: "a", Payload: payload, Tags: []string{"\x00"}}, "tags[0]"},
		{outbox.Event{Topic: "a", Payload: payload, SID: "\x00"}, "sid"},
		{outbox.Event{Topic: "a", Payload: payload, SID: strings.Repeat("x", domain.MaxSIDBytes+1)}, "sid"},
		{outbox.Event{Topic: "a", Payload: payload, OccurredAt: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}, "ts"},
	} {
		_, err := outbox.RowOf(c.event)
		if e, ok := errors.AsType[*domain.Error](err); !ok || e.Where != c.where {
			t.Errorf("topic %q, key %q: %.200v, want it at %s", c.event.Topic, c.event.Key, err, c.where)
		}
	}
}

func nested(depth int) json.RawMessage {
	return json.RawMessage(strings.Repeat("[", depth) + strings.Repeat("]", depth))
}

// Events at the service's limits are not refused, and times of any zone are preserved.
func TestRowOfTakes(t *testing.T) {
	t.Parallel()
	for _, event := range []outbox.Event{
		{Topic: "a", Payload: nested(domain.MaxJSONDepth - 2)},
		{Topic: "a", Payload: json.RawMessage("1"), SID: strings.Repeat("x", domain.MaxSIDBytes)},
	} {
		if _, err := outbox.RowOf(event); err != nil {
			t.Error(err)
		}
	}
	for at, want := range map[time.Time]string{
		time.Date(2026, 3, 1, 9, 30, 0, 0, time.FixedZone("", 19*60+32)):                   `"ts":"2026-03-01T09:10:28Z"}`,
		time.Date(10_000, 1, 1, 0, 30, 0, 0, time.FixedZone("", int(time.Hour.Seconds()))): `"ts":"9999-12-31T23:30:00Z"}`,
	} {
		row, err := outbox.RowOf(outbox.Event{Topic: "a", Payload: json.RawMessage("1"), OccurredAt: at})
		if err != nil || !strings.HasSuffix(string(row.Message), want) {
			t.Errorf("%s, %v; want %s", row.Message, err, want)
		}
	}
}
