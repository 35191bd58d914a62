package schema

import (
	"context"
	"net/url"
	"strings"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

// Contents are all schemas and rules of a tenant.
type Contents struct {
	Revision int64  // those of this revision, or newer ones
	Types    []Type // by name, with all versions and their texts
	Rules    []Rule // by category
}

// Revision returns the revision of a tenant's schemas and rules, which each change raises; 0: it never had any.
func (s *Schemas) Revision(ctx context.Context, tenant domain.TenantID) (int64, error) {
	return s.config.Store.SchemaRevision(ctx, tenant)
}

// Contents returns all schemas and rules of a tenant.
func (s *Schemas) Contents(ctx context.Context, tenant domain.TenantID) (Contents, error) {
	return s.config.Store.contents(ctx, tenant)
}

// Work runs do in one of the tenant's turns for requests that compute. It costs a number of bytes of schemas.
func (s *Schemas) Work(ctx context.Context, tenant domain.TenantID, bytes int, do func() error) error {
	ctx, end, err := s.config.Requests.Begin(ctx, tenant, "remove schemas that are no longer needed")
	if err != nil {
		return err
	}
	defer end()
	return budget.Work(ctx, func() error {
		expr.MeterOf(ctx).Spend(bytes)
		return do()
	})
}

// Relocate returns the value of a schema whose text Compile accepts, as a part of a larger JSON document: its
// references lead to the same places below the given JSON Pointer. Keywords that only a whole schema may have, and
// anchors, are left out. The references become longer by grown bytes in total.
func Relocate(text []byte, pointer string) (schema any, grown int, err error) {
	document, err := parseValue(text)
	if err != nil {
		return nil, 0, err
	}
	object, ok := document.(map[string]any)
	if !ok {
		return document, 0, nil
	}
	r := &relocation{pointer: pointer, compiler: compiler{document: document, anchors: make(map[string]string)}}
	r.collectAnchors("", object)
	r.schema(object)
	return object, r.grown, nil
}

// relocation is a Relocate under way.
type relocation struct {
	compiler
	pointer string
	grown   int
}

func (r *relocation) schema(value any) {
	schema, ok := value.(map[string]any)
	if !ok {
		return
	}
	for keyword, value := range schema {
		switch keyword {
		case "$ref":
			schema[keyword] = r.reference(value)
		case "$schema", "$id", "$anchor":
			delete(schema, keyword)
		case "properties", "patternProperties", "dependentSchemas", "$defs", "definitions":
			schemas, _ := value.(map[string]any)
			for _, inner := range schemas {
				r.schema(inner)
			}
		case "prefixItems", "allOf", "anyOf", "oneOf":
			schemas, _ := value.([]any)
			for _, inner := range schemas {
				r.schema(inner)
			}
		case "const", "enum", "default", "examples", "dependentRequired":
		default:
			r.schema(value)
		}
	}
}

func (r *relocation) reference(value any) any {
	text, ok := value.(string)
	if !ok {
		return value
	}
	fragment := strings.TrimPrefix(text, "#")
	if fragment != "" && fragment[0] != '/' {
		name, err := url.PathUnescape(fragment)
		if err != nil {
			return value
		}
		fragment = (&url.URL{Fragment: r.anchors[name]}).EscapedFragment()
	}
	moved := "#" + r.pointer + fragment
	r.grown += len(moved) - len(text)
	return moved
}
