package api_test

import (
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

// An error in a CloudEvent names its place in the request, in every form.
func TestCloudEventsThatAreRefused(t *testing.T) {
	t.Parallel()
	a := newWorld(t, nil).tenant("acme")
	const structured, batch = "application/cloudevents+json", "application/cloudevents-batch+json"
	event := func(change object) object {
		o := object{"specversion": "1.0", "id": "1", "source": "s", "type": "order.placed"}
		for name, value := range change {
			o[name] = value
		}
		return o
	}
	const stream = "/v1/streams/order-1/events"
	for _, c := range []struct {
		path, kind string
		body       any
		status     int
		code       domain.Code
		where      string
		words      string
	}{
		{stream, "application/cloudevents+avro", "x", 415, "unsupported-media-type", "Content-Type", structured},
		{stream, structured + "; charset=utf-16", event(nil), 415, "unsupported-media-type", "Content-Type", "UTF-8"},
		{stream, "application/cloudevents", event(nil), 415, "unsupported-media-type", "Content-Type", batch},
		{stream, structured, event(object{"source": nil}), 400, domain.CodeInvalidRequest, "source", "required"},
		{stream, structured, list{event(nil)}, 400, domain.CodeInvalidRequest, "body", "an object"},
		{stream, structured, "", 400, domain.CodeInvalidJSON, "body", "the text is empty"},
		{stream, batch, list{event(nil), event(object{"own": list{}})}, 400, domain.CodeInvalidRequest, "events[1].own", "into data"},
		{stream, batch, list{event(nil), event(nil)}, 400, domain.CodeDuplicateID, "events[1].id", ""},
		{stream, batch, list{event(nil), event(object{"id": "2", "manifoldmetadata": "1"})}, 400, domain.CodeInvalidRequest, "events[1].manifoldmetadata", "object"},
		{stream + "?topic=a", structured, event(nil), 400, domain.CodeInvalidRequest, "query", "unknown parameter"},
		{"/v1/publish", structured, event(object{"type": "order-placed"}), 400, domain.CodeInvalidRequest, "type", "?topic="},
		{"/v1/publish", batch, list{event(nil), event(object{"id": "2", "type": "a/b"})}, 400, domain.CodeInvalidRequest, "events[1].type", "?topic="},
		{"/v1/publish", structured, event(object{"subject": "a b"}), 400, domain.CodeInvalidRequest, "subject", "?key="},
		{"/v1/publish?key=a%20b", structured, event(nil), 400, domain.CodeInvalidRequest, "query key", "' '"},
		{"/v1/publish?topic=a-b", structured, event(nil), 400, domain.CodeInvalidRequest, "query topic", "'-'"},
		{"/v1/publish?topic=", structured, event(nil), 400, domain.CodeInvalidRequest, "query topic", "1 to 100"},
		{"/v1/publish?topic=a&topic=b", structured, event(nil), 400, domain.CodeInvalidRequest, "query topic", "2 times"},
		{"/v1/publish?other=a", structured, event(nil), 400, domain.CodeInvalidRequest, "query other", "topic or key"},
		{"/v1/publish?topic=a", "application/json", object{"topic": "a", "payload": 1}, 400, domain.CodeInvalidRequest, "query", ""},
		{"/v1/publish", batch, list{event(nil), event(nil)}, 400, domain.CodeDuplicateID, "events[1].id", ""},
		{"/v1/publish?topic=a", batch, list{event(object{"manifoldmetadata": "1"})}, 400, domain.CodeInvalidRequest, "events[0].manifoldmetadata", "object"},
	} {
		problem := a.post(c.path, c.body, "Content-Type", c.kind).wantProblem(c.status, c.code, c.where)
		if problem["where"] != c.where || !strings.Contains(problem["detail"].(string), c.words) {
			t.Errorf("%v to %s is refused with %v, want %q at %q", c.body, c.path, problem, c.words, c.where)
		}
	}

	// In the binary form, places are headers.
	binary := func(path, body string, headers ...string) *answer {
		return a.post(path, body, append([]string{"Content-Type", "application/json", "ce-specversion", "1.0", "ce-id", "1", "ce-source", "s", "ce-type", "order-placed"}, headers...)...)
	}
	binary(stream, "no JSON").wantProblem(400, domain.CodeInvalidJSON, "body")
	binary(stream, "1", "ce-time", "now").wantProblem(400, domain.CodeInvalidRequest, "ce-time")
	binary("/v1/publish", "1").wantProblem(400, domain.CodeInvalidRequest, "ce-type")
	binary("/v1/publish?topic=order", "1", "ce-subject", "a%20b").wantProblem(400, domain.CodeInvalidRequest, "ce-subject")
	a.post(stream, "1", "ce-id", "1").wantProblem(400, domain.CodeInvalidRequest, "ce-specversion")
	equal(t, "nothing was appended", a.get("/v1/streams/$all").at("events"), list{})

	// The same id with other content, and again with the same content.
	binary(stream, "1").want(201)
	binary(stream, "1").want(200)
	binary(stream, "2").wantProblem(409, domain.CodeEventIDConflict, "ce-id")
	binary(stream, "1", "ce-id", "2", "If-Match", `"7"`).wantProblem(412, domain.CodePreconditionFailed, "")
	a.post(stream, list{event(object{"type": "order-placed", "datacontenttype": "application/json", "data": 1}), event(object{"id": "2"})}, "Content-Type", batch).wantProblem(409, domain.CodePartialDuplicate, "")

	// Keys are limited to their categories.
	narrow := &actor{a.world, a.world.key(a.tenantID, "events:append:other"), a.tenantID}
	narrow.post("/v1/publish?topic=order", event(nil), "Content-Type", structured).wantProblem(403, domain.CodeForbidden, "query topic")
	narrow.post("/v1/publish", list{event(object{"type": "other"}), event(object{"id": "2"})}, "Content-Type", batch).wantProblem(403, domain.CodeForbidden, "events[1].type")
	narrow.post(stream, event(nil), "Content-Type", structured).wantProblem(403, domain.CodeForbidden, "path streamId")
}

// Attributes that are too long for headers are not sent as headers.
func TestAttributesThatAreTooLongForHeaders(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	id := domain.NewEventID().String()
	a.post("/v1/streams/order-1/events", list{object{"id": id, "type": "A", "data": 1, "metadata": object{"long": strings.Repeat("é", 4000)}}}).want(201)
	a.get("/v1/events/"+id, "Accept", "application/cloudevents-binary").wantProblem(422, domain.CodeUnsupported, "Accept")
	a.get("/v1/events/"+id, "Accept", "application/cloudevents+json").want(200)
}

// A binary answer contains what the tenant has stored, and browsers do not treat it as a page of the service.
func TestTheBinaryAnswer(t *testing.T) {
	t.Parallel()
	a := sharedWorld(t).tenant("acme")
	headers := []string{"ce-specversion", "1.0", "ce-id", "a b", "ce-source", "s", "ce-type", "T"}
	page := a.post("/v1/streams/order-1/events", "<script>", append(headers, "Content-Type", "text/html")...).want(201)
	got := a.get("/v1/events/"+page.at("events", 0, "id").(string), "Accept", "application/cloudevents-binary").want(200)
	equal(t, "the data", string(got.body), "<script>")
	for name, want := range map[string]string{
		"Content-Type": "text/html", "X-Content-Type-Options": "nosniff", "Content-Security-Policy": "default-src 'none'; sandbox", "Cache-Control": "no-store",
		"Ce-Id": "a%20b", "Ce-Manifoldstream": "order-1",
	} {
		equal(t, name, got.header.Get(name), want)
	}
	nothing := a.post("/v1/streams/order-1/events", "", "ce-specversion", "1.0", "ce-id", "2", "ce-source", "s", "ce-type", "T", "Content-Type", "").want(201)
	got = a.get("/v1/events/"+nothing.at("events", 0, "id").(string), "Accept", "application/cloudevents-binary").want(200)
	equal(t, "the data", string(got.body), "")
	equal(t, "the media type", got.header.Values("Content-Type"), []string(nil))
	head := a.send("HEAD", "/v1/events/"+page.at("events", 0, "id").(string), nil, "Accept", "application/cloudevents-binary").want(200)
	equal(t, "without the body", len(head.body), 0)
	equal(t, "its id", head.header.Get("Ce-Id"), "a%20b")
}
