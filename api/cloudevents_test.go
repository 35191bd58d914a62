package api_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/cloudevents/sdk-go/v2"
	"github.com/cloudevents/sdk-go/v2/binding"
	sdkhttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/cloudevents/sdk-go/v2/types"
	"github.com/coder/websocket"

	"github.com/manifold-es/manifold/domain"
)

// sdkEvents returns CloudEvents with every possible feature, made by the official SDK. Their ids begin with name.
func sdkEvents(t *testing.T, name string) []sdk.Event {
	t.Helper()
	add := func(all []sdk.Event, fill func(e *sdk.Event)) []sdk.Event {
		e := sdk.NewEvent()
		e.SetID(fmt.Sprintf("%s-%d", name, len(all)+1))
		e.SetSource("https://shop.example/orders?of=1#top")
		e.SetType("com.example.order.v1")
		fill(&e)
		must(t, e.Validate())
		return append(all, e)
	}
	var all []sdk.Event
	all = add(all, func(e *sdk.Event) {
		e.SetSubject("a/b")
		e.SetTime(time.Date(2026, 3, 1, 9, 30, 0, 123456789, time.UTC))
		e.SetDataSchema("https://shop.example/schemas/order.json")
		must(t, e.SetData(sdk.ApplicationJSON, object{"customer": "c-17", "total": 12.5, "items": list{"<&>", nil, true}}))
	})
	all = add(all, func(e *sdk.Event) { // every type of extension
		e.SetExtension("text", "100")
		e.SetExtension("count", -5)
		e.SetExtension("yes", true)
		e.SetExtension("bytes", []byte{0, 255})
		e.SetExtension("when", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
		e.SetExtension("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		e.SetExtension("tracestate", "a=b,c=d")
	})
	all = add(all, func(e *sdk.Event) { must(t, e.SetData("application/xml", []byte("<a b=\"c\">é\n</a>"))) })
	all = add(all, func(e *sdk.Event) {
		must(t, e.SetData("text/plain; charset=iso-8859-1", []byte{'h', 0xe9}))
		e.DataBase64 = true
	})
	all = add(all, func(e *sdk.Event) {
		must(t, e.SetData("application/octet-stream", []byte{0, 1, 2, 0xff, 0xfe}))
		e.DataBase64 = true
	})
	all = add(all, func(e *sdk.Event) {
		must(t, e.SetData("application/vnd.order+json", []byte(`{"of": ["its", "own", 1.50]}`)))
	})
	all = add(all, func(e *sdk.Event) { // an id like the log's own, and a time with its precision
		e.SetID(domain.NewEventID().String())
		e.SetSource("relative")
		e.SetTime(time.Date(2026, 3, 1, 9, 30, 0, 0, time.UTC))
		must(t, e.SetData(sdk.ApplicationJSON, 5))
	})
	return all
}

// plain returns the parts that must be equal in two CloudEvents. Headers turn all extensions into texts, and Manifold's
// own are left out.
func plain(t *testing.T, e sdk.Event) object {
	t.Helper()
	must(t, e.Validate())
	o := object{"id": e.ID(), "source": e.Source(), "type": e.Type(), "subject": e.Subject(), "time": e.Time().UTC().Format(time.RFC3339Nano), "schema": e.DataSchema()}
	for name, value := range e.Extensions() {
		if strings.HasPrefix(name, "manifold") {
			continue
		}
		text, err := types.Format(value)
		must(t, err)
		o["extension "+name] = text
	}
	kind := e.DataContentType()
	o["kind"], o["data"] = kind, string(e.Data())
	if strings.HasSuffix(kind, "json") {
		var value any
		must(t, json.Unmarshal(e.Data(), &value))
		o["data"] = value
	}
	return o
}

// send sends an event with the SDK's client, in the binary or the structured form.
func sendBySDK(t *testing.T, a *actor, path string, structured bool, event sdk.Event) {
	t.Helper()
	protocol, err := sdk.NewHTTP(sdk.WithTarget(a.url+path), sdkhttp.WithHeader("Authorization", "Bearer "+a.key))
	must(t, err)
	client, err := sdk.NewClient(protocol) // without a time added by the client
	must(t, err)
	ctx := binding.WithForceBinary(t.Context())
	if structured {
		ctx = binding.WithForceStructured(t.Context())
	}
	if result := client.Send(ctx, event); !sdk.IsACK(result) {
		t.Fatalf("%s in %s is answered %v", event, path, result)
	}
}

// sendBatch sends events as a batch made by the SDK.
func sendBatch(t *testing.T, a *actor, path string, events []sdk.Event) *answer {
	t.Helper()
	request, err := sdkhttp.NewHTTPRequestFromEvents(t.Context(), a.url+path, events)
	must(t, err)
	body, err := io.ReadAll(request.Body)
	must(t, err)
	return a.post(path, body, "Content-Type", request.Header.Get("Content-Type"))
}

// Events that the SDK sends in any form, to append and to publish, can be read by the SDK in any form, and nothing is
// lost.
func TestCloudEventsGoThroughUnharmed(t *testing.T) {
	t.Parallel()
	w := sharedWorld(t)
	for _, form := range []string{"binary", "structured", "batch"} {
		for _, path := range []string{"/v1/streams/order-7/events", "/v1/publish?topic=order&key=7"} {
			t.Logf("in the %s form to %s", form, path)
			a := w.tenant(form + path)
			events := sdkEvents(t, "sdk")
			if form == "batch" {
				sendBatch(t, a, path, events).want(201)
			} else {
				for _, event := range events {
					sendBySDK(t, a, path, form == "structured", event)
				}
			}
			readAllForms(t, a, events)
			// A repeated request finds the existing events.
			sendBatch(t, a, path, events).want(200)
		}
	}
}

// readAllForms reads stream order-7 in all forms, and checks the events.
func readAllForms(t *testing.T, a *actor, want []sdk.Event) {
	t.Helper()
	same := func(how string, got []sdk.Event) {
		t.Helper()
		if len(got) != len(want) {
			t.Errorf("%s: there are %d events, want %d", how, len(got), len(want))
			return
		}
		for i := range got {
			wanted := plain(t, want[i])
			if how == "binary" && wanted["kind"] == "" && len(want[i].Data()) > 0 {
				wanted["kind"] = sdk.ApplicationJSON
			}
			equal(t, how, plain(t, got[i]), wanted)
			equal(t, how+": where it is", got[i].Extensions()["manifoldposition"], fmt.Sprint(i+1))
			equal(t, how+": its stream", got[i].Extensions()["manifoldstream"], "order-7")
		}
	}
	const structured, batch = "application/cloudevents+json", "application/cloudevents-batch+json"
	for _, path := range []string{"/v1/streams/order-7", "/v1/streams/$all", "/v1/categories/order/events"} {
		page := a.open("GET", path, nil, "Accept", batch)
		got, err := sdkhttp.NewEventsFromHTTPResponse(page)
		must(t, err)
		page.Body.Close()
		same("a page", got)
		for _, accept := range []string{structured, "application/x-ndjson, " + structured} {
			lines := a.get(path, "Accept", accept).want(200)
			equal(t, "the media type", lines.header.Get("Content-Type"), ndjsonType)
			same("lines", unmarshalLines(t, lines.body))
		}
	}
	latest := a.open("GET", "/v1/categories/order/latest?keys=7,8", nil, "Accept", batch)
	got, err := sdkhttp.NewEventsFromHTTPResponse(latest)
	must(t, err)
	latest.Body.Close()
	equal(t, "the newest", plain(t, got[0]), plain(t, want[len(want)-1]))

	// One by one, by the ids that the log assigned.
	var binary, one []sdk.Event
	for i := range want {
		id := a.get("/v1/streams/order-7").at("events", i, "id").(string)
		for accept, all := range map[string]*[]sdk.Event{"application/cloudevents-binary": &binary, structured: &one} {
			response := a.open("GET", "/v1/events/"+id, nil, "Accept", accept)
			equal(t, "the status", response.StatusCode, 200)
			event, err := sdkhttp.NewEventFromHTTPResponse(response)
			must(t, err)
			response.Body.Close()
			*all = append(*all, *event)
		}
	}
	same("structured", one)
	same("binary", binary)

	for _, transport := range transports {
		same("following by "+transport, a.followCloudEvents(t, transport, "/v1/subscribe/streams/order-7", len(want)))
	}

	a.send("PUT", "/v1/subscriptions/all", object{"source": object{"categories": list{"order"}}}).want(201)
	var received []sdk.Event
	for len(received) < len(want) {
		response := a.open("POST", "/v1/subscriptions/all/receive", object{"wait": 20}, "Accept", batch)
		deliveries, err := sdkhttp.NewEventsFromHTTPResponse(response)
		must(t, err)
		response.Body.Close()
		received = append(received, deliveries...)
		var ids list
		for _, event := range deliveries {
			if event.Extensions()["manifoldackdeadline"] == nil {
				t.Errorf("there is no deadline: %s", event)
			}
			ids = append(ids, object{"id": event.Extensions()["manifoldid"], "attempt": event.Extensions()["manifoldattempt"]})
		}
		equal(t, "what became of them", outcomes(a.post("/v1/subscriptions/all/ack", object{"ids": ids}).want(200).json()), slices.Repeat([]string{"done"}, len(ids)))
	}
	same("received", received)

	g := a.gateway()
	g.ask("SUBSCRIBE", object{"subscription": "s", "source": object{"stream": "order-7"}, "format": "cloudevents"})
	var gathered []sdk.Event
	for len(gathered) < len(want) {
		text, err := json.Marshal(g.come("EVENT", "s")["event"])
		must(t, err)
		gathered = append(gathered, unmarshalLines(t, text)...)
	}
	same("by the gateway", gathered)

	a.post("/v1/subscriptions/all/seek", object{"position": 1}).want(200)
	g.ask("SUBSCRIBE", object{"subscription": "all", "group": "all", "format": "cloudevents"})
	var delivered []sdk.Event
	for len(delivered) < len(want) {
		message := g.come("EVENT", "all")
		text, err := json.Marshal(message["event"])
		must(t, err)
		delivered = append(delivered, unmarshalLines(t, text)...)
		ids := list{object{"id": message["event"].(object)["manifoldid"], "attempt": message["attempt"]}}
		equal(t, "what became of it", outcomes(g.ask("ACK", object{"subscription": "all", "ids": ids})), []string{"done"})
	}
	same("delivered by the gateway", delivered)
}

const ndjsonType = "application/x-ndjson"

func unmarshalLines(t *testing.T, text []byte) []sdk.Event {
	t.Helper()
	var all []sdk.Event
	for line := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n") {
		var e sdk.Event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// followCloudEvents follows until it has caught up, and returns the events. Each frame is a CloudEvent.
func (a *actor) followCloudEvents(t *testing.T, transport, path string, count int) []sdk.Event {
	t.Helper()
	const structured = "application/cloudevents+json"
	var next func() []byte
	switch transport {
	case "websocket":
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		conn, response, err := websocket.Dial(ctx, strings.Replace(a.url, "http", "ws", 1)+path, &websocket.DialOptions{
			HTTPHeader: http.Header{"Authorization": {"Bearer " + a.key}}, Subprotocols: []string{"other", "cloudevents.json"},
		})
		must(t, err)
		defer func() { _ = conn.CloseNow() }()
		conn.SetReadLimit(-1)
		equal(t, "the subprotocol", response.Header.Get("Sec-WebSocket-Protocol"), "cloudevents.json")
		next = func() []byte {
			_, message, err := conn.Read(ctx)
			must(t, err)
			return message
		}
	case "sse":
		response := a.open("GET", path, nil, "Accept", "text/event-stream, "+structured)
		defer response.Body.Close()
		wantStream(t, response, "text/event-stream")
		lines := bufio.NewReader(response.Body)
		next = func() []byte {
			for {
				line, err := lines.ReadBytes('\n')
				must(t, err)
				if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
					return data
				}
			}
		}
	default:
		response := a.open("GET", path, nil, "Accept", structured)
		defer response.Body.Close()
		wantStream(t, response, ndjsonType)
		lines := bufio.NewReader(response.Body)
		next = func() []byte {
			line, err := lines.ReadBytes('\n')
			must(t, err)
			return line
		}
	}
	var all []sdk.Event
	for {
		frame := unmarshalLines(t, next())[0]
		must(t, frame.Validate())
		if frame.Type() == "manifold.caught-up" {
			equal(t, "the place", frame.Extensions(), object{"manifoldposition": fmt.Sprint(count)})
			return all
		}
		all = append(all, frame)
	}
}

// Events that were not appended as CloudEvents can be read as CloudEvents, too.
func TestEventsOfTheLogAreCloudEvents(t *testing.T) {
	t.Parallel()
	a := newWorld(t, nil).tenant("acme")
	id := domain.NewEventID().String()
	a.post("/v1/streams/order-a-b/events", list{object{"id": id, "type": "OrderPlaced", "data": object{"n": 1}, "metadata": object{"user": "u-1"}, "occurredAt": "2026-03-01T09:30:00Z"}},
		"traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01").want(201)
	got := a.get("/v1/events/"+id, "Accept", "application/cloudevents+json").want(200)
	equal(t, "the media type", got.header.Get("Content-Type"), "application/cloudevents+json")
	event := got.json()
	equal(t, "when it was recorded", event["manifoldrecordedat"], a.get("/v1/events/"+id).at("recordedAt"))
	delete(event, "manifoldrecordedat")
	equal(t, "the event", event, object{
		"specversion": "1.0", "id": id, "source": "/categories/order", "subject": "a-b", "type": "OrderPlaced", "time": "2026-03-01T09:30:00.000000Z",
		"datacontenttype": "application/json", "data": object{"n": 1},
		"manifoldid": id, "manifoldstream": "order-a-b", "manifoldversion": "1", "manifoldposition": "1", "manifoldmetadata": `{"user":"u-1"}`,
		"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
	})
	// The event is the same after it moves to another log.
	b := a.world.tenant("other")
	b.post("/v1/publish?topic=order", got.body, "Content-Type", "application/cloudevents+json").want(201)
	there := b.get("/v1/events/" + id).want(200).json()
	here := a.get("/v1/events/" + id).json()
	for _, o := range []object{there, here} {
		delete(o, "recordedAt")
	}
	equal(t, "the event in another log", there, here)
}

// Without parameters, type and subject are topic and key. An empty key means no key.
func TestCloudEventsArePublishedByTypeAndSubject(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	event := func(id string, more object) object {
		o := object{"specversion": "1.0", "id": id, "source": "s", "type": "order.placed"}
		for name, value := range more {
			o[name] = value
		}
		return o
	}
	const structured, batch = "application/cloudevents+json", "application/cloudevents-batch+json; charset=UTF-8"
	own := domain.DeriveEventID("cloudevents", "s", "1").String()
	equal(t, "the stream", a.post("/v1/publish", event("1", nil), "Content-Type", structured).want(201).at("events", 0, "stream"), "order.placed-"+own)
	published := a.post("/v1/publish?topic=order", list{event("2", object{"subject": "x-1"}), event("3", nil)}, "Content-Type", batch).want(201)
	equal(t, "the first", published.at("events", 0, "stream"), "order-x-1")
	equal(t, "the second", published.at("events", 1, "stream"), "order-"+domain.DeriveEventID("cloudevents", "s", "3").String())
	equal(t, "a key", a.post("/v1/publish?topic=order&key=k", event("4", object{"subject": "a b"}), "Content-Type", structured).want(201).at("events", 0, "stream"), "order-k")
	equal(t, "no key", a.post("/v1/publish?key=", event("5", object{"subject": "a b"}), "Content-Type", structured).want(201).at("events", 0, "stream"), "order.placed-"+domain.DeriveEventID("cloudevents", "s", "5").String())
	equal(t, "in the binary form", a.post("/v1/publish?topic=order", "hello", "Content-Type", "text/plain", "ce-specversion", "1.0", "ce-id", "6", "ce-source", "s", "ce-type", "T", "ce-subject", "x-1").want(201).at("events", 0, "stream"), "order-x-1")
	// Projections see its data.
	equal(t, "the data", a.get("/v1/streams/order-x-1").at("events", 1, "data"), "hello")
}

// The ids that the service assigns are UUIDs of version 7, ordered by time.
func TestIDsThatTheServiceGives(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	began := time.Now().Add(-time.Second)
	ids := []any{
		a.post("/v1/streams/order-1/events", list{object{"type": "A", "data": 1}}).want(201).at("events", 0, "id"),
		a.post("/v1/append", object{"streams": list{object{"stream": "order-2", "events": list{object{"type": "A", "data": 1}}}}}).want(201).at("streams", 0, "events", 0, "id"),
		a.post("/v1/publish", object{"topic": "order", "key": "3", "payload": 1}).want(201).at("events", 0, "id"),
		a.post("/v1/publish", object{"topic": "order", "payload": 1}).want(201).at("events", 0, "id"),
		a.gateway().ask("PUBLISH", object{"message": object{"topic": "order", "payload": 1}})["events"].(list)[0].(object)["id"],
	}
	for i, id := range ids {
		text := id.(string)
		if text[14] != '7' || !strings.ContainsRune("89ab", rune(text[19])) {
			t.Errorf("id %d is %s, which is no UUID of version 7", i, text)
		}
		var millis int64
		_, err := fmt.Sscanf(text[:8]+text[9:13], "%x", &millis)
		must(t, err)
		if at := time.UnixMilli(millis); at.Before(began) || at.After(time.Now().Add(time.Second)) {
			t.Errorf("id %d is of %s", i, at)
		}
	}
}
