package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/expr/filter"
)

// documentsPath returns the path of a list of documents, with parameters: name, value, name, value ...
func documentsPath(name string, parameters ...string) string {
	query := url.Values{}
	for i := 0; i < len(parameters); i += 2 {
		query.Set(parameters[i], parameters[i+1])
	}
	return "/v1/projections/" + name + "/documents?" + query.Encode()
}

// keeping creates a projection whose documents are the data of the last event of each stream.
func keeping(by *actor, name string) {
	by.t.Helper()
	by.post("/v1/projections", object{"name": name, "on": object{"Set": "event.data", "Removed": "null"}, "indexes": list{"total", "customer.name"}}).want(201)
}

// set sets documents to the given values, and returns the position of the last event.
func (a *actor) set(documents map[string]any) (position int) {
	a.t.Helper()
	for _, id := range slices.Sorted(maps.Keys(documents)) {
		position = a.post("/v1/streams/"+id+"/events", list{object{"type": "Set", "data": documents[id]}}).want(201).number("position")
	}
	return position
}

// pages follows the Link headers from a path, and returns the pages.
func (a *actor) pages(path string) (pages []*answer) {
	a.t.Helper()
	for path != "" {
		pages = append(pages, a.get(path).want(200))
		path = pages[len(pages)-1].next()
	}
	return pages
}

func documentsIn(page *answer) (documents []domain.Document) {
	page.t.Helper()
	var body struct {
		Documents []struct {
			ID       string
			Position int64
			Document json.RawMessage
		}
	}
	must(page.t, json.Unmarshal(page.body, &body))
	for _, d := range body.Documents {
		documents = append(documents, domain.Document{ID: d.ID, Version: d.Position, Data: d.Document})
	}
	return documents
}

func ids(documents []domain.Document) []string {
	all := []string{}
	for _, document := range documents {
		all = append(all, document.ID)
	}
	return all
}

// An invalid query is refused with its place, before anything is read.
func TestDocumentQueriesThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a, other, operator := w.tenant("acme"), w.tenant("other"), w.operator()
	gone := w.tenant("gone")
	operator.send("DELETE", "/v1/tenants/"+gone.tenantID+"?confirm=gone", nil).want(202)
	for _, by := range []*actor{a, other} {
		keeping(by, "p")
		by.get(documentsPath("p", "minPosition", strconv.Itoa(by.set(map[string]any{"x-1": object{}, "x-2": object{}, "x-3": object{}})), "timeout", "20")).want(200)
	}
	next, err := url.Parse(a.get(documentsPath("p", "pageSize", "1")).want(200).next())
	must(t, err)
	token := next.Query().Get("pageToken")
	for _, c := range []struct {
		by         *actor
		parameters []string
		status     int
		code       domain.Code
		where      string
		detail     string
	}{
		{a, []string{"filter", "dco.total > 1"}, 400, domain.CodeInvalidRequest, "filter", "line 1, column 1: "},
		{a, []string{"filter", "doc.total >\n  1 +"}, 400, domain.CodeInvalidRequest, "filter", "line 2, column "},
		{a, []string{"filter", "doc.total + 1"}, 400, domain.CodeInvalidRequest, "filter", "line 1, column "},
		{a, []string{"filter", "doc.total > doc.limit"}, 400, domain.CodeInvalidRequest, "filter", "line 1, column "},
		{a, []string{"filter", "event.type == 'x'"}, 400, domain.CodeInvalidRequest, "filter", "line 1, column 1: "},
		{a, []string{"filter", "doc.name.matches('(')"}, 400, domain.CodeInvalidRequest, "filter", "line 1, column "},
		{a, []string{"filter", ""}, 400, domain.CodeInvalidRequest, "query filter", ""},
		{a, []string{"filter", strings.Repeat("x", 8001)}, 400, domain.CodeInvalidRequest, "query filter", "8000"},
		{a, []string{"orderBy", "total dsc"}, 400, domain.CodeInvalidRequest, "orderBy", "line 1, column 7: "},
		{a, []string{"orderBy", "a,b,c,d"}, 400, domain.CodeInvalidRequest, "orderBy", "column 7: "},
		{a, []string{"orderBy", ""}, 400, domain.CodeInvalidRequest, "query orderBy", ""},
		{a, []string{"fields", "a..b"}, 400, domain.CodeInvalidRequest, "fields", "column 3: "},
		{a, []string{"fields", ""}, 400, domain.CodeInvalidRequest, "query fields", ""},
		{a, []string{"count", "about"}, 400, domain.CodeInvalidRequest, "query count", "exact"},
		{a, []string{"sort", "a"}, 400, domain.CodeInvalidRequest, "query sort", "orderBy"},
		{a, []string{"explain", "perhaps"}, 400, domain.CodeInvalidRequest, "query explain", "true or false"},

		{a, []string{"pageToken", token[:len(token)-1]}, 400, domain.CodeInvalidRequest, "pageToken", "not a page token"},
		{a, []string{"pageToken", token + "\n"}, 400, domain.CodeInvalidRequest, "pageToken", "not a page token"},
		{a, []string{"pageToken", strings.Repeat("A", 5000)}, 400, domain.CodeInvalidRequest, "pageToken", "not a page token"},
		{a, []string{"pageToken", strings.Repeat("A", 5001)}, 400, domain.CodeInvalidRequest, "query pageToken", "5000"},
		{a, []string{"pageToken", token, "filter", "doc.total > 1"}, 400, domain.CodeInvalidRequest, "pageToken", "another query"},
		{a, []string{"pageToken", token, "orderBy", "total"}, 400, domain.CodeInvalidRequest, "pageToken", "another query"},
		{other, []string{"pageToken", token}, 400, domain.CodeInvalidRequest, "pageToken", "another query"},

		{a, []string{"explain", "true"}, 403, domain.CodeForbidden, "Authorization", "operator"},
		{a, []string{"explain", "true", "tenant", a.tenantID}, 403, domain.CodeForbidden, "Authorization", "operator"},
		{a, []string{"tenant", other.tenantID}, 403, domain.CodeForbidden, "Authorization", "operator"},
		{operator, nil, 403, domain.CodeForbidden, "Authorization", "explain=true"},
		{operator, []string{"tenant", a.tenantID}, 403, domain.CodeForbidden, "Authorization", "explain=true"},
		{operator, []string{"explain", "false", "tenant", a.tenantID}, 403, domain.CodeForbidden, "Authorization", "explain=true"},
		{operator, []string{"explain", "true"}, 400, domain.CodeInvalidRequest, "query tenant", "required"},
		{operator, []string{"explain", "true", "tenant", "acme"}, 400, domain.CodeInvalidRequest, "query tenant", ""},
		{operator, []string{"explain", "true", "tenant", domain.Everyone.String()}, 404, domain.CodeNotFound, "query tenant", ""},
		{operator, []string{"explain", "true", "tenant", domain.NewTenantID().String()}, 404, domain.CodeNotFound, "", "tenant"},
		{operator, []string{"explain", "true", "tenant", gone.tenantID}, 404, domain.CodeNotFound, "query tenant", "deleted"},
		{operator, []string{"explain", "true", "tenant", a.tenantID, "filter", "dco"}, 400, domain.CodeInvalidRequest, "filter", "line 1, column 1: "},
	} {
		problem := c.by.get(documentsPath("p", c.parameters...)).wantProblem(c.status, c.code, c.where)
		if detail, _ := problem["detail"].(string); !strings.Contains(detail, c.detail) {
			t.Errorf("%q is answered with the detail %q; it should have %q", c.parameters, detail, c.detail)
		}
	}
	operator.get(documentsPath("none", "explain", "true", "tenant", a.tenantID)).wantProblem(404, domain.CodeNotFound, "")
	operator.get("/v1/projections/p/documents/x-1").wantProblem(403, domain.CodeForbidden, "Authorization")
	a.get("/v1/projections/p/documents/x-1?fields=a,").wantProblem(400, domain.CodeInvalidRequest, "fields")
}

// Filters, orders, pages and counts over HTTP return the documents that satisfy the filter, in the given order.
func TestDocumentQueries(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	given := map[string]any{
		"o-1":  object{"total": 10, "customer": object{"name": "ann", "vip": true}, "tags": list{"a", "b"}, "status": "open"},
		"o-2":  object{"total": 10.5, "customer": object{"name": "bob"}, "tags": list{"b", 1}, "status": "open"},
		"o-3":  object{"total": "10", "customer": object{"name": "Ann "}, "tags": object{"b": 1}},
		"o-4":  object{"total": nil, "customer": nil, "status": "closed"},
		"o-5":  object{"customer": object{"name": strings.Repeat("x", 300)}, "status": "open"},
		"o-6":  object{"total": list{10}, "customer": object{"name": "ü"}, "status": "opened"},
		"o-7":  object{"total": -1, "customer": list{object{"name": "ann"}}, "tags": list{}},
		"o-8":  object{"total": 9007199254740993, "customer": object{"name": "zoe", "a.b": "dot"}, "tags": list{nil, true}},
		"o-9":  object{"total": 9007199254740992, "customer": object{"name": "zoe"}, "status": false},
		"o-10": object{},
	}
	for _, shared := range []bool{false, true} {
		a, by, name := w.tenant(fmt.Sprint("shared ", shared)), w.operator(), "shared"
		if !shared {
			by, name = a, "own"
		}
		keeping(by, name)
		position := strconv.Itoa(a.set(given))
		all := documentsIn(a.get(documentsPath(name, "minPosition", position, "timeout", "20")).want(200))
		equal(t, "all documents", len(all), len(given))
		for _, filter := range []string{
			"", "true", "false", `doc.status == "open"`, `doc.status != "open"`, "doc.total > 10", "!(doc.total > 10)", "doc.total == 9007199254740993", "doc.total in [10, null]",
			`doc.customer.name == "ann"`, `doc.customer.name.startsWith("z") && doc.total > 5`, `has(doc.customer.vip)`, `!has(doc.status) || doc.status == false`,
			`"b" in doc.tags`, `doc.customer["a.b"] == "dot"`, `doc.customer.name >= "b"`, `doc.customer.name.contains("x")`, `doc.status.matches("^open(ed)?$")`, `doc.total > 0 ? doc.status == "open" : true`,
		} {
			for _, orderBy := range []string{"", "total", "total desc", "customer.name", "status desc, total", "customer.name,total desc,status"} {
				parameters := []string{"pageSize", "3", "count", "exact"}
				if filter != "" {
					parameters = append(parameters, "filter", filter)
				}
				if orderBy != "" {
					parameters = append(parameters, "orderBy", orderBy)
				}
				path := documentsPath(name, parameters...)
				want := meant(t, all, filter, orderBy)
				var got []domain.Document
				pages := a.pages(path)
				for _, page := range pages {
					got = append(got, documentsIn(page)...)
					equal(t, "the count of "+path, page.number("count"), len(want))
				}
				equal(t, path, ids(got), ids(want))
				equal(t, "the pages of "+path, len(pages), max(1, (len(want)+2)/3))
			}
		}
		if _, counted := a.get(documentsPath(name)).want(200).json()["count"]; counted {
			t.Error("nobody asked for a count")
		}
	}
}

// meant returns the expected documents according to the meaning of the expression, which package domain defines.
func meant(t *testing.T, all []domain.Document, condition, orderBy string) []domain.Document {
	t.Helper()
	var where domain.Predicate
	var order []domain.Order
	var err error
	if condition != "" {
		where, err = filter.Compile(condition)
		must(t, err)
	}
	if orderBy != "" {
		order, err = filter.CompileOrder(orderBy)
		must(t, err)
	}
	var matching []domain.Document
	places := map[string]domain.SortKey{}
	for _, document := range all {
		ok, err := domain.Match(where, document)
		must(t, err)
		if ok {
			matching = append(matching, document)
		}
		places[document.ID], err = domain.SortKeyOf(document, order)
		must(t, err)
	}
	slices.SortFunc(matching, func(a, b domain.Document) int { return places[a.ID].Compare(places[b.ID], order) })
	return matching
}

// While other documents are added, removed or moved, each unmoved document is on exactly one page.
func TestPagesWhileDocumentsChange(t *testing.T) {
	t.Parallel()
	a := newWorld(t, nil).tenant("acme")
	keeping(a, "p")
	documents, stay := map[string]any{}, []string{}
	for i := range 20 {
		id := fmt.Sprintf("stay-%02d", i)
		documents[id] = object{"total": (i * 7) % 20 / 2, "open": true} // in pairs
		stay = append(stay, id)
		documents[fmt.Sprintf("move-%02d", i)] = object{"total": i / 2, "open": i%2 == 0}
	}
	slices.SortFunc(stay, func(x, y string) int {
		of := func(id string) int { return documents[id].(object)["total"].(int) }
		if by := of(y) - of(x); by != 0 {
			return by
		}
		return strings.Compare(x, y)
	})
	position := a.set(documents)
	var seen []string
	path := documentsPath("p", "orderBy", "total desc", "filter", "doc.open", "pageSize", "3", "minPosition", strconv.Itoa(position), "timeout", "20")
	for round := 0; path != ""; round++ {
		page := a.get(path).want(200)
		for _, document := range documentsIn(page) {
			if strings.HasPrefix(document.ID, "stay") {
				seen = append(seen, document.ID)
			}
		}
		path = page.next()
		// One document moves to the front or the end, one is removed, and one is added. This includes the last document
		// of the page.
		changed := map[string]any{
			fmt.Sprintf("move-%02d", round%20): object{"total": round%2*100 - 50, "open": true},
			fmt.Sprintf("come-%02d", round):    object{"total": round % 10, "open": true},
		}
		a.set(changed)
		a.post(fmt.Sprintf("/v1/streams/move-%02d/events", (round+7)%20), list{object{"type": "Removed", "data": nil}}).want(201)
		if last := documentsIn(page); len(last) > 0 && strings.HasPrefix(last[len(last)-1].ID, "move") {
			a.set(map[string]any{last[len(last)-1].ID: object{"total": -100, "open": false}})
		}
		if path != "" {
			path += "&timeout=20&minPosition=" + strconv.Itoa(a.get("/v1/projections/p/state").want(200).number("head"))
		}
	}
	equal(t, "those that stay", seen, stay)
}

// The Link header of a page repeats the first request's parameters, and the next page comes from the same build.
func TestDocumentLinks(t *testing.T) {
	t.Parallel()
	a := newWorld(t, nil).tenant("acme")
	keeping(a, "p")
	long := strings.Repeat("\U0001F600", domain.MaxOrderedCharacters)
	position := a.set(map[string]any{"x-1": object{"a": long, "b": long, "c": long, "d": 1}, "x-2": object{"a": long, "b": long, "c": long, "d": 2}})
	parameters := []string{
		"filter", `doc.d > 0 && doc.a != "&+%;=ü "`, "orderBy", "a desc, b, c", "fields", `d, ["odd name"]`, "pageSize", "1", "count", "exact",
	}
	first := a.get(documentsPath("p", append(parameters, "minPosition", strconv.Itoa(position), "timeout", "20")...)).want(200)
	next, err := url.Parse(first.next())
	must(t, err)
	carried := next.Query()
	for i := 0; i < len(parameters); i += 2 {
		equal(t, "the link's "+parameters[i], carried[parameters[i]], list{parameters[i+1]})
	}
	equal(t, "what the link has", len(carried), len(parameters)/2+1)
	second := a.get(first.next()).want(200)
	equal(t, "the pages", list{first.at("documents"), second.at("documents"), second.number("count"), second.next()}, list{
		list{object{"id": "x-1", "position": 1, "document": object{"d": 1}}}, list{object{"id": "x-2", "position": 2, "document": object{"d": 2}}}, 2, "",
	})
	carried.Set("orderBy", "a desc, b, c desc")
	a.get("/v1/projections/p/documents?"+carried.Encode()).wantProblem(400, domain.CodeInvalidRequest, "pageToken")
	a.post("/v1/projections/p/reset", nil).want(200)
	a.get(first.next()).wantProblem(410, domain.CodeGone, "pageToken")
}

// fields leaves parts of documents out; ids, positions and the ETag stay.
func TestDocumentFields(t *testing.T) {
	t.Parallel()
	a := newWorld(t, nil).tenant("acme")
	keeping(a, "p")
	position := a.set(map[string]any{"x-1": object{"a": object{"b": 1, "c": list{1, 2}, "d.e": nil}, "big": 9007199254740993, "z": "z"}, "x-2": object{"a": list{object{"b": 1}}}})
	a.get(documentsPath("p", "minPosition", strconv.Itoa(position), "timeout", "20")).want(200)
	page := a.get(documentsPath("p", "fields", `a.b, a["d.e"], big`)).want(200)
	x := page.at("documents", 0).(object)
	equal(t, "x-1's place", without(x, "document"), object{"id": "x-1", "position": 1})
	equal(t, "x-1", without(x["document"].(object), "big"), object{"a": object{"b": 1, "d.e": nil}})
	if !strings.Contains(string(page.body), "9007199254740993") {
		t.Errorf("a number is not what it was: %s", page.body)
	}
	equal(t, "x-2's place", list{page.text("documents", 1, "id"), page.number("documents", 1, "position")}, list{"x-2", 2})
	one := a.get("/v1/projections/p/documents/x-1?fields=z,a.c").want(200)
	equal(t, "one", list{one.json(), one.header.Get("ETag")}, list{object{"id": "x-1", "position": 1, "document": object{"a": object{"c": list{1, 2}}, "z": "z"}}, `"1"`})
	equal(t, "nothing of one", a.get("/v1/projections/p/documents/x-1?fields=none").want(200).at("document"), object{})
}

// A document is returned as it was saved, readable, and as it is in the statement of a query.
func TestDocumentsAreVerbatim(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a, operator := w.tenant("acme"), w.operator()
	keeping(a, "p")
	a.send("PUT", "/v1/aggregates/x", object{"on": object{"Set": "event.data"}}).want(200)
	position := strconv.Itoa(a.set(map[string]any{"x-1": object{"a": "<b> & </b>\u2028"}}))
	for _, body := range [][]byte{
		a.get(documentsPath("p", "minPosition", position, "timeout", "20")).want(200).body,
		a.get("/v1/projections/p/documents/x-1").want(200).body,
		a.get("/v1/projections/p/documents/x-1?fields=a").want(200).body,
		a.get("/v1/streams/x-1/state").want(200).body,
		operator.get(documentsPath("p", "filter", `doc.a == "<b> & </b>\u2028"`, "explain", "true", "tenant", a.tenantID)).want(200).body,
	} {
		if !strings.Contains(string(body), "<b> & </b>\u2028") {
			t.Errorf("it is not as it was: %s", body)
		}
	}
}

// The operator sees how a tenant's documents would be read, but not the documents.
func TestExplainDocuments(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	a, operator := w.tenant("acme"), w.operator()
	keeping(a, "own")
	keeping(operator, "shared")
	position := strconv.Itoa(a.set(map[string]any{"x-1": object{"total": 1, "secret": "a document's own"}}))
	for _, name := range []string{"own", "shared"} {
		a.get(documentsPath(name, "minPosition", position, "timeout", "20")).want(200)
		for _, parameters := range [][]string{{}, {"filter", "doc.total == 1"}, {"orderBy", "total desc"}, {"filter", `doc.customer.name.startsWith("a")`, "orderBy", "customer.name", "pageSize", "7", "fields", "total"}} {
			got := operator.get(documentsPath(name, append(parameters, "explain", "true", "tenant", a.tenantID)...)).want(200)
			equal(t, "the documents", got.at("documents"), list{})
			equal(t, "the database", got.text("explanation", "database"), "default")
			if statement := got.text("explanation", "statement"); !strings.Contains(strings.ToLower(statement), "select") || got.at("explanation", "plan") == nil {
				t.Errorf("%s is explained by %s", got.what, got.body)
			}
			if strings.Contains(string(got.body), "a document's own") {
				t.Errorf("%s tells what is in a document: %s", got.what, got.body)
			}
		}
	}
}

// A query that only some databases can answer, or that takes too long, is reported as an error in the query, with its
// place.
func TestQueriesThatTheDatabaseRefuses(t *testing.T) {
	t.Parallel()
	for code, want := range map[domain.Code]int{domain.CodeUnsupported: 422, domain.CodeTooCostly: 422, domain.CodeUnavailable: 503} {
		a := setup{driver: func(of drivers.Driver) drivers.Driver { return refusing{of, code} }}.start(t).tenant("acme")
		a.post("/v1/projections", object{"name": "p", "on": object{"*": "doc"}}).want(201)
		problem := a.get("/v1/projections/p/documents?filter=doc.a.matches('b')").wantProblem(want, code, "filter")
		equal(t, "the detail", problem["detail"], "line 1, column 1: this database cannot")
	}
}

// refusing simulates a database that cannot answer.
type refusing struct {
	drivers.Driver
	code domain.Code
}

func (r refusing) Query(context.Context, domain.Build, domain.TenantID, domain.DocumentQuery) ([]domain.Document, error) {
	return nil, domain.Errorf(r.code, "filter", "line 1, column 1: this database cannot")
}
