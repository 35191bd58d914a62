package folding

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/expr"
)

const (
	maxHandlers   = 500 // event types of one definition
	maxCategories = 100
	maxIndexes    = 16
	maxAsserts    = 50
	maxIndexBytes = 200
	maxSums       = 10
)

// Rules are what a definition is checked against.
type Rules struct {
	Databases   []string           // the names of the configured databases
	LogDatabase string             // the name of the database that also holds the log; empty: none does
	Handlers    map[string]Handler // Go handlers that the program has registered, by name
}

// Check returns everything that keeps a definition from working, each problem with its place, as one *domain.Error. The
// code is domain.CodeInvalidDefinition, or domain.CodeUnsupported for what is well-formed but not supported. A
// definition that passes compiles.
func (r Rules) Check(id domain.ProjectionID, d domain.Definition) error {
	_, err := r.Compile(nil, id, d)
	return err
}

// Compile checks a definition, and compiles it to a Fold if it passes. The result is meaningless if the meter ended it.
func (r Rules) Compile(meter *expr.Meter, id domain.ProjectionID, d domain.Definition) (*Fold, error) {
	d = WithDefaults(d)
	var found problems
	found.adopt(domain.CheckProjectionName("name", d.Name))
	if d.Name != id.Name && id.Name != "" {
		found.add("name", "the definition is named %q, but the projection is %q; a projection keeps its name", Clip(d.Name), Clip(id.Name))
	}
	if !slices.Contains(r.Databases, d.Database) {
		found.add("database", "there is no database %q in the configuration; there is %s", Clip(d.Database), strings.Join(r.Databases, ", "))
	}
	checkSource(d, &found)
	switch {
	case d.Aggregate != "":
		checkAggregate(id, d, &found)
	case d.Handler != "":
		checkHandler(id, d, &found)
	case d.Map != nil:
		checkMap(d, &found)
	default:
		checkOn(d, &found)
	}
	r.checkModes(d, &found)
	checkIndexes(d, &found)
	checkPartition(d, &found)
	checkChanges(d, &found)
	checkTotals(id, d, &found)
	if len(d.Assert) > maxAsserts {
		found.add("assert", "there are %d assertions; at most %d are allowed", len(d.Assert), maxAsserts)
	}
	if err := found.err(); err != nil {
		return nil, err
	}
	fold, err := compile(meter, d, r.Handlers)
	if err != nil {
		return nil, err
	}
	if d.Mode == domain.ModeInline {
		checkInline(fold, &found)
	}
	return fold, found.err()
}

func checkSource(d domain.Definition, found *problems) {
	if len(d.Source.Categories) > maxCategories {
		found.add("source.categories", "there are %d categories; at most %d are allowed", len(d.Source.Categories), maxCategories)
		return
	}
	if query := d.Source.Query.Items; len(query) > 0 {
		found.adopt(query.Check("source.query.items"))
	}
	for i, category := range d.Source.Categories {
		where := fmt.Sprintf("source.categories[%d]", i)
		found.adopt(domain.CheckCategory(where, category))
		if slices.Contains(d.Source.Categories[:i], category) {
			found.add(where, "the category %q is listed twice", Clip(category))
		}
	}
}

func checkHandler(id domain.ProjectionID, d domain.Definition, found *problems) {
	if !id.Shared() {
		found.add("handler", "only shared projections can use a handler written in Go")
	}
	if d.Key != "" || len(d.Initial) > 0 || len(d.On) > 0 || d.Map != nil {
		found.add("handler", "a handler replaces key, initial, on and map; leave those out")
	}
}

func checkOn(d domain.Definition, found *problems) {
	checkTypes("on", d.On, found)
	if err := domain.CheckJSON(d.Initial); err != nil {
		found.add("initial", "%s", err)
	}
}

func checkAggregate(id domain.ProjectionID, d domain.Definition, found *problems) {
	switch {
	case id.Shared():
		found.add("aggregate", "aggregates belong to tenants, so a shared projection cannot name one; write on, or give the definition to a tenant")
	case d.On == nil:
		found.add("aggregate", "the rules of aggregate %q are missing", Clip(d.Aggregate))
	default:
		checkTypes("on", d.On, found)
	}
}

func checkMap(d domain.Definition, found *problems) {
	if len(d.Initial) > 0 || len(d.On) > 0 {
		found.add("map", "a map replaces initial and on, since each event makes a separate record; leave those out, or leave map out")
	}
	checkTypes("map", d.Map, found)
}

// checkTypes checks the event types for which a definition has expressions; where names the field that holds them.
func checkTypes(where string, expressions map[string]string, found *problems) {
	switch {
	case len(expressions) == 0:
		found.add(where, "give at least one event type with its expression, or '*' for all; otherwise there are no documents")
	case len(expressions) > maxHandlers:
		found.add(where, "there are %d event types; at most %d are allowed", len(expressions), maxHandlers)
	default:
		for _, eventType := range slices.Sorted(maps.Keys(expressions)) {
			if eventType != "*" {
				found.adopt(domain.CheckType(where+"."+Clip(eventType), eventType))
			}
		}
	}
}

func (r Rules) checkModes(d domain.Definition, found *problems) {
	switch d.OnError {
	case domain.OnErrorStop, domain.OnErrorPark:
	default:
		found.add("onError", "there is no onError %q; use stop or park", Clip(string(d.OnError)))
	}
	parks := d.OnError == domain.OnErrorPark
	switch d.Mode {
	case domain.ModeAsync:
	case domain.ModeInline:
		switch {
		case d.Database == r.LogDatabase:
		case r.LogDatabase == "":
			found.unsupported("mode", "mode inline folds in the append's transaction, so its documents must be in the log's database, which is not configured for documents; use async")
		default:
			found.unsupported("mode", "mode inline folds in the append's transaction, so its documents must be in the log's database, %q, not in %q; use async", r.LogDatabase, Clip(d.Database))
		}
		if parks {
			found.add("onError", "in mode inline an event that cannot be folded is refused, so nothing is ever parked; leave onError out")
		}
	case domain.ModeLive:
		if parks {
			found.add("onError", "with mode live nothing is stored, so nothing can be parked; leave onError out")
		}
		if d.PartitionBy != "" {
			found.add("partitionBy", "with mode live nothing is stored, so there is nothing to partition; leave it out")
		}
	case "map":
		found.add("mode", "map is no mode: write map: {EventType: expression} instead of on; mode is async, inline or live")
	default:
		found.add("mode", "there is no mode %q; use async, inline or live", Clip(string(d.Mode)))
	}
}

// checkInline refuses expressions that use values unknown before the append commits: the time of recording, and the
// time of occurrence, which defaults to it.
func checkInline(f *Fold, found *problems) {
	check := func(where string, program interface{ Uses(field string) bool }) {
		for _, field := range []string{"recordedAt", "occurredAt"} {
			if program.Uses(field) {
				found.add(where, "with mode inline it cannot use event.%s, which is not known before the append is committed; put the time into the event's data, or use async", field)
			}
		}
	}
	switch h := f.handler.(type) {
	case *expressions:
		check("key", h.key)
		for where, rule := range h.all {
			check(where, rule)
		}
	case *mapExpressions:
		check("key", h.key)
		for where, rule := range h.all {
			check(where, rule)
		}
	}
}

func checkPartition(d domain.Definition, found *problems) {
	if d.PartitionBy != "" && !indexPath(d.PartitionBy) {
		found.add("partitionBy", "%q is not the path of a field; write names of letters, digits and _ with dots between them, such as customer.id", Clip(d.PartitionBy))
	}
}

// checkChanges checks that changes can be published as events: their category must be valid. It must not be one of the
// projection's sources, or each change would cause the next.
func checkChanges(d domain.Definition, found *problems) {
	if !d.PublishChanges {
		return
	}
	category := domain.ChangesCategory(d.Name)
	if d.Mode == domain.ModeLive {
		found.add("publishChanges", "with mode live nothing is stored, so nothing changes; leave publishChanges out, or use async")
	}
	switch {
	case strings.Contains(d.Name, "-"):
		found.add("publishChanges", "changes are events of the category %q, and a category cannot contain \"-\"; give the projection a name with . or _, such as %q", category, strings.ReplaceAll(d.Name, "-", "."))
	case len(category) > domain.MaxCategoryBytes:
		found.add("publishChanges", "changes are events of the category %q, which has %d bytes; at most %d are allowed, so use a shorter name", category, len(category), domain.MaxCategoryBytes)
	case domain.IsReport(category):
		found.add("publishChanges", "changes are events of the category %q, which is reserved for reports; give the projection a name that begins otherwise", category)
	}
	switch {
	case len(d.Source.Categories) == 0:
		found.add("source.categories", "with publishChanges the source must name its categories: otherwise the projection would fold its own changes")
	case slices.Contains(d.Source.Categories, category):
		found.add("source.categories", "%q is the category of the projection's own changes; leave it out", category)
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
			found.add(where, "%q is not the path of a field; write names of letters, digits and _ with dots between them, such as status or customer.name", Clip(path))
		}
		if slices.Contains(d.Indexes[:i], path) {
			found.add(where, "the index %q is listed twice", Clip(path))
		}
	}
}

func checkTotals(id domain.ProjectionID, d domain.Definition, found *problems) {
	totals := d.Totals
	if totals == nil {
		return
	}
	switch {
	case !id.Shared():
		found.add("totals", "totals are for the operator, so only a shared projection can have them; leave them out")
	case d.Mode == domain.ModeLive:
		found.add("totals", "with mode live nothing is stored, so nothing can be summed; leave totals out, or use async")
	}
	if len(totals.Sum) > maxSums {
		found.add("totals.sum", "there are %d paths; at most %d are allowed", len(totals.Sum), maxSums)
		return
	}
	check := func(where, path string) {
		if !indexPath(path) {
			found.add(where, "%q is not the path of a field; write names of letters, digits and _ with dots between them, such as orders or price.net", Clip(path))
		}
	}
	for i, path := range totals.Sum {
		where := fmt.Sprintf("totals.sum[%d]", i)
		check(where, path)
		if slices.Contains(totals.Sum[:i], path) {
			found.add(where, "the path %q is listed twice", Clip(path))
		}
	}
	if totals.By != "" {
		check("totals.by", totals.By)
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
