package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/domain"
)

// No body causes a panic or a 5xx. What is published is what the standard library reads from the body, and what is
// refused as invalid JSON is invalid.
func FuzzPublishBody(f *testing.F) {
	for _, seed := range []string{
		`{"topic":"a","payload":{}}`, `[{"topic":"a","key":"1","payload":[1,"x"],"headers":{"h":"v"},"tags":["t"],"sid":"s"},{"topic":"b","type":"T","payload":null}]`,
		`{"topic":"a","payload":1e5,"id":"0190d3a4-5b6c-7def-8123-456789abcde0","caused_by":"0190d3a4-5b6c-7def-8123-456789abcde1","ts":"2026-03-01T09:30:00Z"}`,
		`{"topic":"a","payload":1,"caused_by":[ "0190d3a4-5b6c-7def-8123-456789abcde1" ]}`,
		`{"topic":"a","payload":1,"tags":["t"],"caused_by":["0190d3a4-5b6c-7def-8123-456789abcde1","0190d3a4-5b6c-7def-8123-456789abcde2"]}`,
		`{"topic":"a","payload":"\u0000"}`, `[`, `{"topic":"\ud800","payload":1}`, `[{"topic":"a","payload":1},]`, `{"headers":{"a":1},"topic":"a","payload":00}`, ` [ ] `,
		`{"topic":"a","payload":1,"headers":{"a":"\u00e9\ud83d\ude00"},"tags":["\n"]}`,
	} {
		f.Add([]byte(seed))
	}
	log := &recordingLog{}
	keys, token := keyOfTenant(f)
	server, err := New(Config{Appends: log, Keys: keys})
	if err != nil {
		f.Fatal(err)
	}
	handler := server.Handler()
	f.Fuzz(func(t *testing.T, body []byte) {
		log.last = domain.Append{}
		request := httptest.NewRequest(http.MethodPost, "/v1/publish", bytes.NewReader(body))
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
			publishedByStandardLibrary(t, body, log.last)
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

// publishedByStandardLibrary fails if encoding/json reads other messages from the body.
func publishedByStandardLibrary(t *testing.T, body []byte, got domain.Append) {
	type metadata struct {
		Headers  map[string]string `json:"headers,omitempty"`
		Tags     []string          `json:"tags,omitempty"`
		CausedBy any               `json:"caused_by,omitempty"` // a string or strings
		SID      string            `json:"sid,omitempty"`
	}
	type message struct {
		Topic   string          `json:"topic"`
		Key     string          `json:"key"`
		Type    string          `json:"type"`
		Payload json.RawMessage `json:"payload"`
		metadata
	}
	want := make([]message, 1)
	err := json.Unmarshal(body, &want[0])
	if bytes.TrimSpace(body)[0] == '[' {
		err = json.Unmarshal(body, &want)
	}
	if err != nil {
		t.Fatalf("%q: the standard library: %v", body, err)
	}
	i := 0
	for _, stream := range got.Streams {
		for _, event := range stream.Events {
			w := want[i]
			i++
			key, kind := w.Key, w.Type
			if key == "" {
				key = event.ID.String()
			}
			if kind == "" {
				kind = w.Topic
			}
			if stream.Stream != w.Topic+"-"+key || event.Type != kind || !bytes.Equal(event.Data, w.Payload) {
				t.Fatalf("%q: message %d is %+v in %s, want %+v", body, i, event, stream.Stream, w)
			}
			var kept metadata
			if event.Metadata != nil {
				if err := json.Unmarshal(event.Metadata, &kept); err != nil {
					t.Fatalf("%q: the metadata is %s: %v", body, event.Metadata, err)
				}
			}
			if causes, several := w.CausedBy.([]any); several && len(causes) == 1 {
				w.CausedBy = causes[0]
			}
			if len(kept.Headers)+len(w.Headers)+len(kept.Tags)+len(w.Tags) == 0 { // {} and [] are not nil
				kept.Headers, kept.Tags, w.Headers, w.Tags = nil, nil, nil, nil
			}
			if !reflect.DeepEqual(kept.CausedBy, w.CausedBy) || kept.SID != w.SID || len(kept.Headers) != len(w.Headers) || len(kept.Tags) != len(w.Tags) ||
				len(w.Headers) > 0 && !reflect.DeepEqual(kept.Headers, w.Headers) || len(w.Tags) > 0 && !reflect.DeepEqual(kept.Tags, w.Tags) {
				t.Fatalf("%q: the metadata of message %d is %s", body, i, event.Metadata)
			}
		}
	}
	if i != len(want) {
		t.Fatalf("%q: %d of %d messages are published", body, i, len(want))
	}
}

// failingLog refuses each append, with a place in it.
type failingLog struct{ where string }

func (l failingLog) Append(context.Context, domain.TenantID, domain.Append) (domain.Appended, error) {
	return domain.Appended{}, domain.Errorf(domain.CodeRefused, l.where, "no")
}

// An error after the API's own checks names its place in the append. Clients get the place in their messages.
func TestPlacesAreThoseOfMessages(t *testing.T) {
	t.Parallel()
	several := wire.Publication{Messages: []domain.Message{{Topic: "a", Key: "1"}, {Topic: "a", Key: "1"}, {Topic: "b"}, {Topic: "a", Key: "1"}}}
	oneStream := wire.Publication{Messages: several.Messages[:2]}
	body := wire.Publication{Messages: several.Messages[:1], Single: true}
	inMessage := wire.Publication{Messages: several.Messages[:1], Single: true, Where: "message"}
	for _, c := range []struct {
		p           wire.Publication
		where, want string
	}{
		{several, "streams[0].events[1].data", "messages[1].payload"},
		{several, "streams[1].events[0].data.qty", "messages[2].payload.qty"},
		{several, "streams[2].events[0].id", "messages[3].id"},
		{several, "streams[2].events[0].occurredAt", "messages[3].ts"},
		{several, "streams[7].events[0].id", "streams[7].events[0].id"},
		{several, "streams[x]", "streams[x]"},
		{several, "streams", "streams"},
		{oneStream, "events[1].type", "messages[1].type"},
		{oneStream, "", ""},
		{body, "events[0].data", "payload"},
		{body, "events[0]", ""},
		{inMessage, "events[0].metadata", "message.metadata"},
		{inMessage, "events[0]", "message"},
	} {
		server := &Server{config: Config{Appends: failingLog{where: c.where}}}
		batch, err := domain.Publication(c.p.Messages)
		if err != nil {
			t.Fatal(err)
		}
		_, err = server.publishAll(t.Context(), access.Caller{}, c.p, batch, "http")
		if e, ok := errors.AsType[*domain.Error](err); !ok || e.Where != c.want {
			t.Errorf("%s of %d messages returns %v, want %q", c.where, len(c.p.Messages), err, c.want)
		}
	}
}
