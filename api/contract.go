package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/manifold-es/manifold/api/access"
	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/api/problem"
	"github.com/manifold-es/manifold/api/transfer"
	"github.com/manifold-es/manifold/api/wire"
	"github.com/manifold-es/manifold/auth"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/fairshare"
)

// contract is openapi.yaml, prepared for checking requests.
type contract struct {
	spec       *openapi3.T
	operations map[string]*operation // by "GET /v1/streams/:streamId", as Echo names routes
}

// operation is one operation of the contract.
type operation struct {
	id     string
	path   string       // with {names}
	scopes []auth.Scope // the key must have one of them; none: open to everyone
	// The operation's handler checks the categories that the request concerns (caller.allow). A key with a scope for
	// only some categories cannot use any other operation.
	byCategory bool
	query      map[string]bool
	route      *routers.Route
	body       bool // it accepts a JSON body
	needs      bool // the body is required
	maxBody    int64
	decoded    bool     // the handler decodes the body, and checks it against the contract
	audited    *audited // nil: the operation is not administrative
	auditLog   bool     // it also works on audit logs
	verbatim   []string // members of the body that are any JSON and may be large
}

// audited is an operation's x-audit.
type audited struct {
	category string // of the thing that it changes
	state    string // the operation that returns the thing, with the same path parameters; empty: there is none
}

// decodesItsBody reports whether the operation's handler decodes the body in one pass that also checks it. Consumers of
// groups acknowledge every event, and the validator would need more time for that than all else of the request.
func decodesItsBody(operationID string) bool {
	return operationID == "ackEvents" || operationID == "receive"
}

// sharedContract is the contract for every server of the process. Nothing changes it once it is loaded, which takes a
// tenth of a second.
var sharedContract = sync.OnceValues(loadContract)

// loadContract loads the contract. An error means that openapi.yaml itself is wrong.
func loadContract() (*contract, error) {
	spec, err := openapi3.NewLoader().LoadFromData(openapi.YAML)
	if err != nil {
		return nil, fmt.Errorf("openapi.yaml: %w", err)
	}
	// Check requests by the schemas that OpenAPI 3.0 and 3.1 share, which the contract keeps to. The validator of 3.1
	// compiles a schema for each request, and its errors do not have the place and the rule that explain needs.
	spec.OpenAPI = "3.0.3"
	// Keys are checked earlier (auth.go). With a security requirement, the validator would read the whole body first.
	spec.Security = nil
	c := &contract{spec: spec, operations: map[string]*operation{}}
	for path, item := range spec.Paths.Map() {
		for method, op := range item.Operations() {
			op.Security = nil
			o := &operation{
				id: op.OperationID, path: path, query: map[string]bool{}, maxBody: maxBodyBytes,
				decoded: decodesItsBody(op.OperationID),
				route:   &routers.Route{Spec: spec, Path: path, PathItem: item, Method: method, Operation: op},
			}
			scopes, ok := op.Extensions["x-scopes"].([]any)
			if !ok {
				return nil, fmt.Errorf("openapi.yaml: %s %s has no x-scopes", method, path)
			}
			for _, scope := range scopes {
				o.scopes = append(o.scopes, auth.Scope(fmt.Sprint(scope)))
			}
			o.byCategory = op.Extensions["x-categories"] == true
			o.auditLog = op.Extensions["x-audit-log"] == true
			if given, ok := op.Extensions["x-audit"].(map[string]any); ok {
				o.audited = &audited{}
				o.audited.category, _ = given["category"].(string)
				o.audited.state, _ = given["state"].(string)
			}
			for _, parameters := range []openapi3.Parameters{item.Parameters, op.Parameters} {
				for _, parameter := range parameters {
					if parameter.Value.In == openapi3.ParameterInQuery {
						o.query[parameter.Value.Name] = true
					}
				}
			}
			if op.RequestBody != nil {
				o.body = op.RequestBody.Value.Content.Get("application/json") != nil
				o.needs = op.RequestBody.Value.Required
				if err := o.readLimits(op.RequestBody.Value); err != nil {
					return nil, fmt.Errorf("openapi.yaml: %s %s: %w", method, path, err)
				}
			}
			c.operations[method+" "+echoPath(path)] = o
		}
	}
	return c, nil
}

// echoPath turns /a/{b} into /a/:b.
func echoPath(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}

// checkQuery refuses parameters that the operation does not know. Otherwise a misspelt filter would be ignored.
func (o *operation) checkQuery(query url.Values) error {
	for name, values := range query {
		if !o.query[name] {
			return domain.Errorf(domain.CodeInvalidRequest, "query "+name, "unknown parameter; %s", o.queryNames())
		}
		if len(values) > 1 {
			return domain.Errorf(domain.CodeInvalidRequest, "query "+name, "given %d times; give it once", len(values))
		}
	}
	return nil
}

func (o *operation) queryNames() string {
	if len(o.query) == 0 {
		return "this operation has none"
	}
	var names []string
	for _, parameter := range append(append(openapi3.Parameters{}, o.route.PathItem.Parameters...), o.route.Operation.Parameters...) {
		if parameter.Value.In == openapi3.ParameterInQuery {
			names = append(names, parameter.Value.Name)
		}
	}
	return "expected " + strings.Join(names, ", ")
}

// readLimits reads the contract's size limit for a body.
func (o *operation) readLimits(body *openapi3.RequestBody) error {
	if given, ok := body.Extensions["x-max-body"]; ok {
		bytes, ok := given.(float64)
		if !ok || bytes < 1 {
			return fmt.Errorf("x-max-body is %v; it must be a number of bytes", given)
		}
		o.maxBody = int64(bytes)
	}
	if given, ok := body.Extensions["x-verbatim"]; ok {
		names, ok := given.([]any)
		if !ok {
			return fmt.Errorf("x-verbatim is %v; it must be a list of members", given)
		}
		for _, name := range names {
			o.verbatim = append(o.verbatim, fmt.Sprint(name))
		}
	}
	return nil
}

// check checks a request against the contract: its parameters, and its body if that is JSON. It reads the body and puts
// it back, and charges it to account. Large bodies are checked in turns and charged to checking meanwhile.
func (o *operation) check(request *http.Request, pathParams map[string]string, account, checking *fairshare.Account) error {
	query, err := url.ParseQuery(request.URL.RawQuery)
	if err != nil {
		return domain.Errorf(domain.CodeInvalidRequest, "query", "invalid query: %s", err)
	}
	if err := o.checkText(pathParams, query); err != nil {
		return err
	}
	if err := o.checkQuery(query); err != nil {
		return err
	}
	body, err := o.readBody(request, account)
	if err != nil {
		return err
	}
	if err := awaitTurn(request.Context(), checking, body); err != nil {
		return err
	}
	defer checking.Close()
	if body != nil && !o.decoded {
		if err := domain.CheckJSON(body); err != nil {
			return domain.Errorf(domain.CodeInvalidJSON, "body", "%s", err)
		}
		setBody(request, o.withoutVerbatim(body))
	}
	err = openapi3filter.ValidateRequest(request.Context(), &openapi3filter.RequestValidationInput{
		Request: request, PathParams: pathParams, QueryParams: query, Route: o.route,
		Options: &openapi3filter.Options{
			SkipSettingDefaults: true,
			ExcludeRequestBody:  body == nil || o.decoded,
		},
	})
	if body != nil {
		setBody(request, body)
		request.Body = chargedBody{request.Body, account}
	}
	return explain(err)
}

// awaitTurn waits until a large body may be parsed, and charges it to checking. The caller closes checking.
func awaitTurn(ctx context.Context, checking *fairshare.Account, body []byte) error {
	if len(body) < checkInTurnsBytes {
		return nil
	}
	return checking.Wait(ctx, int64(len(body)), transfer.RoomPatience)
}

// parseInTurn calls parse when the body may be parsed.
func (s *Server) parseInTurn(ctx context.Context, caller access.Caller, body []byte, parse func() error) error {
	parsing := s.budgets.checking.Account(caller.ShareOf())
	defer parsing.Close()
	if err := awaitTurn(ctx, parsing, body); err != nil {
		return err
	}
	return parse()
}

func setBody(request *http.Request, body []byte) {
	request.Body, request.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
}

// chargedBody is a body in memory. Close ends its charge early, for a handler that is done with it and then waits.
type chargedBody struct {
	io.Reader
	account *fairshare.Account
}

func (b chargedBody) Close() error {
	b.account.Close()
	return nil
}

// checkedBody returns the body of a request that was checked. It is in memory, so that its length is known.
func checkedBody(request *http.Request) ([]byte, error) {
	body := make([]byte, request.ContentLength)
	_, err := io.ReadFull(request.Body, body)
	return body, err
}

// checkText refuses parameters with text that databases do not accept, and that no name or value may contain.
func (o *operation) checkText(pathParams map[string]string, query url.Values) error {
	for name, value := range pathParams {
		if !storable(value) {
			return domain.Errorf(domain.CodeInvalidRequest, "path "+name, "must be UTF-8 without U+0000")
		}
	}
	for name, values := range query {
		if !storable(name) {
			return domain.Errorf(domain.CodeInvalidRequest, "query", "names of parameters must be UTF-8 without U+0000")
		}
		for _, value := range values {
			if !storable(value) {
				return domain.Errorf(domain.CodeInvalidRequest, "query "+name, "must be UTF-8 without U+0000")
			}
		}
	}
	return nil
}

// storable reports whether a database can store a text.
func storable(text string) bool { return utf8.ValidString(text) && strings.IndexByte(text, 0) < 0 }

// readBody reads a JSON body. It returns nil if there is no body, or if the contract does not check it.
func (o *operation) readBody(request *http.Request, account *fairshare.Account) ([]byte, error) {
	if o.route.Operation.RequestBody == nil {
		return nil, noBody(request)
	}
	if !o.body {
		return nil, nil
	}
	if request.ContentLength > o.maxBody {
		return nil, o.bodyTooLarge()
	}
	body, err := transfer.ReadAll(request.Body, request.ContentLength, int(o.maxBody), account.Grow, account)
	switch {
	case err == transfer.ErrTooLong:
		return nil, o.bodyTooLarge()
	case err != nil:
		return nil, transfer.Unreadable(err)
	}
	if len(bytes.TrimSpace(body)) == 0 {
		if o.needs {
			return nil, domain.Errorf(domain.CodeInvalidRequest, "body", "request body missing; send a JSON object")
		}
		request.Body, request.ContentLength = http.NoBody, 0
		return nil, nil
	}
	if err := wire.RequireContentType(request, "application/json"); err != nil {
		return nil, err
	}
	if request.Header.Get("Content-Encoding") != "" {
		return nil, domain.Errorf(problem.CodeUnsupportedMediaType, "Content-Encoding", "unsupported encoding; only append, publish and import accept compressed bodies")
	}
	return body, account.Grow(decodedFactor * int64(len(body)))
}

func (o *operation) bodyTooLarge() error {
	return domain.Errorf(domain.CodeTooLarge, "body", "the body has more than %d bytes, the limit of %s", o.maxBody, o.id)
}

// withoutVerbatim replaces the members that may be any JSON by null. There is nothing to check in them, and the
// validator would build a tree of them.
func (o *operation) withoutVerbatim(body []byte) []byte {
	if len(o.verbatim) == 0 {
		return body
	}
	scan := domain.NewJSONScanner(body)
	short := []byte{'{'}
	err := scan.Object(func(name string) error {
		value, err := scan.Value()
		if err != nil {
			return err
		}
		if slices.Contains(o.verbatim, name) {
			value = json.RawMessage("null")
		}
		if len(short) > 1 {
			short = append(short, ',')
		}
		short = append(append(wire.AppendJSONText(short, name), ':'), value...)
		return nil
	})
	if err != nil { // not an object, which the validator reports
		return body
	}
	return append(short, '}')
}

// noBody refuses a request body where the contract has none. It would be ignored: a client that sends the ids to
// discard, for example, would discard everything. An empty object is allowed, since many clients send one by habit.
func noBody(request *http.Request) error {
	if request.ContentLength == 0 || request.Body == nil {
		return nil
	}
	const most = 64
	body, err := io.ReadAll(io.LimitReader(request.Body, most))
	if err != nil {
		return transfer.Unreadable(err)
	}
	switch string(bytes.TrimSpace(body)) {
	case "", "{}", "null":
		if len(body) < most {
			return nil
		}
	}
	return domain.Errorf(domain.CodeInvalidRequest, "body", "unexpected body; this operation uses only its path and parameters")
}

// explain converts an error of the validator to one that names the place, the value and what is expected.
func explain(err error) error {
	if err == nil {
		return nil
	}
	var of *openapi3filter.RequestError
	if !errors.As(err, &of) {
		return fmt.Errorf("check the request against the contract: %w", err)
	}
	where := "body"
	if p := of.Parameter; p != nil {
		where = p.Name
		switch p.In {
		case openapi3.ParameterInQuery:
			where = "query " + p.Name
		case openapi3.ParameterInPath:
			where = "path " + p.Name
		}
	}
	var schema *openapi3.SchemaError
	if errors.As(err, &schema) {
		if place := jsonPlace(schema.JSONPointer()); place != "" {
			if where == "body" {
				where = place
			} else {
				where += " " + place
			}
		}
		return domain.Errorf(domain.CodeInvalidRequest, where, "%s", schemaMessage(schema))
	}
	var parse *openapi3filter.ParseError
	switch {
	case errors.As(err, &parse):
		what := "it must be " + parameterKind(of.Parameter)
		return domain.Errorf(domain.CodeInvalidRequest, where, "invalid value %q: %s", domain.Clip(fmt.Sprint(parse.Value), 60), what)
	case errors.Is(err, openapi3filter.ErrInvalidRequired):
		return domain.Errorf(domain.CodeInvalidRequest, where, "required, but missing")
	case errors.Is(err, openapi3filter.ErrInvalidEmptyValue):
		return domain.Errorf(domain.CodeInvalidRequest, where, "it must not be empty")
	default:
		return domain.Errorf(domain.CodeInvalidRequest, where, "%s", of.Reason)
	}
}

func parameterKind(parameter *openapi3.Parameter) string {
	if parameter == nil || parameter.Schema == nil {
		return "a value that the contract allows"
	}
	return kindOf(parameter.Schema.Value)
}

func kindOf(schema *openapi3.Schema) string {
	switch {
	case schema.Type.Is("integer"):
		return "a whole number"
	case schema.Type.Is("number"):
		return "a number"
	case schema.Type.Is("boolean"):
		return "true or false"
	case schema.Type.Is("array"):
		return "an array"
	case schema.Type.Is("object"):
		return "an object"
	case schema.Type.Is("string"):
		return "a string"
	default:
		return "a value that the contract allows"
	}
}

// jsonPlace turns the parts of a JSON pointer into streams[1].events[3].data.
func jsonPlace(pointer []string) string {
	var place strings.Builder
	for _, part := range pointer {
		if _, err := strconv.Atoi(part); err == nil {
			place.WriteString("[" + part + "]")
			continue
		}
		if place.Len() > 0 {
			place.WriteByte('.')
		}
		place.WriteString(domain.Clip(part, 60))
	}
	return place.String()
}

func schemaMessage(e *openapi3.SchemaError) string {
	schema := e.Schema
	switch e.SchemaField {
	case "type", "nullable":
		return "it must be " + kindOf(schema)
	case "required":
		if pointer := e.JSONPointer(); len(pointer) > 0 {
			return "required field missing: " + pointer[len(pointer)-1]
		}
	case "properties":
		given, _ := e.Value.(map[string]any)
		known := slices.Sorted(maps.Keys(schema.Properties))
		for _, name := range slices.Sorted(maps.Keys(given)) {
			if slices.Contains(known, name) {
				continue
			}
			message := fmt.Sprintf("unknown field %q", domain.Clip(name, 60))
			if len(known) > 0 {
				message += "; expected " + strings.Join(known, ", ")
			}
			return message
		}
	case "enum":
		var allowed []string
		for _, value := range schema.Enum {
			allowed = append(allowed, fmt.Sprint(value))
		}
		return "it must be one of " + strings.Join(allowed, ", ")
	case "minLength", "maxLength":
		most := "any number"
		if schema.MaxLength != nil {
			most = strconv.FormatUint(*schema.MaxLength, 10)
		}
		return fmt.Sprintf("it must have %d to %s characters", schema.MinLength, most)
	case "minimum", "maximum":
		switch {
		case schema.Min != nil && schema.Max != nil:
			return fmt.Sprintf("it must be a number from %s to %s", plainNumber(*schema.Min), plainNumber(*schema.Max))
		case schema.Min != nil:
			return fmt.Sprintf("it must be at least %s", plainNumber(*schema.Min))
		}
	case "minItems", "maxItems":
		most := "any number of"
		if schema.MaxItems != nil {
			most = strconv.FormatUint(*schema.MaxItems, 10)
		}
		return fmt.Sprintf("it must have %d to %s elements", schema.MinItems, most)
	case "uniqueItems":
		return "duplicate element"
	case "minProperties", "maxProperties":
		return propertiesMessage(schema)
	case "pattern":
		if text, ok := e.Value.(string); ok {
			if len(schema.Examples) > 0 {
				return fmt.Sprintf("invalid value %q; it must look like %v", domain.Clip(text, 60), schema.Examples[0])
			}
			return fmt.Sprintf("invalid value %q; it must match %s", domain.Clip(text, 60), schema.Pattern)
		}
	case "format":
		if schema.Type.Is("integer") {
			return "the number is too large; give one below 9223372036854775808"
		}
		return "it must be a " + schema.Format + ", such as 2026-03-01T09:30:00Z"
	}
	return e.Reason
}

func plainNumber(n float64) string { return strconv.FormatFloat(n, 'f', -1, 64) }

// propertiesMessage says how many members an object must have and, if the schema names them, which.
func propertiesMessage(schema *openapi3.Schema) string {
	names := strings.Join(slices.Sorted(maps.Keys(schema.Properties)), ", ")
	switch {
	case names != "" && schema.MaxProps != nil && *schema.MaxProps == 1:
		return "it must have exactly one of " + names
	case names != "":
		return "it must have at least one of " + names
	case schema.MaxProps != nil:
		return fmt.Sprintf("it must have %d to %d members", schema.MinProps, *schema.MaxProps)
	}
	return fmt.Sprintf("it must have at least %d members", schema.MinProps)
}
