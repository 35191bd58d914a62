package api

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/labstack/echo/v4"

	"github.com/manifold-es/manifold/api/openapi"
	"github.com/manifold-es/manifold/domain"
)

// docsFiles are the assets and templates of the documentation pages. The pages are rendered from the contract itself.
// They contain no script and load nothing from elsewhere, so they work offline and under the strictest policy.
//
//go:embed docs
var docsFiles embed.FS

const docsPolicy = "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

func (s *Server) docs(c echo.Context, _ caller) error {
	page, err := s.docsPage()
	if err != nil {
		return err
	}
	return s.page(c, page)
}

func (s *Server) docsErrors(c echo.Context, _ caller) error { return s.page(c, s.errorPage) }

func (s *Server) page(c echo.Context, page []byte) error {
	c.Response().Header().Set("Content-Security-Policy", docsPolicy)
	c.Response().Header().Set("Referrer-Policy", "no-referrer")
	return c.HTMLBlob(http.StatusOK, page)
}

// docsAssets registers the files that the pages load.
func (s *Server) docsAssets() error {
	style, err := docsFiles.ReadFile("docs/style.css")
	if err != nil {
		return err
	}
	s.echo.Match([]string{http.MethodGet, http.MethodHead}, "/docs/style.css", func(c echo.Context) error {
		c.Response().Header().Set("Cache-Control", "max-age=3600")
		return c.Blob(http.StatusOK, "text/css; charset=utf-8", style)
	})
	return nil
}

func renderErrorPage(problems []problem) ([]byte, error) {
	type line struct {
		Code          domain.Code
		Status, Class int
		Title, Advice string
	}
	var lines []line
	for _, p := range problems {
		lines = append(lines, line{Code: p.code, Status: p.status, Class: p.status / 100, Title: p.title, Advice: p.advice})
	}
	return render("errors.html", lines)
}

func render(name string, data any) ([]byte, error) {
	parsed, err := template.New(name).Funcs(template.FuncMap{"prose": prose, "phrase": phrase}).ParseFS(docsFiles, "docs/"+name)
	if err != nil {
		return nil, err
	}
	var page bytes.Buffer
	if err := parsed.Execute(&page, data); err != nil {
		return nil, err
	}
	return page.Bytes(), nil
}

var (
	codeMark   = regexp.MustCompile("`([^`]+)`")
	strongMark = regexp.MustCompile(`\*\*([^*]+)\*\*`)
)

// prose renders the Markdown that the contract's descriptions use: paragraphs, code and strong.
func prose(text string) template.HTML {
	var html strings.Builder
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if paragraph == "" {
			continue
		}
		html.WriteString("<p>" + string(phrase(paragraph)) + "</p>")
	}
	return template.HTML(html.String())
}

// phrase is prose without paragraphs.
func phrase(text string) template.HTML {
	escaped := template.HTMLEscapeString(text)
	escaped = codeMark.ReplaceAllString(escaped, "<code>$1</code>")
	return template.HTML(strongMark.ReplaceAllString(escaped, "<strong>$1</strong>"))
}

// The data of the page's template.
type (
	docsContent struct {
		Title, Version, Description string
		Tags                        []*docsTag
		Schemas                     []docsSchema
	}
	docsTag struct {
		Name, Description string
		Operations        []docsOperation
	}
	docsOperation struct {
		ID, Method, Path, Summary, Description, Curl string
		Scopes                                       []domain.Scope
		Parameters                                   []docsParameter
		Body                                         *docsRequest // nil: none accepted
		Responses                                    []docsResponse
	}
	docsParameter struct {
		Name, In, Kind, Description string
		Required                    bool
	}
	docsResponse struct {
		Status, Class, Description string
		Bodies                     []docsBody
	}
	docsBody struct{ Type, Schema, Example string }

	docsRequest struct {
		Type, Each string
		Required   bool
		Schema     docsSchema
		Others     []docsBody // alternatives
	}

	docsSchema struct {
		Name, Kind, Description string
		Fields                  []docsField
	}
	docsField struct {
		Name, Kind, Prefix, Schema, Description string
		Mark                                    string // required in a request, always present in an answer, or nothing
	}
)

// newDocsPage returns a function that renders the page on its first call.
func newDocsPage(c *contract) func() ([]byte, error) {
	return sync.OnceValues(func() ([]byte, error) {
		tree, err := newDocsTree(openapi.YAML, c.spec.Components.Schemas)
		if err != nil {
			return nil, err
		}
		content := docsContent{Title: c.spec.Info.Title, Version: c.spec.Info.Version, Description: c.spec.Info.Description}
		byTag := map[string]*docsTag{}
		for _, tag := range c.spec.Tags {
			byTag[tag.Name] = &docsTag{Name: tag.Name, Description: tag.Description}
			content.Tags = append(content.Tags, byTag[tag.Name])
		}
		operations := make([]*operation, 0, len(c.operations))
		for _, o := range c.operations {
			operations = append(operations, o)
		}
		// In the order of the contract.
		place := func(o *operation) int { return bytes.Index(openapi.YAML, []byte("operationId: "+o.id+"\n")) }
		slices.SortFunc(operations, func(a, b *operation) int { return place(a) - place(b) })
		for _, o := range operations {
			shown, err := tree.describe(o)
			if err != nil {
				return nil, fmt.Errorf("show operation %s: %w", o.id, err)
			}
			for _, name := range o.route.Operation.Tags {
				tag := byTag[name]
				if tag == nil {
					return nil, fmt.Errorf("show operation %s: there is no tag %s", o.id, name)
				}
				tag.Operations = append(tag.Operations, shown)
			}
		}
		names := make([]string, 0, len(c.spec.Components.Schemas))
		for name := range c.spec.Components.Schemas {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			content.Schemas = append(content.Schemas, tree.schema(name, c.spec.Components.Schemas[name].Value))
		}
		return render("page.html", content)
	})
}

func (t docsTree) describe(o *operation) (docsOperation, error) {
	op := o.route.Operation
	shown := docsOperation{
		ID: o.id, Method: o.route.Method, Path: o.path, Summary: op.Summary, Description: op.Description, Scopes: o.scopes,
	}
	here := []string{"paths", o.path, strings.ToLower(o.route.Method)}
	path, query, headers := o.path, "", ""
	var tried []string // parameters worth showing whose values must be escaped in a URL
	for _, parameters := range []openapi3.Parameters{o.route.PathItem.Parameters, op.Parameters} {
		for _, ref := range parameters {
			p := ref.Value
			shown.Parameters = append(shown.Parameters, docsParameter{
				Name: p.Name, In: p.In, Required: p.Required, Description: p.Description, Kind: constraints(p.Schema.Value),
			})
			example := exampleText(p.Example)
			switch {
			case p.In == openapi3.ParameterInPath:
				path = strings.ReplaceAll(path, "{"+p.Name+"}", example)
			case p.In == openapi3.ParameterInQuery && p.Required:
				query += "?" + p.Name + "=" + example
			case p.In == openapi3.ParameterInQuery && p.Extensions["x-try"] == true:
				tried = append(tried, shellQuoted(p.Name+"="+example))
			}
		}
	}
	var curl strings.Builder
	curl.WriteString("curl ")
	if o.route.Method != http.MethodGet {
		curl.WriteString("-X " + o.route.Method + " ")
	}
	if len(tried) > 0 {
		curl.WriteString("-G ")
	}
	curl.WriteString("'http://localhost:8080" + path + query + "'")
	for _, parameter := range tried {
		curl.WriteString(" \\\n  --data-urlencode " + parameter)
	}
	if len(o.scopes) > 0 {
		headers += " \\\n  -H \"Authorization: Bearer $KEY\""
	}
	if op.RequestBody != nil {
		for i, kind := range t.names(append(here, "requestBody", "content")...) {
			media := op.RequestBody.Value.Content[kind]
			body, err := t.example(append(here, "requestBody", "content", kind, "example")...)
			if err != nil {
				return shown, err
			}
			if i > 0 {
				shown.Body.Others = append(shown.Body.Others, docsBody{Type: kind, Schema: schemaName(media.Schema), Example: body})
				continue
			}
			shown.Body = t.body(op, kind, media)
			headers += " \\\n  -H 'Content-Type: " + kind + "' \\\n  --data-binary " + shellQuoted(strings.TrimSpace(body))
		}
	}
	curl.WriteString(headers)
	shown.Curl = curl.String()
	for _, status := range t.names(append(here, "responses")...) {
		response := op.Responses.Value(status).Value
		line := docsResponse{Status: status, Class: status[:1]}
		if status == "default" {
			line.Status, line.Class = "error", "4"
		}
		if response.Description != nil {
			line.Description = strings.TrimSpace(*response.Description)
		}
		for _, kind := range t.names(append(here, "responses", status, "content")...) {
			media := response.Content[kind]
			example, err := t.example(append(here, "responses", status, "content", kind, "example")...)
			if err != nil {
				return shown, err
			}
			body := docsBody{Type: kind, Schema: schemaName(media.Schema), Example: example}
			if lines := linesOf(media); lines != "" {
				body.Schema = lines
			}
			if status == "default" {
				body.Example = ""
			}
			line.Bodies = append(line.Bodies, body)
		}
		shown.Responses = append(shown.Responses, line)
	}
	return shown, nil
}

func shellQuoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// linesOf returns the schema of each line of a body, from the contract's x-lines.
func linesOf(media *openapi3.MediaType) string {
	name, _ := media.Extensions["x-lines"].(string)
	return name
}

// body describes the body of a request, field by field.
func (t docsTree) body(op *openapi3.Operation, kind string, media *openapi3.MediaType) *docsRequest {
	shown := &docsRequest{Type: kind, Required: op.RequestBody.Value.Required}
	name, schema := schemaName(media.Schema), media.Schema.Value
	switch {
	case linesOf(media) != "":
		name = linesOf(media)
		shown.Each = "each line is a"
		schema = t.schemas[name].Value
	case schema.Items != nil:
		shown.Each = "an array of " + strings.TrimPrefix(constraints(schema), "array; ") + "; each is a"
		name, schema = schemaName(schema.Items), schema.Items.Value
	}
	shown.Schema = t.schema(name, schema)
	for i := range shown.Schema.Fields {
		if field := &shown.Schema.Fields[i]; field.Mark != "" {
			field.Mark = "needed"
		}
	}
	return shown
}

func (t docsTree) schema(name string, schema *openapi3.Schema) docsSchema {
	shown := docsSchema{Name: name, Description: schema.Description, Kind: constraints(schema)}
	if item := schema.Items; item != nil {
		if of := schemaName(item); of != "" {
			shown.Kind = "array of " + of
		}
	}
	for _, field := range t.names("components", "schemas", name, "properties") {
		ref := schema.Properties[field]
		line := docsField{
			Name: field,
			Kind: constraints(ref.Value), Schema: schemaName(ref), Description: ref.Value.Description,
		}
		if slices.Contains(schema.Required, field) {
			line.Mark = "always"
		}
		if ref.Value.Items != nil && line.Schema == "" {
			line.Prefix, line.Schema = "array of ", schemaName(ref.Value.Items)
		}
		if all := ref.Value.AllOf; len(all) == 1 {
			line.Schema = schemaName(all[0])
		}
		if ref.Ref != "" && len(ref.Value.Properties) > 0 {
			line.Description = "" // the schema has the description
		}
		shown.Fields = append(shown.Fields, line)
	}
	return shown
}

// constraints describes the allowed values in one line.
func constraints(schema *openapi3.Schema) string {
	var parts []string
	switch {
	case len(schema.Enum) > 0:
		var values []string
		for _, value := range schema.Enum {
			values = append(values, fmt.Sprint(value))
		}
		parts = append(parts, strings.Join(values, ", "))
	case schema.Type == nil:
		parts = append(parts, "any JSON")
	default:
		parts = append(parts, strings.Join(schema.Type.Slice(), " or "))
	}
	if schema.Format != "" && schema.Format != "int64" && schema.Format != "double" {
		parts = append(parts, schema.Format)
	}
	switch {
	case schema.Min != nil && schema.Max != nil:
		parts = append(parts, fmt.Sprintf("%.0f to %.0f", *schema.Min, *schema.Max))
	case schema.Min != nil:
		parts = append(parts, fmt.Sprintf("from %.0f", *schema.Min))
	}
	if schema.MaxLength != nil {
		parts = append(parts, fmt.Sprintf("%d to %d characters", schema.MinLength, *schema.MaxLength))
	}
	if schema.MaxItems != nil {
		parts = append(parts, fmt.Sprintf("%d to %d elements", schema.MinItems, *schema.MaxItems))
	}
	if schema.Pattern != "" {
		parts = append(parts, "matches "+schema.Pattern)
	}
	if schema.Default != nil {
		parts = append(parts, fmt.Sprintf("default %v", schema.Default))
	}
	return strings.Join(parts, "; ")
}

func schemaName(ref *openapi3.SchemaRef) string {
	if ref == nil {
		return ""
	}
	name, ok := strings.CutPrefix(ref.Ref, "#/components/schemas/")
	if !ok {
		return ""
	}
	return name
}

func exampleText(example any) string {
	switch e := example.(type) {
	case nil:
		return "..."
	case float64:
		return strconv.FormatFloat(e, 'f', -1, 64)
	default:
		return fmt.Sprint(e)
	}
}
