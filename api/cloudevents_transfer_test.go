package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	sdk "github.com/cloudevents/sdk-go/v2"
	sdkhttp "github.com/cloudevents/sdk-go/v2/protocol/http"

	"github.com/manifold-es/manifold/domain"
)

// Dead letters can be read as CloudEvents, and published again unchanged.
func TestDeadLettersAreCloudEvents(t *testing.T) {
	t.Parallel()
	a := newWorld(t, nil).tenant("acme")
	events := sdkEvents(t, "dead")
	sendBatch(t, a, "/v1/streams/order-7/events", events).want(201)
	c := a.consumer("mail", object{"source": object{"categories": list{"order"}}, "partitions": 0})
	received := c.receive(100)
	c.answer("nack", object{"action": "park", "reason": "the mail server\nsays \"no\" to é\u0085"}, received...)

	const batch = "application/cloudevents-batch+json"
	read := func(path string) ([]sdk.Event, string) {
		t.Helper()
		response := a.open("GET", path, nil, "Accept", batch)
		defer response.Body.Close()
		equal(t, "the media type", response.Header.Get("Content-Type"), batch)
		letters, err := sdkhttp.NewEventsFromHTTPResponse(response)
		must(t, err)
		return letters, response.Header.Get("Link")
	}
	letters, link := read(c.path("/dead-letters"))
	equal(t, "the link of the only page", link, "")
	equal(t, "how many there are", len(letters), len(events))
	plainLetters := a.get(c.path("/dead-letters")).want(200)
	for i, letter := range letters {
		equal(t, "the event", plain(t, letter), plain(t, events[i]))
		extensions := letter.Extensions()
		equal(t, "the position", extensions["manifoldposition"], fmt.Sprint(i+1))
		equal(t, "the attempts", extensions["manifoldattempts"], int32(1))
		equal(t, "the reason", extensions["manifoldreason"], "the mail server says \"no\" to é ")
		for name, field := range map[string]string{"manifoldparkedat": "parkedAt", "manifoldfirstparked": "firstParkedAt", "manifoldid": "event"} {
			want := plainLetters.at("deadLetters", i, field)
			if event, ok := want.(object); ok {
				want = event["id"]
			}
			equal(t, field, extensions[name], want)
		}
		for _, absent := range []string{"manifoldreplays", "manifoldreplayat", "manifoldpartition", "manifoldattempt"} {
			equal(t, absent, extensions[absent], nil)
		}
	}
	first, link := read(c.path("/dead-letters?pageSize=1"))
	equal(t, "a page", list{len(first), strings.Contains(link, `rel="next"`)}, list{1, true})

	// The target does not store the extensions of a delivery.
	other := a.world.tenant("other")
	sendBatch(t, other, "/v1/publish?topic=order&key=7", letters).want(201)
	readAllForms(t, other, events)

	// A replayed dead letter, and the events of a group with partitions.
	a.post(c.path("/dead-letters/replay"), nil).want(202)
	c.answer("nack", object{"action": "park"}, c.receive(100)...)
	letters, _ = read(c.path("/dead-letters"))
	equal(t, "the replays", letters[0].Extensions()["manifoldreplays"], int32(1))
	equal(t, "no reason", letters[0].Extensions()["manifoldreason"], nil)
}

// An export as CloudEvents can be imported into another log, with the same result as an export as lines: the same
// streams and ids.
func TestExportsAreCloudEventsThatCanBeImported(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	a := w.tenant("acme")
	events := sdkEvents(t, "out")
	sendBatch(t, a, "/v1/streams/order-7/events", events).want(201)
	// Ordinary events: some have metadata, and some have metadata that only resembles a CloudEvent's.
	a.post("/v1/streams/invoice-a-b/events", list{
		object{"type": "Placed", "data": object{"<&>": "é\u007f"}, "metadata": object{"user": "u\u0085"}, "occurredAt": "2026-03-01T09:30:00Z"},
		object{"type": "Placed", "data": "AA==", "metadata": object{"cloudevents": object{"id": "forged", "source": "s", "data": "base64"}}, "occurredAt": "2026-03-01T09:30:00Z"},
		object{"type": "Placed", "data": nil, "metadata": object{"cloudevents": object{"id": 5}, "traceparent": "x"}, "occurredAt": "2026-03-01T09:30:00Z"},
		object{"type": "Placed", "data": 1, "metadata": list{1}, "occurredAt": "2026-03-01T09:30:00Z"},
		object{"type": "Large", "data": strings.Repeat("d", 1000), "metadata": object{"quotes": strings.Repeat(`"`, domain.MaxEventBytes/2-1000)}, "occurredAt": "2026-03-01T09:30:00Z"},
	}).want(201)

	const structured = "application/cloudevents+json"
	for _, accept := range []string{structured, ndjson + ", " + structured, "application/cloudevents-batch+json"} {
		export := a.get("/v1/export", "Accept", accept).want(200)
		equal(t, "the media type", export.header.Get("Content-Type"), ndjsonType)
		for _, event := range unmarshalLines(t, export.body) {
			must(t, event.Validate())
		}
		equal(t, "the first with from", unmarshalLines(t, a.get("/v1/export?from=3", "Accept", accept).want(200).body)[0].Extensions()["manifoldposition"], "3")

		b := w.tenant("into another by " + accept)
		count := len(events) + 5
		equal(t, "the import", b.importLines("", string(export.body)), object{"lines": count, "appended": count, "duplicates": 0, "badLines": 0, "bad": nil, "position": count, "done": true})
		equal(t, "the import again", b.importLines("?strict=true", string(export.body))["duplicates"], count)
		same := func(lines []object) []object {
			for _, line := range lines {
				delete(line, "recordedAt")
				if line["time"] == nil {
					delete(line, "time")
				}
			}
			return lines
		}
		there, here := same(b.get("/v1/export").want(200).lines()), same(a.get("/v1/export").want(200).lines())
		for i := range here {
			equal(t, "the event in the other log", there[i], here[i])
		}
		readStreamAgain, err := sdkhttp.NewEventsFromHTTPResponse(b.open("GET", "/v1/streams/order-7", nil, "Accept", "application/cloudevents-batch+json"))
		must(t, err)
		for i, event := range readStreamAgain {
			equal(t, "the CloudEvent in the other log", plain(t, event), plain(t, events[i]))
		}
	}
}

// Imported CloudEvents from elsewhere go to the streams to which publishing would bring them. An import can mix them
// with other lines.
func TestImportTakesCloudEvents(t *testing.T) {
	t.Parallel()
	a := newWorld(t, nil).tenant("acme")
	lines := []string{
		`{"id":"1","source":"s","type":"order.placed","subject":"x-1","specversion":"1.0","data":{"n":1}}`,
		`{"specversion":"1.0","id":"2","source":"s","type":"order.placed","data_base64":"AAEC"}`,
		`{"stream":"order-1","id":"0190d3a4-5b6c-7def-8123-456789abcde0","type":"A","data":{"specversion":"1.0"}}`,
		`{"specversion":"1.0","id":"3","source":"s","type":"com.example/placed"}`,
		`{"specversion":"1.0","id":"4","source":"s","type":"T","subject":"a b"}`,
		`{"specversion":"0.3","id":"5","source":"s","type":"T"}`,
		`{"specversion":"1.0","id":"6","source":"s","type":"T","manifoldstream":"order"}`,
		`{"specversion":"1.0","id":"7","source":"s","type":"T","manifoldid":"7"}`,
		`{"specversion":"1.0","source":"s","type":"T"}`,
		`{"id":"8","type":"T","data":{"specversion":"1.0"}}`,
		`{"specversion":"1.0","id":"caught-up-17","source":"/v1/subscribe","type":"manifold.caught-up","manifoldposition":"17"}`,
	}
	last := a.importLines("?strict=false", strings.Join(lines, "\n"))
	equal(t, "how many", list{last["appended"], last["badLines"]}, list{3, 8})
	reasons := map[int]string{}
	for _, bad := range last["bad"].(list) {
		reasons[int(bad.(object)["line"].(float64))] = bad.(object)["reason"].(string)
	}
	for line, want := range map[int]string{
		4: "type: ", 5: "subject: ", 6: "specversion: ", 7: "manifoldstream: ", 8: "manifoldid: ", 9: "id: required, but missing", 10: "id: ", 11: "type: ",
	} {
		if !strings.Contains(reasons[line], want) {
			t.Errorf("line %d is bad since %q, want %q", line, reasons[line], want)
		}
	}
	if !strings.Contains(reasons[4], "manifoldstream") {
		t.Errorf("it is not said how else a stream can be named: %q", reasons[4])
	}
	equal(t, "the first", a.get("/v1/streams/order.placed-x-1").want(200).at("events", 0, "data"), object{"n": 1})
	own := domain.DeriveEventID("cloudevents", "s", "2").String()
	equal(t, "the second", a.get("/v1/events/"+own).want(200).at("stream"), "order.placed-"+own)
	limited := a.world.tenant("limited")
	key := &actor{a.world, a.world.key(limited.tenantID, "events:append:order.*", "events:read"), limited.tenantID}
	equal(t, "a key for other categories", key.importLines("", lines[0])["appended"], 1)
	bad := key.importLines("", `{"specversion":"1.0","id":"1","source":"s","type":"invoice.placed"}`)["bad"].(list)[0].(object)["reason"].(string)
	if !strings.Contains(bad, "stream: ") {
		t.Errorf("it is refused with %q", bad)
	}
}

// The gateway publishes CloudEvents of the SDK, one or several, exactly as HTTP does.
func TestTheGatewayTakesCloudEvents(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	raw := func(event sdk.Event) json.RawMessage {
		text, err := json.Marshal(event)
		must(t, err)
		return text
	}
	a := w.tenant("one by one")
	events := sdkEvents(t, "one")
	g := a.gateway()
	for i, event := range events {
		fields := object{"format": "cloudevents", "topic": "order", "key": "7", "message": raw(event)}
		got := g.ask("PUBLISH", fields)
		equal(t, "where it is", list{got["position"], got["duplicate"], got["events"].(list)[0].(object)["stream"]}, list{i + 1, false, "order-7"})
		equal(t, "that it is there", g.ask("PUBLISH", fields)["duplicate"], true)
	}
	readAllForms(t, a, events)

	b := w.tenant("several")
	events = sdkEvents(t, "several")
	var all []json.RawMessage
	for _, event := range events {
		all = append(all, raw(event))
	}
	g = b.gateway()
	equal(t, "the position", g.ask("PUBLISH", object{"format": "cloudevents", "topic": "order", "key": "7", "messages": all})["position"], len(events))
	readAllForms(t, b, events)
	sendBatch(t, b, "/v1/publish?topic=order&key=7", events).want(200) // the same over HTTP

	// By type and subject, without topic and key.
	event := func(id string, more object) object {
		o := object{"specversion": "1.0", "id": id, "source": "s", "type": "order.placed"}
		for name, value := range more {
			o[name] = value
		}
		return o
	}
	publish := func(fields object) object {
		t.Helper()
		fields["format"] = "cloudevents"
		return g.ask("PUBLISH", fields)
	}
	stream := func(fields object) any {
		t.Helper()
		return publish(fields)["events"].(list)[0].(object)["stream"]
	}
	own := func(id string) string { return domain.DeriveEventID("cloudevents", "s", id).String() }
	equal(t, "type alone", stream(object{"message": event("1", nil)}), "order.placed-"+own("1"))
	equal(t, "type and subject", stream(object{"message": event("2", object{"subject": "x-1"})}), "order.placed-x-1")
	equal(t, "no key", stream(object{"key": "", "message": event("3", object{"subject": "a b"})}), "order.placed-"+own("3"))
	equal(t, "a topic", stream(object{"topic": "order", "messages": list{event("4", object{"type": "a/b", "subject": "x-1"})}}), "order-x-1")

	refused := func(fields object, code domain.Code, where string) {
		t.Helper()
		fields["format"] = "cloudevents"
		g.refused("PUBLISH", fields, code, where)
	}
	const invalid = domain.CodeInvalidRequest
	refused(object{"message": event("5", object{"type": "a/b"})}, invalid, "message.type")
	refused(object{"messages": list{event("6", nil), event("7", object{"subject": "a b"})}}, invalid, "messages[1].subject")
	refused(object{"messages": list{event("8", nil), event("9", object{"Loud": "x"})}}, invalid, "messages[1].Loud")
	refused(object{"topic": "a-b", "message": event("10", nil)}, invalid, "topic")
	refused(object{"key": "a b", "message": event("11", nil)}, invalid, "key")
	refused(object{"key": nil, "message": event("11", nil)}, invalid, "key")
	refused(object{"message": list{event("12", nil)}}, invalid, "message")
	refused(object{"messages": event("13", nil)}, invalid, "messages")
	refused(object{"messages": list{}}, invalid, "messages")
	refused(object{"message": event("14", nil), "messages": list{event("15", nil)}}, invalid, "messages")
	refused(object{}, invalid, "message")
	refused(object{"message": event("16", object{"specversion": "0.3"})}, domain.CodeUnsupported, "message.specversion")
	refused(object{"message": event("2", object{"subject": "x-1", "data": "other"})}, domain.CodeEventIDConflict, "message.id")
	g.refused("PUBLISH", object{"format": "standard", "topic": "order", "message": object{"topic": "order", "payload": 1}}, invalid, "topic")
	g.refused("PUBLISH", object{"format": "other", "message": object{"topic": "order", "payload": 1}}, invalid, "format")
	equal(t, "the other format by its name", g.ask("PUBLISH", object{"format": "standard", "message": object{"topic": "order", "payload": 1}})["duplicate"], false)
}
