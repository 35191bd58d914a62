package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/tables/tablestest"
)

// The decoder of the append path and the schemas of openapi.yaml accept the same bodies. The bodies are valid ones,
// often with one change. The test makes no change for which the decoder may be stricter than a schema can express (see
// appendBody).
func TestAppendBodyIsAlikeToTheContract(t *testing.T) {
	t.Parallel()
	spec, err := openapi3.NewLoader().LoadFromData(openapi.YAML)
	if err != nil {
		t.Fatal(err)
	}
	agree := func(t *rapid.T, body any, schema string, decode func([]byte) error) {
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		var value any
		if err := json.Unmarshal(text, &value); err != nil {
			t.Fatal(err)
		}
		bySchema := spec.Components.Schemas[schema].Value.VisitJSON(value, openapi3.EnableFormatValidation())
		byDecoder := decode(text)
		if (bySchema == nil) != (byDecoder == nil) {
			t.Fatalf("%s\nby the schema: %v\nby the decoder: %v", text, bySchema, byDecoder)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		events := drawEvents(t)
		agree(t, events, "NewEvents", func(text []byte) error { _, err := wire.DecodeEvents(text); return err })
	})
	rapid.Check(t, func(t *rapid.T) {
		request := drawRequest(t)
		agree(t, request, "AppendRequest", func(text []byte) error { _, err := wire.DecodeAppend(text); return err })
	})
	rapid.Check(t, func(t *rapid.T) {
		read := drawRead(t)
		agree(t, read, "QueryRequest", func(text []byte) error { _, err := wire.DecodeQuery(text); return err })
	})
	rapid.Check(t, func(t *rapid.T) {
		attempts := drawAttempts(t)
		agree(t, attempts, "Attempts", func(text []byte) error { _, err := wire.DecodeAttempts(text); return err })
	})
	rapid.Check(t, func(t *rapid.T) {
		receive := drawReceive(t)
		agree(t, receive, "Receive", func(text []byte) error { _, err := wire.DecodeReceive(text); return err })
	})
}

// strange are values of every kind, for a place that requires another kind.
var strange = rapid.SampledFrom([]any{nil, true, 0, 7, -1, 1.5, "", "x", "any", "order-1", []any{}, []any{1}, map[string]any{}, map[string]any{"type": "T"}})

func drawEvents(t *rapid.T) any {
	if rapid.IntRange(0, 9).Draw(t, "events are strange") == 0 {
		return strange.Draw(t, "events")
	}
	events := []any{}
	for range rapid.IntRange(0, 3).Draw(t, "events") {
		events = append(events, drawEvent(t))
	}
	return events
}

func drawEvent(t *rapid.T) any {
	anything := rapid.SampledFrom([]any{nil, 1, "text", []any{1, nil}, map[string]any{"a": map[string]any{}}})
	event := map[string]any{
		"type": rapid.StringMatching(`[A-Za-z0-9_.:/+-]{1,20}`).Draw(t, "type"),
		"data": anything.Draw(t, "data"),
	}
	if rapid.Bool().Draw(t, "metadata") {
		event["metadata"] = anything.Draw(t, "metadata")
	}
	if rapid.Bool().Draw(t, "id") {
		event["id"] = rapid.StringMatching(`[1-9a-fA-F]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`).Draw(t, "id")
	}
	if rapid.Bool().Draw(t, "occurredAt") {
		event["occurredAt"] = rapid.SampledFrom([]string{"2026-03-01T09:30:00Z", "2026-03-01T09:30:00.123+02:00", "1999-12-31T23:59:59.999999999-05:30"}).Draw(t, "occurredAt")
	}
	if rapid.Bool().Draw(t, "tags") {
		event["tags"] = drawTags(t, 32)
	}
	fields := []string{"type", "data", "metadata", "id", "occurredAt", "tags"}
	switch rapid.IntRange(0, 6).Draw(t, "change of the event") {
	case 0:
		delete(event, rapid.SampledFrom(fields).Draw(t, "missing"))
	case 1:
		event[rapid.SampledFrom(fields).Draw(t, "strange")] = strange.Draw(t, "value")
	case 2:
		event[rapid.StringMatching(`[a-z]{1,3}`).Draw(t, "unknown")] = 1
	case 3:
		event["type"] = rapid.SampledFrom([]string{"", "a b", "ä", strings.Repeat("t", 200), strings.Repeat("t", 201)}).Draw(t, "type")
	case 4:
		return strange.Draw(t, "event")
	}
	return event
}

func drawRequest(t *rapid.T) any {
	streams := []any{}
	for i := range rapid.IntRange(0, 3).Draw(t, "streams") {
		stream := map[string]any{"stream": "order-" + string(rune('a'+i)), "events": drawEvents(t)}
		if rapid.Bool().Draw(t, "expectedVersion") {
			stream["expectedVersion"] = rapid.SampledFrom([]any{"any", "none", "exists", "7", "007", 0, 7, 12345678901, "", "some", "-1", -1, 1.5, true, nil, "1234567890123456789", []any{}}).Draw(t, "expectedVersion")
		}
		switch rapid.IntRange(0, 9).Draw(t, "change of the stream") {
		case 0:
			delete(stream, rapid.SampledFrom([]string{"stream", "events"}).Draw(t, "missing"))
		case 1:
			stream["colour"] = 1
		case 2:
			stream["stream"] = rapid.SampledFrom([]any{nil, 1, "", "ab", "x-" + strings.Repeat("y", 300)}).Draw(t, "stream")
		}
		streams = append(streams, stream)
	}
	request := map[string]any{"streams": streams}
	switch rapid.IntRange(0, 3).Draw(t, "condition") {
	case 0:
		request["condition"] = drawCondition(t)
	case 1:
		conditions := []any{}
		for range rapid.SampledFrom([]int{0, 1, 2, 16, 17}).Draw(t, "conditions") {
			conditions = append(conditions, drawCondition(t))
		}
		request["condition"] = conditions
	}
	switch rapid.IntRange(0, 9).Draw(t, "change of the request") {
	case 0:
		delete(request, "streams")
	case 1:
		request["colour"] = 1
	case 2:
		request["streams"] = strange.Draw(t, "streams")
	case 3:
		return strange.Draw(t, "request")
	}
	return request
}

func drawTags(t *rapid.T, most int) any {
	tags := []any{}
	for range rapid.SampledFrom([]int{0, 1, 2, most, most + 1}).Draw(t, "tags") {
		tags = append(tags, rapid.StringMatching(`[!#-\[\]-~]{1,10}`).Draw(t, "tag"))
	}
	switch rapid.IntRange(0, 5).Draw(t, "change of the tags") {
	case 0:
		return append(tags, rapid.SampledFrom([]any{"", "a b", `"`, `\`, "ä", strings.Repeat("t", 100), strings.Repeat("t", 101), 1, nil}).Draw(t, "tag"))
	case 1:
		return strange.Draw(t, "tags")
	}
	return tags
}

func drawQuery(t *rapid.T) any {
	items := []any{}
	for range rapid.SampledFrom([]int{0, 1, 1, 2}).Draw(t, "items") {
		item := map[string]any{}
		if rapid.Bool().Draw(t, "item has tags") {
			item["tags"] = drawTags(t, 10)
		}
		if rapid.Bool().Draw(t, "item has types") {
			item["types"] = rapid.SampledFrom([]any{[]any{}, []any{"A"}, []any{"A", "B.c"}, []any{"a b"}, []any{1}, "A", nil}).Draw(t, "types")
		}
		items = append(items, item)
	}
	return map[string]any{"items": items}
}

func drawCondition(t *rapid.T) any {
	condition := map[string]any{"failIfEventsMatch": drawQuery(t)}
	if rapid.Bool().Draw(t, "after") {
		condition["after"] = rapid.SampledFrom([]any{0, 7, 999999999999999999, -1, 1.5, "7", nil}).Draw(t, "after")
	}
	switch rapid.IntRange(0, 9).Draw(t, "change of the condition") {
	case 0:
		delete(condition, "failIfEventsMatch")
	case 1:
		condition["colour"] = 1
	case 2:
		condition["failIfEventsMatch"] = strange.Draw(t, "query")
	case 3:
		return strange.Draw(t, "condition")
	}
	return condition
}

func drawRead(t *rapid.T) any {
	read := map[string]any{"query": drawQuery(t)}
	for name, values := range map[string][]any{
		"after": {0, 7, -1, "7"}, "before": {1, 7, 0, nil}, "direction": {"forward", "backward", "up", 1}, "count": {1, 1000, 0, -1, "1"},
	} {
		if rapid.Bool().Draw(t, name) {
			read[name] = rapid.SampledFrom(values).Draw(t, name)
		}
	}
	switch rapid.IntRange(0, 9).Draw(t, "change of the read") {
	case 0:
		delete(read, "query")
	case 1:
		read["colour"] = 1
	}
	return read
}

func drawAttempts(t *rapid.T) any {
	ids := []any{}
	for range rapid.SampledFrom([]int{0, 1, 2, 3, 1000, 1001}).Draw(t, "ids") {
		ids = append(ids, map[string]any{"id": "0190d3a4-5b6c-7DEF-8123-456789abcde0", "attempt": len(ids) + 1})
	}
	if len(ids) > 0 && rapid.Bool().Draw(t, "change of an attempt") {
		changed := ids[rapid.IntRange(0, len(ids)-1).Draw(t, "attempt")].(map[string]any)
		switch field := rapid.SampledFrom([]string{"id", "attempt"}).Draw(t, "field"); rapid.IntRange(0, 3).Draw(t, "change") {
		case 0:
			delete(changed, field)
		case 1:
			changed[field] = strange.Draw(t, "value")
		case 2:
			changed[rapid.StringMatching(`[a-z]{1,3}`).Draw(t, "unknown")] = 1
		case 3:
			changed["id"] = rapid.SampledFrom([]string{"0190d3a45b6c7def8123456789abcde0", "{0190d3a4-5b6c-7def-8123-456789abcde0}", "00000000-0000-0000-0000-000000000000"}).Draw(t, "id")
		}
	}
	request := map[string]any{"ids": ids}
	switch rapid.IntRange(0, 9).Draw(t, "change of the request") {
	case 0:
		delete(request, "ids")
	case 1:
		request["colour"] = 1
	case 2:
		request["ids"] = strange.Draw(t, "ids")
	case 3:
		return strange.Draw(t, "request")
	}
	return request
}

func drawReceive(t *rapid.T) any {
	request := map[string]any{}
	for _, field := range []struct {
		name   string
		values []any
	}{
		{"batch", []any{1, 1000, 0, 1001, 2.0, 2.5, json.Number("1e2")}},
		{"wait", []any{0, 30, 0.25, -1, 30.5, json.Number("1e-3"), json.Number("-0")}},
		{"memberId", []any{"0190d3a4-5b6c-7DEF-8123-456789abcde0", "0190d3a45b6c7def8123456789abcde0", ""}},
	} {
		if rapid.Bool().Draw(t, field.name) {
			request[field.name] = rapid.SampledFrom(field.values).Draw(t, field.name)
		}
	}
	if attempts, ok := drawAttempts(t).(map[string]any); ok && rapid.Bool().Draw(t, "ack") {
		if ids, given := attempts["ids"]; given {
			request["ack"] = ids
		}
	}
	switch rapid.IntRange(0, 5).Draw(t, "change of the receive") {
	case 0:
		field := rapid.SampledFrom([]string{"batch", "wait", "memberId", "ack", "colour"}).Draw(t, "field")
		request[field] = strange.Draw(t, "value")
	case 1:
		return strange.Draw(t, "receive")
	}
	return request
}

// No body causes a panic or a 5xx. What is appended is what the standard library reads from the body, and what is
// refused as invalid JSON is invalid.
func FuzzAppendBody(f *testing.F) {
	for _, seed := range []string{
		`[{"type":"T","data":{}}]`, `{"streams":[{"stream":"a-1","expectedVersion":3,"events":[{"type":"T","data":[1,"x"],"metadata":null}]}]}`,
		`[{"id":"0190d3a4-5b6c-7def-8123-456789abcde0","type":"T","data":1e5,"occurredAt":"2026-03-01T09:30:00Z"}]`,
		`[{"type":"T","data":"\u0000"}]`, `[`, `[{"type":"\ud800","data":1}]`, `[{"type":"T","data":1},]`, `[{"data":00,"type":"T"}]`,
	} {
		f.Add([]byte(seed), true)
		f.Add([]byte(seed), false)
	}
	log := &recordingLog{}
	keys, token := keyOfTenant(f)
	server, err := New(Config{Appends: log, Keys: keys})
	if err != nil {
		f.Fatal(err)
	}
	handler := server.Handler()
	f.Fuzz(func(t *testing.T, body []byte, several bool) {
		path := "/v1/streams/order-1/events"
		if several {
			path = "/v1/append"
		}
		log.last = domain.Append{}
		request := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Authorization", "Bearer "+token)
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		switch {
		case answer.Code >= 500:
			t.Fatalf("%q is answered %d %s", body, answer.Code, answer.Body)
		case answer.Code == http.StatusCreated:
			if !json.Valid(body) {
				t.Fatalf("%q is taken, but is not JSON", body)
			}
			sameByStandardLibrary(t, body, several, log.last)
		default:
			var problem openapi.Problem
			if err := json.Unmarshal(answer.Body.Bytes(), &problem); err != nil || problem.Detail == "" {
				t.Fatalf("%q is answered %d %s", body, answer.Code, answer.Body)
			}
			if problem.Code == string(domain.CodeInvalidJSON) && domain.CheckJSON(body) == nil {
				t.Fatalf("%q is JSON that the log can keep, but is refused as if it were not: %s", body, answer.Body)
			}
		}
	})
}

// sameByStandardLibrary fails if encoding/json reads another request from the body.
func sameByStandardLibrary(t *testing.T, body []byte, several bool, got domain.Append) {
	type event struct {
		Type     string          `json:"type"`
		Data     json.RawMessage `json:"data"`
		Metadata json.RawMessage `json:"metadata"`
	}
	type stream struct {
		Stream string  `json:"stream"`
		Events []event `json:"events"`
	}
	want := struct {
		Streams []stream `json:"streams"`
	}{[]stream{{Stream: "order-1"}}}
	var err error
	if several {
		want.Streams = nil
		err = json.Unmarshal(body, &want)
	} else {
		err = json.Unmarshal(body, &want.Streams[0].Events)
	}
	if err != nil || len(want.Streams) != len(got.Streams) {
		t.Fatalf("%q is %v by the standard library: %v", body, want, err)
	}
	for i, s := range want.Streams {
		if s.Stream != got.Streams[i].Stream || len(s.Events) != len(got.Streams[i].Events) {
			t.Fatalf("%q: stream %d is %v, want %v", body, i, got.Streams[i], s)
		}
		for j, e := range s.Events {
			g := got.Streams[i].Events[j]
			metadata := e.Metadata
			if string(metadata) == "null" {
				metadata = nil
			}
			if e.Type != g.Type || !bytes.Equal(e.Data, g.Data) || !bytes.Equal(metadata, g.Metadata) {
				t.Fatalf("%q: event %d is %v, want %v", body, j, g, e)
			}
		}
	}
}

// recordingLog records the last append and reports success.
type recordingLog struct{ last domain.Append }

func (l *recordingLog) Append(_ context.Context, _ domain.TenantID, request domain.Append) (domain.Appended, error) {
	l.last = request
	var appended domain.Appended
	for _, stream := range request.Streams {
		if len(stream.Events) == 0 {
			return appended, errors.New("an empty stream came through")
		}
		appended.Streams = append(appended.Streams, domain.AppendedStream{Stream: stream.Stream, Version: 1, Events: make([]domain.AppendedEvent, len(stream.Events))})
	}
	return appended, nil
}

// keyOfTenant creates a tenant and a key that grants everything.
func keyOfTenant(t testing.TB) (keys *auth.Keys, token string) {
	s := tablestest.OpenAgain(t, pgtest.Database(t))
	tenant := domain.NewTenantID()
	key, token := auth.NewKey(tenant, "key", auth.GrantsOf(auth.TenantScopes[:]...))
	keys, err := auth.NewKeys(auth.Config{Store: s.KeyTables, TTL: time.Hour})
	if err := errors.Join(err, s.CreateTenant(t.Context(), domain.Tenant{ID: tenant, Name: "tenant"}), s.CreateKey(t.Context(), key)); err != nil {
		t.Fatal(err)
	}
	return keys, token
}

// Field names must match the contract exactly, while the standard library would ignore case.
func TestFieldNamesAreExact(t *testing.T) {
	t.Parallel()
	if _, err := wire.DecodeEvents([]byte(`[{"Type":"T","data":1}]`)); err == nil {
		t.Error(`"Type" passes for "type"`)
	}
}
