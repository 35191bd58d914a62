package api_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/manifold-es/manifold/api"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
)

func loadContract(t testing.TB) *openapi3.T {
	t.Helper()
	spec, err := openapi3.NewLoader().LoadFromData(openapi.YAML)
	must(t, err)
	return spec
}

// The contract is well-formed, its examples conform to its schemas, and each operation has the documentation that
// readers need.
func TestContractIsValid(t *testing.T) {
	t.Parallel()
	spec := loadContract(t)
	must(t, spec.Validate(t.Context(), openapi3.EnableExamplesValidation(), openapi3.EnableSchemaFormatValidation()))
	for path, item := range spec.Paths.Map() {
		for method, op := range item.Operations() {
			if op.Summary == "" || len(op.Tags) != 1 {
				t.Errorf("%s %s needs a summary and one tag", method, path)
			}
			if body := op.RequestBody; body != nil {
				for kind, media := range body.Value.Content {
					if media.Example == nil {
						t.Errorf("%s %s has no example of its %s body", method, path, kind)
					}
				}
			}
			for status, response := range op.Responses.Map() {
				for kind, media := range response.Value.Content {
					if media.Example == nil {
						t.Errorf("%s %s has no example of its %s answer of %s", method, path, status, kind)
					}
				}
			}
		}
	}
}

// The contract, the table and package domain have the same set of codes.
func TestCodesAreTheContracts(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	page := string((&actor{world: w}).get("/docs/errors").want(200).body)
	for _, code := range loadContract(t).Components.Schemas["Problem"].Value.Properties["code"].Value.Enum {
		if !strings.Contains(page, fmt.Sprintf(`id="%s"`, code)) {
			t.Errorf("/docs/errors has no %s", code)
		}
		page = strings.ReplaceAll(page, fmt.Sprintf(`id="%s"`, code), "")
	}
	if i := strings.Index(page, `<h2 id="`); i >= 0 {
		t.Errorf("/docs/errors has a code that openapi.yaml has not: %s", page[i:i+40])
	}
}

// The generated Definition has the same fields as domain's, since JSON converts between them.
func TestDefinitionHasAllFields(t *testing.T) {
	t.Parallel()
	names := func(of reflect.Type) map[string]bool {
		all := map[string]bool{}
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			all[name] = true
		}
		return all
	}
	equal(t, "the fields", names(reflect.TypeFor[openapi.Definition]()), names(reflect.TypeFor[domain.Definition]()))
}

// Every documented request works as documented, and its answer conforms to the contract. They run in an order in which
// each finds the data it depends on.
func TestDocumentedRequestsWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	spec := loadContract(t)
	operator := w.operator()
	documented := documentation{t: t, spec: spec, params: map[string]string{}, done: map[string]bool{}}

	tenant := documented.run(operator, "createTenant", 201)
	documented.params["tenantId"] = tenant.text("id")
	created := documented.run(operator, "createTenantKey", 201)
	documented.params["keyId"] = created.text("id")
	documented.run(operator, "listTenantKeys", 200)
	documented.run(operator, "listTenants", 200)
	documented.params["plan"] = "starter"
	documented.run(operator, "putPlan", 201)
	documented.run(operator, "getPlan", 200)
	documented.run(operator, "listPlans", 200)
	documented.run(operator, "putTenantLimits", 200)
	documented.run(operator, "getTenantLimits", 200)
	documented.run(operator, "getTenant", 200)
	documented.run(operator, "limitTenantKey", 200)
	documented.run(operator, "rotateTenantKey", 201)
	documented.run(operator, "revokeTenantKey", 204)

	a := &actor{w, w.key(tenant.text("id")), tenant.text("id")}
	documented.run(a, "getLimits", 200)
	documented.run(a, "getUsage", 200)
	documented.run(operator, "exportUsage", 200)
	documented.params["plan"] = "unused"
	documented.run(operator, "putPlan", 201)
	documented.run(operator, "deletePlan", 204)
	own := documented.run(a, "createKey", 201)
	documented.params["keyId"] = own.text("id")
	documented.run(a, "listKeys", 200)
	documented.run(a, "whoami", 200)
	documented.run(a, "getSignIn", 200)
	documented.run(a, "limitKey", 200)
	documented.run(a, "rotateKey", 201)
	documented.run(a, "revokeKey", 204)

	documented.run(a, "appendToStream", 201)
	documented.run(a, "appendToStream", 200)
	documented.run(a, "append", 201)
	documented.run(a, "append", 200)
	for _, id := range []string{"readStream", "readAll", "readCategory", "readByQuery", "readLatest", "readEvent", "listStreams", "getStreamMetadata", "exportEvents"} {
		documented.run(a, id, 200)
	}
	testProofs(t, &documented, operator, a)
	documented.run(a, "importEvents", 200)
	documented.run(a, "publish", 201)
	documented.run(a, "publish", 200)
	documented.run(a, "createTicket", 201)
	for _, id := range []string{"followAll", "followStream", "followCategory"} {
		documented.follow(a, id)
	}
	// asyncapi_test.go tests the other messages.
	a.gateway().ask("PUBLISH", object{"message": object{"topic": "heartbeat", "payload": 1}})
	documented.done["gateway"] = true
	testGroups(t, &documented, a)
	testWebhooks(t, &documented, a)

	testRetention(t, &documented, a)
	testSubjects(t, &documented, a)
	testReports(t, &documented, a)

	documented.run(a, "putAggregate", 200)
	documented.run(a, "getAggregate", 200)
	documented.run(a, "listAggregates", 200)
	delete(documented.params, "at")
	delete(documented.params, "version")
	documented.skip = map[string]bool{"at": true, "version": true}
	documented.run(a, "getState", 200)
	documented.params["version"] = "2"
	documented.skip = map[string]bool{"at": true, "occurredAt": true}
	state := documented.run(a, "getState", 200)
	equal(t, "the state", state.at("state"), object{"customer": "c-17", "total": 25})
	documented.params["dryRun"] = "true"
	outcome := documented.run(a, "sendCommand", 200)
	equal(t, "the state after a command", outcome.at("state"), object{"customer": "c-17", "total": 50})
	documented.run(a, "takeSnapshot", 201)
	documented.skip["tag"], documented.skip["pageToken"] = true, true
	equal(t, "the snapshots", documented.run(a, "listSnapshots", 200).at("snapshots", 0, "version"), 2)
	documented.run(a, "getLatestSnapshot", 200)
	documented.run(a, "deleteAggregate", 204)
	tried := documented.run(a, "previewAggregate", 200)
	equal(t, "the rule of a preview", tried.at("outcome", "rules", 0, "values"), object{"state.total": 95, "command.price": 10})

	preview := documented.run(a, "previewProjection", 200)
	equal(t, "the documents of a preview", preview.at("documents"), list{object{"id": "order-1", "position": 1, "document": object{"customer": "c-17"}}})
	planned := documented.run(a, "planProjections", 200)
	equal(t, "what is planned", planned.at("changes", 0, "action"), "create")
	documented.run(a, "createProjection", 201)
	documented.run(a, "putProjection", 200)
	documented.run(a, "getProjection", 200)
	documented.run(a, "listProjections", 200)
	versions := documented.run(a, "listProjectionVersions", 200)
	equal(t, "the version's cause", versions.at("versions", 0, "cause"), "created")
	document := documented.run(a, "getDocument", 200)
	equal(t, "the document", document.at("document"), object{"customer": "c-17", "total": 25})
	equal(t, "the document as it is", without(documented.run(a, "snapDocument", 200).json(), "items"), document.at("document"))
	listed := documented.run(a, "listDocuments", 200)
	equal(t, "the documents", listed.json(), object{"documents": list{document.json()}, "count": 1})
	documented.params["explain"], documented.params["tenant"] = "true", tenant.text("id")
	documented.run(a, "listDocuments", 403)
	explained := documented.run(operator, "listDocuments", 200)
	equal(t, "the documents", explained.at("documents"), list{})
	delete(documented.params, "explain")
	delete(documented.params, "tenant")
	documented.run(a, "getProjectionState", 200)
	testRebuilds(t, &documented, a)
	equal(t, "the state after catching up", documented.run(a, "catchUpProjection", 200).at("lagEvents"), 0)
	documented.run(operator, "listMembers", 200)
	documented.run(operator, "listEgresses", 200)
	documented.run(operator, "getAllLag", 200)
	documented.run(a, "resetProjection", 200, 409)
	testUpcasters(t, &documented, a)
	testSchemas(t, &documented, a)
	testFaults(t, &documented, a, operator)
	documented.run(a, "deleteProjection", 204)
	documented.run(operator, "createProjection", 201)
	documented.run(a, "getDocument", 200)
	ofAll := documented.run(operator, "listAllDocuments", 200)
	equal(t, "the documents of all", ofAll.json(), object{"documents": list{object{"tenant": tenant.text("id"), "id": "order-1001", "position": document.at("position"), "document": document.at("document")}}})
	documented.run(operator, "getTotals", 404) // its definition has none
	documented.run(operator, "deleteProjection", 204)

	a.explode(w.db.Pool(t, pgtest.RoleSuperuser, 1), 1, 400)
	documented.params["position"] = "1"
	documented.run(operator, "redactEvent", 200)

	documented.run(a, "putAggregate", 200)
	documented.run(a, "sendCommands", 200)
	wantAudited(t, a, documented.done, func(scopes []any) bool {
		documented.run(operator, "changeTenant", 200)
		return fmt.Sprint(scopes[0]) != "operator" && fmt.Sprint(scopes[0]) != "operator:operate"
	})
	documented.run(operator, "deleteTenant", 202)
	wantAudited(t, operator, documented.done, func(scopes []any) bool { return strings.HasPrefix(fmt.Sprint(scopes[0]), "operator") })
	nobody := &actor{world: w}
	for _, id := range []string{"livez", "readyz", "metrics", "contract", "asyncContract", "docs", "docsErrors"} {
		documented.run(nobody, id, 200)
	}
	for _, item := range spec.Paths.Map() {
		for _, op := range item.Operations() {
			if !documented.done[op.OperationID] {
				t.Errorf("%s was not tried", op.OperationID)
			}
		}
	}
}

// documentation runs the examples of the contract.
type documentation struct {
	t      *testing.T
	spec   *openapi3.T
	params map[string]string // replace the examples
	skip   map[string]bool   // parameters that are left out
	done   map[string]bool
}

// run sends an operation's documented request, expects one of the statuses, and checks the answer against the contract.
func (d *documentation) run(a *actor, id string, status ...int) *answer {
	d.t.Helper()
	method, path, item, op := d.find(id)
	target, headers := d.request(path, item, op)
	var body any
	if op.RequestBody != nil {
		for kind, media := range op.RequestBody.Value.Content {
			// cloudevents_contract_test.go tests the other types.
			if kind == "application/json" || len(op.RequestBody.Value.Content) == 1 {
				body = media.Example
				headers = append(headers, "Content-Type", kind)
			}
		}
	}
	got := a.send(method, target, body, headers...).want(status...)
	d.done[id] = true
	response := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: &http.Request{Method: method, URL: &url.URL{Path: path}, Header: http.Header{}},
			Route:   &routers.Route{Spec: d.spec, Path: path, PathItem: item, Method: method, Operation: op},
		},
		Status: got.status, Header: got.header, Body: io.NopCloser(bytes.NewReader(got.body)),
		Options: &openapi3filter.Options{IncludeResponseStatus: true},
	}
	kind, _, _ := strings.Cut(got.header.Get("Content-Type"), ";")
	if got.status != 204 && op.Responses.Status(got.status) != nil && op.Responses.Status(got.status).Value.Content.Get(kind) == nil {
		d.t.Errorf("%s answers with %s, which is not in the contract", id, kind)
	}
	if kind == ndjson {
		schema := d.spec.Components.Schemas[map[string]string{"exportEvents": "ImportLine", "exportSubject": "ImportLine", "importEvents": "ImportProgress", "exportUsage": "TenantUsage", "exportDifference": "DifferentDocument"}[id]].Value
		for _, line := range got.lines() {
			if err := schema.VisitJSON(line); err != nil {
				d.t.Errorf("a line of %s does not keep to the contract: %v", id, err)
			}
		}
	} else if strings.HasSuffix(kind, "json") {
		if err := openapi3filter.ValidateResponse(d.t.Context(), response); err != nil {
			d.t.Errorf("the answer of %s does not keep to the contract: %v\n%s", id, err, got.body)
		}
		if schema := op.Responses.Status(got.status); schema != nil {
			d.complete(id, got, schema.Value.Content.Get(kind).Schema.Value)
		}
	}
	return got
}

// request returns the target and the headers of the documented request.
func (d *documentation) request(path string, item *openapi3.PathItem, op *openapi3.Operation) (target string, headers []string) {
	query := url.Values{}
	target = path
	for _, parameters := range []openapi3.Parameters{item.Parameters, op.Parameters} {
		for _, ref := range parameters {
			p := ref.Value
			value, ok := d.params[p.Name]
			if !ok {
				if p.Example == nil || d.skip[p.Name] {
					continue
				}
				if parts, isList := p.Example.([]any); isList {
					var texts []string
					for _, part := range parts {
						texts = append(texts, fmt.Sprint(part))
					}
					value = strings.Join(texts, ",")
				} else {
					value = fmt.Sprint(p.Example)
				}
			}
			switch p.In {
			case openapi3.ParameterInPath:
				target = strings.ReplaceAll(target, "{"+p.Name+"}", url.PathEscape(value))
			case openapi3.ParameterInQuery:
				query.Set(p.Name, value)
			case openapi3.ParameterInHeader:
				headers = append(headers, p.Name, value)
			}
		}
	}
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	return target, headers
}

// follow follows as documented, over each transport, up to the head, and checks the frames against the contract.
func (d *documentation) follow(a *actor, id string) {
	d.t.Helper()
	_, path, item, op := d.find(id)
	target, headers := d.request(path, item, op)
	schema := d.spec.Components.Schemas["Frame"].Value
	for _, transport := range transports {
		f := a.follow(d.t, transport, target, headers...)
		for _, frame := range f.until("caughtUp") {
			if err := schema.VisitJSON(frame.json()); err != nil {
				d.t.Errorf("a frame of %s does not keep to the contract: %v", id, err)
			}
		}
		f.close()
	}
	d.done[id] = true
}

// complete fails if an answer has a member that the contract does not name. A document may have any members.
func (d *documentation) complete(id string, got *answer, schema *openapi3.Schema) {
	d.t.Helper()
	for name := range got.json() {
		if schema.Properties[name] == nil && schema.Properties != nil {
			d.t.Errorf("the answer of %s has %s, which is not in the contract", id, name)
		}
	}
}

func (d *documentation) find(id string) (method, path string, item *openapi3.PathItem, op *openapi3.Operation) {
	d.t.Helper()
	for path, item := range d.spec.Paths.Map() {
		for method, op := range item.Operations() {
			if op.OperationID == id {
				return method, path, item, op
			}
		}
	}
	d.t.Fatalf("there is no operation %s", id)
	return
}

// The pages load files of the service alone, also under the policy that they ask for.
func TestDocsPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) { c.Docs = os.DirFS("..") })
	nobody := &actor{world: w}
	const forbidding = "default-src 'none'; script-src 'self'; style-src 'self'; "
	for path, policy := range map[string]string{
		"/": "require-trusted-types-for 'script'", "/docs": "require-trusted-types-for 'script'", "/docs/guides/rebuild": "require-trusted-types-for 'script'",
		"/docs/errors": "require-trusted-types-for 'script'", "/docs/api": "img-src 'self' data:",
	} {
		page := nobody.get(path).want(200)
		if got := page.header.Get("Content-Security-Policy"); !strings.HasPrefix(got, forbidding) || !strings.Contains(got, policy) {
			t.Errorf("the policy of %s is %q", path, got)
		}
		equal(t, path, list{page.header.Get("Content-Type"), page.header.Get("Cache-Control")}, list{"text/html; charset=utf-8", "no-cache"})
		for _, match := range regexp.MustCompile(`<(?:link|script|img)[^>]* (?:href|src)="([^"]*)"`).FindAllStringSubmatch(string(page.body), -1) {
			nobody.get(match[1]).want(200)
		}
		nobody.get(path, "If-None-Match", page.header.Get("ETag")).want(304)
	}
	for path, kind := range map[string]string{"/docs/swagger-ui-bundle.js": "text/javascript; charset=utf-8", "/docs/swagger-ui.css": "text/css; charset=utf-8", "/docs/search.json": "application/json"} {
		asset := nobody.get(path, "Accept-Encoding", "gzip").want(200)
		equal(t, path, list{asset.header.Get("Content-Type"), asset.header.Get("Content-Encoding")}, list{kind, "gzip"})
		decompress(t, asset)
		if len(asset.body) < 100_000 {
			t.Errorf("%s has only %d bytes", path, len(asset.body))
		}
	}
	equal(t, "a missing page", nobody.get("/docs/nowhere").want(404).header.Get("Content-Type"), "text/html; charset=utf-8")
	if page := nobody.get("/docs/guides/rebuild/").want(200); !strings.Contains(string(page.body), "<h1>Rebuilding a projection</h1>") {
		t.Error("a path with a slash at its end does not lead to the page")
	}
	if !bytes.Equal(nobody.get("/openapi.yaml").want(200).body, openapi.YAML) {
		t.Error("/openapi.yaml is not the contract")
	}
}

// Requests are checked by the keywords that OpenAPI 3.0 has, and the checker ignores those that only 3.1 has.
func TestContractHasNoKeywordsOf31(t *testing.T) {
	t.Parallel()
	check := func(where string, ref *openapi3.SchemaRef) {
		if ref == nil {
			return
		}
		must(t, ref.WalkSubtree(func(_ string, ref *openapi3.SchemaRef) error {
			s := ref.Value
			if s.Const != nil || s.If != nil || s.Contains != nil || s.PropertyNames != nil || s.ContentSchema != nil ||
				len(s.PrefixItems)+len(s.PatternProperties)+len(s.DependentSchemas)+len(s.DependentRequired)+len(s.Defs) > 0 ||
				s.UnevaluatedItems.Has != nil || s.UnevaluatedItems.Schema != nil ||
				s.UnevaluatedProperties.Has != nil || s.UnevaluatedProperties.Schema != nil {
				t.Errorf("%s has a keyword that requests are not checked by", where)
			}
			return nil
		}))
	}
	spec := loadContract(t)
	for name, ref := range spec.Components.Schemas {
		check(name, ref)
	}
	for path, item := range spec.Paths.Map() {
		for method, op := range item.Operations() {
			for _, parameter := range append(append(openapi3.Parameters{}, item.Parameters...), op.Parameters...) {
				check(method+" "+path+" "+parameter.Value.Name, parameter.Value.Schema)
			}
			if op.RequestBody != nil {
				for kind, media := range op.RequestBody.Value.Content {
					check(method+" "+path+" "+kind, media.Schema)
				}
			}
		}
	}
}
