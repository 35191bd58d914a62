package projection

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

const (
	maxHandlers   = 500 // event types of one definition
	maxCategories = 100
	maxIndexes    = 16
	maxAsserts    = 50
	maxIndexBytes = 200
)

// Rules is what definitions are held against.
type Rules struct {
	Databases []string           // the names of the databases that are configured
	LogIn     string             // which of them is the log's own; empty: none
	Handlers  map[string]Handler // written in Go and registered by the program, by name
}

// Check says everything that keeps a definition from working, each with its place, as one *domain.Error:
// domain.CodeInvalidDefinition, or domain.CodeUnsupported for what is well-formed but cannot be done. A definition that
// passes compiles.
func (r Rules) Check(id domain.ProjectionID, d domain.Definition) error {
	d = WithDefaults(d)
	var found problems
	found.adopt(domain.CheckName("name", d.Name))
	if d.Name != id.Name && id.Name != "" {
		found.add("name", "the definition is named %q, but the projection is %q; a projection keeps its name", clip(d.Name), clip(id.Name))
	}
	if !slices.Contains(r.Databases, d.Database) {
		found.add("database", "there is no database %q in the configuration; there is %s", clip(d.Database), strings.Join(r.Databases, ", "))
	}
	checkSource(d, &found)
	if d.Handler != "" {
		checkHandler(id, d, &found)
	} else {
		checkOn(d, &found)
	}
	r.checkModes(d, &found)
	checkIndexes(d, &found)
	if len(d.Assert) > maxAsserts {
		found.add("assert", "there are %d assertions; at most %d are allowed", len(d.Assert), maxAsserts)
	}
	if err := found.err(); err != nil {
		return err
	}
	_, err := CompileWith(d, r.Handlers)
	return err
}

func checkSource(d domain.Definition, found *problems) {
	if len(d.Source.Categories) > maxCategories {
		found.add("source.categories", "there are %d categories; at most %d are allowed", len(d.Source.Categories), maxCategories)
		return
	}
	for i, category := range d.Source.Categories {
		where := fmt.Sprintf("source.categories[%d]", i)
		found.adopt(domain.CheckCategory(where, category))
		if slices.Contains(d.Source.Categories[:i], category) {
			found.add(where, "the category %q is there twice", clip(category))
		}
	}
}

func checkHandler(id domain.ProjectionID, d domain.Definition, found *problems) {
	if !id.Shared() {
		found.add("handler", "only shared projections can use a handler written in Go")
	}
	if d.Key != "" || len(d.Initial) > 0 || len(d.On) > 0 {
		found.add("handler", "a handler stands instead of key, initial and on; leave those out")
	}
}

func checkOn(d domain.Definition, found *problems) {
	switch {
	case len(d.On) == 0:
		found.add("on", "at least one event type with its expression is needed, or '*' for all; without one nothing is ever folded")
	case len(d.On) > maxHandlers:
		found.add("on", "there are %d event types; at most %d are allowed", len(d.On), maxHandlers)
	default:
		for _, eventType := range slices.Sorted(maps.Keys(d.On)) {
			if eventType != "*" {
				found.adopt(domain.CheckType("on."+clip(eventType), eventType))
			}
		}
	}
	if err := domain.CheckJSON(d.Initial); err != nil {
		found.add("initial", "%s", err)
	}
}

func (r Rules) checkModes(d domain.Definition, found *problems) {
	switch d.Mode {
	case domain.ModeAsync:
	case "inline":
		// What can never work comes before what is not there yet.
		switch {
		case d.Database == r.LogIn:
			found.unsupported("mode", "mode inline is not there yet; use async")
		case r.LogIn == "":
			found.unsupported("mode", "mode inline folds in the append's own transaction, so it needs documents in the log's own database, and no database of the configuration is that; use async")
		default:
			found.unsupported("mode", "mode inline folds in the append's own transaction, so it needs documents in the log's own database, which is %q, and cannot be in %q; use async", r.LogIn, clip(d.Database))
		}
	case "live", "map":
		found.unsupported("mode", "mode %q is not there yet; use async", d.Mode)
	default:
		found.add("mode", "there is no mode %q; use async", clip(string(d.Mode)))
	}
	switch d.OnError {
	case domain.OnErrorStop:
	case "park":
		found.unsupported("onError", "onError park is not there yet; use stop")
	default:
		found.add("onError", "there is no onError %q; use stop", clip(string(d.OnError)))
	}
}

func checkIndexes(d domain.Definition, found *problems) {
	if len(d.Indexes) > maxIndexes {
		found.add("indexes", "there are %d indexes; at most %d are allowed", len(d.Indexes), maxIndexes)
		return
	}
	for i, path := range d.Indexes {
		where := fmt.Sprintf("indexes[%d]", i)
		if !indexPath(path) {
			found.add(where, "%q is not the path of a field; write names of letters, digits and _ with dots between them, such as status or customer.name", clip(path))
		}
		if slices.Contains(d.Indexes[:i], path) {
			found.add(where, "the index %q is there twice", clip(path))
		}
	}
}

func indexPath(path string) bool {
	if len(path) > maxIndexBytes {
		return false
	}
	for name := range strings.SplitSeq(path, ".") {
		if name == "" || '0' <= name[0] && name[0] <= '9' {
			return false
		}
		for i := range len(name) {
			if c := name[i]; !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_') {
				return false
			}
		}
	}
	return true
}
