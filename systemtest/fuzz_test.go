package systemtest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

// fuzzed starts a service for a fuzz test, with a tenant.
func fuzzed(f *testing.F) user {
	f.Helper()
	_, u := newTenant(f, newUser(f, inside(f, configuration(pgtest.Database(f))), operatorKey), "acme")
	return u
}

// send sends an arbitrary request. The service must accept it, or refuse it with a problem that says why. The
// connection must not break, as it does after a panic, and the service must not return a 5xx.
func (u user) send(t *testing.T, method, path string, body any, header ...string) answer {
	t.Helper()
	a, err := u.once(t.Context(), 0, method, path, body, header...)
	if err != nil {
		if strings.Contains(err.Error(), "invalid header field value") || strings.Contains(err.Error(), "invalid URL escape") {
			t.Skip("this cannot be sent at all:", err)
		}
		t.Fatalf("%s %s: %v", method, path, err)
	}
	if a.status >= 500 {
		t.Fatalf("%s %s is answered %s", method, path, a)
	}
	if a.status >= 400 {
		var p client.Problem
		if err := json.Unmarshal(a.body, &p); err != nil || p.Code == "" || p.Detail == "" || p.Status != a.status {
			t.Fatalf("%s %s is answered with no good problem: %s", method, path, a)
		}
	}
	return a
}

func FuzzAppendBody(f *testing.F) {
	for _, seed := range []struct{ body, stream, expected, key string }{
		{`[{"type":"A","data":{}}]`, "order-1", "any", ""},
		{`[{"id":"0190d3a4-5b6c-7def-8123-456789abcde0","type":"A","data":[1e400,"\u0000"]}]`, "order-1", "none", "k"},
		{`[{"type":"A","data":"\ud800"},{"type":"A","data":1E-20000}]`, "order-1", "5", ""},
		{`{"streams":[{"stream":"a-1","expectedVersion":"exists","events":[{"type":"A","data":null,"metadata":{"a":[]},"occurredAt":"2026-01-01T00:00:00Z"}]}]}`, "", "", "key"},
		{`{"streams":[{"stream":"a-1","events":[{"type":"A","data":1}]},{"stream":"a-1","events":[{"type":"B","data":1}]}]}`, "", "", ""},
		{`[{"type":"A","data":` + strings.Repeat("[", 2000) + strings.Repeat("]", 2000) + `}]`, "x-y-z", "9999999999999999999", ""},
		{`[{"type":"A","data":1,"occurredAt":"0000-01-01T00:00:00Z"}]`, "order-1", "any", ""},
		{`[{"type":"A","data":1,"occurredAt":"9999-12-31T23:59:60.999999999+23:59"}]`, "order-1", "any", ""},
		{`[{"type":"A","data":-0.0e-5,"data":{"a":1,"a":2}}]`, "ö-\x01", "exists", " "},
		{`[`, "order-", "", ""}, {``, "-1", "", ""}, {`null`, "a", "", ""}, {`[]`, "a/b-1", "", ""}, {"\xff\xfe", "..", "", ""},
		{`{"streams":[{"stream":"a-1","expectedVersion":1.5e300,"events":[]}]}`, "", "", ""},
	} {
		f.Add([]byte(seed.body), seed.stream, seed.expected, seed.key)
	}
	u := fuzzed(f)
	f.Fuzz(func(t *testing.T, body []byte, stream, expected, key string) {
		path, header := "/v1/append", []string{}
		if stream != "" {
			path = "/v1/streams/" + url.PathEscape(stream) + "/events"
			if expected != "" {
				header = append(header, "Expected-Version", expected)
			}
		}
		if key != "" {
			header = append(header, "Idempotency-Key", key)
		}
		if body == nil {
			body = []byte{}
		}
		a := u.send(t, "POST", path, body, header...)
		if a.status >= 300 {
			return
		}
		// What was taken can be read, and repeated.
		if read := u.send(t, "GET", "/v1/streams/$all?direction=backward&count=1000", nil); read.status != 200 {
			t.Fatalf("after %q the log is answered %s", body, read)
		}
		var first client.Appended
		if stream == "" && key != "" && json.Unmarshal(a.body, &first) == nil {
			if again := u.send(t, "POST", path, body, header...); again.status != 200 && again.status != 409 {
				t.Fatalf("repeated it is answered %s", again)
			}
		}
	})
}

func FuzzImportBody(f *testing.F) {
	for _, seed := range []string{
		`{"stream":"order-1","type":"A","data":1}` + "\n\n" + `{"stream":"order-1","type":"A","data":1}`,
		"\n\n\n", "not json\n" + `{"stream":"a-1","id":"x","type":"A","data":"\u0000"}`, "\xff\n{}", `{"stream":"a-1","type":"A","data":1,"time":"yesterday","position":-1}`,
		`{"stream":"a-1","type":"A","data":1}{"stream":"a-1","type":"A","data":1}`, strings.Repeat(`{"stream":"a-1","type":"A","data":1}`+"\n", 50),
	} {
		f.Add([]byte(seed), false)
		f.Add([]byte(seed), true)
	}
	u := fuzzed(f)
	f.Fuzz(func(t *testing.T, body []byte, strict bool) {
		path := "/v1/import?name=fuzz"
		if strict {
			path += "&strict=true"
		}
		if body == nil {
			body = []byte{}
		}
		a := u.send(t, "POST", path, body, "Content-Type", "application/x-ndjson")
		if a.status != 200 {
			return
		}
		frames := strings.Split(strings.TrimSpace(string(a.body)), "\n")
		var last struct {
			Done  bool
			Error *client.Problem
		}
		if err := json.Unmarshal([]byte(frames[len(frames)-1]), &last); err != nil || !last.Done && last.Error == nil {
			t.Fatalf("%q is imported with %s as the last word (%v)", body, a.body, err)
		}
		if last.Error != nil && last.Error.Status >= 500 {
			t.Fatalf("%q is the service's fault: %s", body, a.body)
		}
	})
}

func FuzzDefinitionBody(f *testing.F) {
	for _, seed := range []string{
		`{"name":"p","on":{"A":"doc"}}`, `{"name":"p","key":"event.stream","initial":{"a":1},"on":{"*":"merge(doc,{})"},"indexes":["a.b","$"],"assert":["doc.a == 1"],"mode":"async","onError":"stop","source":{"categories":["order"]}}`,
		`{"name":"p","on":{"A":""}}`, `{"name":"q","on":{"A":"doc"}}`, `{"name":"p"}`, `{"on":{"A":"state"},"initial":null,"snapshotEvery":1}`, `{"on":{"*":"{'a': state}"},"snapshotEvery":0,"category":"order"}`,
		`{"name":"p","handler":"x"}`, `{"name":"p","database":"nowhere","on":{"A":"doc"}}`, `{"name":"p","mode":"inline","on":{"A":"doc"}}`, `[]`, `nul`, "", `{"name":"p","on":{"A":"doc"},"initial":{"a":"\u0000"}}`,
		`{"name":"p","initial":{"a":1e999},"on":{"\u0000":"doc"}}`,
	} {
		f.Add([]byte(seed))
	}
	u := fuzzed(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		if body == nil {
			body = []byte{}
		}
		for _, path := range []string{"/v1/projections/p", "/v1/aggregates/order"} {
			a := u.send(t, "PUT", path, body)
			if a.status >= 300 {
				continue
			}
			// What was taken can be read, put again, and removed.
			if got := u.send(t, "GET", path, nil); got.status != 200 {
				t.Fatalf("%q was taken at %s and is answered %s", body, path, got)
			}
			if again := u.send(t, "PUT", path, body); again.status != 200 {
				t.Fatalf("%q was taken at %s, and put again it is answered %s", body, path, again)
			}
			if gone := u.send(t, "DELETE", path, nil); gone.status != 204 {
				t.Fatalf("%q was taken at %s, and its removal is answered %s", body, path, gone)
			}
		}
	})
}

// FuzzDocumentQuery queries documents with arbitrary parameters. A query that is accepted must work to its last page,
// and must be countable and explainable.
func FuzzDocumentQuery(f *testing.F) {
	for _, seed := range []struct{ filter, orderBy, fields, pageToken string }{
		{`doc.n > 1 && "a" in doc.list`, "n desc,text", "n,deep.a", ""}, {`doc.text.startsWith("ü")`, "deep.a.b", "", "AQ"},
		{`doc.n in [1, 2.5, "x", null, true]`, `["odd name"] asc`, `["odd name"]`, ""}, {"has(doc.deep.a) || !has(doc.n)", "", "deep", "AAEAAAAAAAAAAGE"},
		{`doc.n == 9223372036854775807 || doc.n < -1.7976931348623157e308`, "n", "n", ""}, {`doc.text.matches("^(a|b)*\\.[^x]{1,200}$")`, "text desc", "", ""},
		{`doc["\u0001'\"$.%\\"] == "'; drop table x; --"`, `["'\"$1"]`, `["\\"]`, ""}, {`doc.n / 2 > 1`, "a,b,c,d", "a..b", ""}, {"true ? doc.n == 1 : doc.list == []", "n,n", "n,n", ""},
		{`doc.?deep.?a.orValue(1) == 1`, "", "", ""}, {`doc.text.contains("%_[") && !doc.text.endsWith("\\")`, "", "", ""}, {"\xff", "\xff", "\xff", "\xff"}, {"doc", "doc", "doc", ""}, {`doc.n == 1e400`, "", "", ""},
	} {
		f.Add(seed.filter, seed.orderBy, seed.fields, seed.pageToken)
	}
	u := fuzzed(f)
	u.must(f, 201, nil, "PUT", "/v1/projections/p", map[string]any{"on": map[string]string{"Set": "event.data"}})
	for i, data := range []string{
		`{"n":1,"list":["a",1,null],"text":"ü","deep":{"a":{"b":[true]}}}`, `{"n":-0.5e10,"text":"a.b","odd name":1}`, `{"n":"1","list":{"a":1},"text":null}`, `{}`,
		`{"n":9223372036854775807,"deep":{"a":"b"}}`, `{"n":[1],"text":"%_[","":0}`,
	} {
		u.must(f, 201, nil, "POST", fmt.Sprintf("/v1/streams/doc-%d/events", i), fmt.Appendf(nil, `[{"type":"Set","data":%s}]`, data))
	}
	u.must(f, 200, nil, "GET", "/v1/projections/p/documents?minPosition=6&timeout=30", nil)
	f.Fuzz(func(t *testing.T, filter, orderBy, fields, pageToken string) {
		query := url.Values{"pageSize": {"2"}, "count": {"exact"}}
		for name, value := range map[string]string{"filter": filter, "orderBy": orderBy, "fields": fields, "pageToken": pageToken} {
			if value != "" {
				query.Set(name, value)
			}
		}
		var total, count int
		for path := "/v1/projections/p/documents?" + query.Encode(); path != ""; {
			a := u.send(t, "GET", path, nil)
			if a.status != 200 {
				if a.code() == "too-costly" || total == 0 {
					return
				}
				t.Fatalf("%s: a further page is answered %s", path, a)
			}
			var page client.DocumentList
			if err := json.Unmarshal(a.body, &page); err != nil || page.Count == nil {
				t.Fatalf("%s is answered %s (%v)", path, a, err)
			}
			total, count, path = total+len(page.Documents), int(*page.Count), a.next()
		}
		if pageToken == "" && total != count {
			t.Fatalf("%q by %q gives %d documents, and counts %d", filter, orderBy, total, count)
		}
	})
}

// FuzzExpression has expressions folded, of a projection and of an aggregate, over events of several kinds.
func FuzzExpression(f *testing.F) {
	for _, seed := range []string{
		`{"n": doc.?n.orValue(0) + event.data.n}`, `merge(doc, {"a": event.data})`, `null`, `doc`, `state`, `1`, `"x"`, `[1]`, `event.data.missing`, `1/0`, `9223372036854775807 + 1`,
		`{"a": event.data.list.map(x, x * 2).filter(x, x > 1)}`, `{"a": "x".matches("(a+)+$")}`, `{"s": string(event.position), "t": event.recordedAt}`, `{1: 2}`, `{"a": 0.0/0.0}`,
		`{"a": [1,2,3].map(a, [1,2,3].map(b, [1,2,3].map(c, a*b*c)))}`, `without(doc, "n")`, `cel.bind(x, event, {"e": x})`, `{"a": b"bytes"}`, `{"a": type(1)}`, `{"a": timestamp("2026-01-01T00:00:00Z")}`,
		`{"a": duration("1h")}`, `{"\u0000": 1}`, `{"a": "\u0000"}`, `((((((((((doc))))))))))`, `{"a": event.data.n % 0}`, `{"a": math.round(event.data.n * 1e308)}`, `{"a": doc.a.a.a}`, `{"": doc}`, "\xff", "{'a': 'ü'.substring(0, 9)}",
	} {
		f.Add(seed)
	}
	u := fuzzed(f)
	var appended client.AppendedStream
	u.must(f, 201, &appended, "POST", "/v1/streams/order-1/events", []byte(`[
		{"type":"A","data":{"n":1,"list":[1,2.5,"x",null],"text":"ü","deep":{"a":{"b":[true]}}}}, {"type":"B","data":{"n":-0.5e10}}, {"type":"C","data":null}, {"type":"D","data":"text"}]`))
	f.Fuzz(func(t *testing.T, expression string) {
		definition := map[string]any{"name": "p", "initial": map[string]any{"n": 0}, "on": map[string]string{"*": expression}}
		if a := u.send(t, "PUT", "/v1/projections/p", definition); a.status == 201 {
			read := u.send(t, "GET", "/v1/projections/p/documents/order-1?minPosition=4&timeout=20", nil)
			state := u.send(t, "GET", "/v1/projections/p/state", nil)
			if read.status != 200 && read.status != 404 && read.code() != "faulted" {
				t.Fatalf("%q was taken, and the document is answered %s; the state %s", expression, read, state)
			}
			u.send(t, "DELETE", "/v1/projections/p", nil)
		}
		delete(definition, "name")
		if a := u.send(t, "PUT", "/v1/aggregates/order", definition); a.status == 200 {
			u.send(t, "GET", "/v1/streams/order-1/state", nil)
			u.send(t, "POST", "/v1/snapshots/order-1", nil)
			u.send(t, "GET", "/v1/streams/order-1/state?version=2", nil)
		}
		// As a key, and as an assertion.
		u.send(t, "PUT", "/v1/projections/k", map[string]any{"name": "k", "key": expression, "on": map[string]string{"*": "doc"}, "assert": []string{expression}})
		if read := u.send(t, "GET", "/v1/projections/k/documents?minPosition=4&timeout=20", nil); read.status == 200 || read.code() == "faulted" {
			u.send(t, "DELETE", "/v1/projections/k", nil)
		}
	})
}

// FuzzSchema puts arbitrary schemas with arbitrary expressions of tags, one version after the other, and appends
// arbitrary data under them. Everything that is derived from an accepted schema must work.
func FuzzSchema(f *testing.F) {
	for _, seed := range []struct{ schema, then, tags, data string }{
		{`{"type":"object","required":["a"],"properties":{"a":{"type":"integer","minimum":1}}}`, `{"type":"object","properties":{"a":{"type":"number"}}}`, `['a:' + string(event.data.a)]`, `{"a":2}`},
		{`{"$defs":{"t":{"type":"array","prefixItems":[{"$ref":"#/$defs/t"}],"items":false}},"$ref":"#/$defs/t"}`, `true`, "", `[[[]]]`},
		{`{"anyOf":[{"const":1e400},{"pattern":"^(a|b)*$"},{"enum":[null,{"a":[]}]}],"unevaluatedProperties":false}`, `{"not":{}}`, `event.data`, `"aaaa"`},
		{`{"$ref":"#"}`, `{"$ref":"https://example.com/x"}`, `["a b"]`, `1`}, {`false`, `{"$schema":"http://json-schema.org/draft-04/schema#"}`, `1/0`, `null`}, {`{"$dynamicRef":"#a","$dynamicAnchor":"a"}`, `{}`, `[1]`, `{}`},
		{`{"patternProperties":{"(":{}}}`, `{"maxLength":-1}`, "x", `"\u0000"`}, {`{"multipleOf":0}`, `{"multipleOf":1e-300}`, `["t"].map(x, x)`, `1e300`}, {``, `nul`, "\xff", "\xff"},
		{`{"properties":{"\u0000":{"default":"\ud800"}}}`, `{"properties":{"__proto__":{"$anchor":"1"}}}`, `event.data.keys()`, `{"":{"":1}}`},
	} {
		f.Add([]byte(seed.schema), []byte(seed.then), seed.tags, []byte(seed.data))
	}
	u := fuzzed(f)
	u.must(f, 200, nil, "PUT", "/v1/schema-rules/order", map[string]any{"mode": "enforce"})
	f.Fuzz(func(t *testing.T, schema, then []byte, tags string, data []byte) {
		u.send(t, "DELETE", "/v1/schemas/A", nil)
		for _, text := range [][]byte{schema, then} {
			body := fmt.Appendf(nil, `{"schema":%s}`, text)
			if tags != "" {
				quoted, _ := json.Marshal(tags)
				body = fmt.Appendf(nil, `{"schema":%s,"tags":%s}`, text, quoted)
			}
			u.send(t, "POST", "/v1/schemas/A/check", fmt.Appendf(nil, `{"schema":%s,"source":{"events":[%s]}}`, text, data))
			if put := u.send(t, "PUT", "/v1/schemas/A", body); put.status >= 300 {
				continue
			}
			u.send(t, "POST", "/v1/streams/order-1/events", fmt.Appendf(nil, `[{"type":"A","data":%s}]`, data))
			for _, path := range []string{"/v1/schemas/A", "/v1/asyncapi.json"} {
				if got := u.send(t, "GET", path, nil); got.status != 200 || !json.Valid(got.body) {
					t.Fatalf("with the schema %q, %s is answered %s", text, path, got)
				}
			}
		}
	})
}
