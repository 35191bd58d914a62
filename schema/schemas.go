package schema

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/manifold-es/manifold/budget"
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/eventlog"
	"github.com/manifold-es/manifold/expr"
	"github.com/manifold-es/manifold/upcasting"
)

// Compatibility says what a new version of a type's schema must accept.
type Compatibility string

// The compatibilities. The transitive ones compare with all versions since the last breaking one, the others with the
// newest.
const (
	Backward           Compatibility = "backward" // the new version accepts all data of the old one
	BackwardTransitive Compatibility = "backward-transitive"
	Forward            Compatibility = "forward" // the old version accepts all data of the new one
	ForwardTransitive  Compatibility = "forward-transitive"
	Full               Compatibility = "full" // both
	FullTransitive     Compatibility = "full-transitive"
	NoCompatibility    Compatibility = "none"
)

var compatibilities = []Compatibility{Backward, BackwardTransitive, Forward, ForwardTransitive, Full, FullTransitive, NoCompatibility}

// Mode says what happens to events that violate the schema of their type.
type Mode string

// The modes.
const (
	ModeOff     Mode = "off"
	ModeWarn    Mode = "warn"    // they are appended and counted
	ModeEnforce Mode = "enforce" // the whole request is refused
)

// UnknownTypes says whether a category may contain events whose type has no schema.
type UnknownTypes string

// What happens to unknown types. Refused ones violate the rule of their category.
const (
	AllowUnknown  UnknownTypes = "allow"
	RefuseUnknown UnknownTypes = "refuse"
)

// Rule says how the events of a category are checked.
type Rule struct {
	Category     string
	Mode         Mode
	UnknownTypes UnknownTypes
	By           string
	UpdatedAt    time.Time
}

// Type is an event type with the versions of its schema.
type Type struct {
	Name          string
	Compatibility Compatibility
	Tags          string     // the expression by which events get further tags, see expr.CompileTags; empty: none
	Retagging     *Retagging // how far stored events have these tags; nil: no derivation has ever changed
	Versions      []Version  // the oldest first; in lists, only the newest, without its text
}

// Newest returns the newest version.
func (t *Type) Newest() Version { return t.Versions[len(t.Versions)-1] }

// Default returns the number of the version for events that name none: the newest before the first breaking one. For
// upcasters, such events have version 1.
func (t *Type) Default() int64 {
	for i := range t.Versions {
		if t.Versions[i].Breaking {
			return int64(i)
		}
	}
	return int64(len(t.Versions))
}

// Version is one version of a type's schema. Only Personal can change.
type Version struct {
	Number   int64 // 1, 2, 3 ...
	Schema   json.RawMessage
	Breaking bool // incompatible with the version before, which an upcaster converts
	// Personal are JSON Pointers to the personal data in an event of the version. None: all of its data is personal.
	Personal  []string
	By        string
	CreatedAt time.Time

	revision int64
}

// Config configures Schemas. Store, Events and Upcasters are required, and so is Owns if Run is called.
type Config struct {
	Store     *Postgres
	Events    *eventlog.Log
	Upcasters *upcasting.Upcasters
	Requests  *budget.Requests // what compiling, comparing and long validation may cost; nil: the defaults of budget.New
	Log       *slog.Logger
	// Violated reports how many events of a request violate their schemas; mode is warn or enforce. It must not block.
	Violated func(mode string, events int)

	Owns func(domain.TenantID) bool // reports whether this process works for the tenant
	// Settle is how long stored events keep their tags after a change of what a type's schema derives; 0:
	// DefaultSettle. Afterwards no append may still derive by the previous expression.
	Settle time.Duration
	// Retagged reports how many stored events have got other tags. It must not block.
	Retagged func(events int64)
}

// Schemas is the registry of schemas, and checks events before an append. All methods may be called concurrently.
type Schemas struct {
	config Config
	cache  *cache
	retags retags
}

// New returns Schemas.
func New(config Config) (*Schemas, error) {
	if config.Requests == nil {
		config.Requests = budget.New(budget.Limits{})
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.Violated == nil {
		config.Violated = func(string, int) {}
	}
	if config.Retagged == nil {
		config.Retagged = func(int64) {}
	}
	config.Settle = cmp.Or(config.Settle, DefaultSettle)
	config.Store.settle = config.Settle
	cache, err := newCache(config.Store)
	return &Schemas{config, cache, newRetags()}, err
}

// Notice reports that a tenant's schemas or rules have changed; domain.Everyone means those of any tenant.
func (s *Schemas) Notice(tenant domain.TenantID) {
	s.cache.forget(tenant)
	s.retags.wake()
}

// List returns a tenant's types with their newest versions, without texts, and its rules.
func (s *Schemas) List(ctx context.Context, tenant domain.TenantID) ([]Type, []Rule, error) {
	types, err := s.config.Store.SchemaTypes(ctx, tenant)
	if err != nil {
		return nil, nil, err
	}
	jobs, err := s.config.Store.retagsOf(ctx, tenant, "")
	if err != nil {
		return nil, nil, err
	}
	for i := range types {
		types[i].Retagging = jobs[types[i].Name].progress()
	}
	rules, err := s.config.Store.SchemaRules(ctx, tenant)
	return types, rules, err
}

// Get returns a type with all versions. The error is domain.CodeNotFound if it has no schema.
func (s *Schemas) Get(ctx context.Context, tenant domain.TenantID, eventType string) (Type, error) {
	found, err := s.config.Store.SchemaType(ctx, tenant, eventType)
	if err != nil {
		return Type{}, err
	}
	jobs, err := s.config.Store.retagsOf(ctx, tenant, eventType)
	found.Retagging = jobs[eventType].progress()
	return found, err
}

// Version returns one version. The error is domain.CodeNotFound if there is none.
func (s *Schemas) Version(ctx context.Context, tenant domain.TenantID, eventType string, version int64) (Version, error) {
	return s.config.Store.SchemaVersion(ctx, tenant, eventType, version)
}

// Delete removes a type with all versions. The error is domain.CodeNotFound if it has no schema.
func (s *Schemas) Delete(ctx context.Context, tenant domain.TenantID, eventType string) error {
	err := s.config.Store.DeleteSchema(ctx, tenant, eventType)
	s.Notice(tenant)
	return err
}

// SetRule stores a category's rule. ModeOff removes it.
func (s *Schemas) SetRule(ctx context.Context, tenant domain.TenantID, rule Rule) (Rule, error) {
	if err := domain.CheckCategory("category", rule.Category); err != nil {
		return Rule{}, err
	}
	rule.UnknownTypes, rule.UpdatedAt = cmp.Or(rule.UnknownTypes, AllowUnknown), time.Now().UTC()
	kept, err := s.config.Store.putRule(ctx, tenant, rule)
	s.Notice(tenant)
	return kept, err
}

// Put is a new version of a type's schema.
type Put struct {
	Type          string
	Schema        json.RawMessage // nil: no new version; the type must have one
	Compatibility Compatibility   // empty: the type's; Backward for a new type
	Tags          *string         // Type.Tags; nil: the type's stay
	Personal      *[]string       // Version.Personal of the newest version; nil: those of the version before stay
	// Version is an older version that gets Personal, as the only change. Zero: the newest.
	Version int64
	// Upcaster is the expression of an upcaster from the version before. It makes the version a breaking one, whatever
	// the compatibility. Empty: none.
	Upcaster string
	By       string
}

// putAdvice tells a client how to make a schema cheaper.
const putAdvice = "give the schema fewer and simpler subschemas"

// Put adds a version of a type's schema. If the newest one is the same JSON value, only the compatibility, the tags and
// the personal fields may change. After a change of the tags, Run retags the stored events.
//
// A tenant's upcaster from the newest version makes an incompatible schema acceptable. An upcaster in the request is
// stored in the same transaction, even if no version is added.
//
// Errors are *domain.Error: domain.CodeInvalidDefinition if the schema or the expression for tags is invalid;
// domain.CodeConflict if the schema is incompatible, with Violations.
func (s *Schemas) Put(ctx context.Context, tenant domain.TenantID, put Put) (kept Type, added bool, err error) {
	if err := domain.CheckType("type", put.Type); err != nil {
		return Type{}, false, err
	}
	if put.Compatibility != "" && !slices.Contains(compatibilities, put.Compatibility) {
		return Type{}, false, domain.Errorf(domain.CodeInvalidRequest, "compatibility", "unknown compatibility %q", domain.Clip(string(put.Compatibility), 60))
	}
	if put.Version != 0 && (put.Personal == nil || put.Schema != nil || put.Tags != nil || put.Compatibility != "" || put.Upcaster != "") {
		return Type{}, false, domain.Errorf(domain.CodeInvalidRequest, "version",
			"only the personal fields of a stored version can change; give personal and version without other fields")
	}
	if put.Schema == nil && (put.Tags == nil && put.Compatibility == "" && put.Personal == nil || put.Upcaster != "") {
		return Type{}, false, domain.Errorf(domain.CodeInvalidRequest, "schema", "give a schema; only tags, personal fields and the compatibility can be changed without one")
	}
	if put.Personal != nil {
		if err := checkPointers(*put.Personal); err != nil {
			return Type{}, false, err
		}
	}
	ctx, end, err := s.config.Requests.Begin(ctx, tenant, putAdvice)
	if err != nil {
		return Type{}, false, err
	}
	defer end()
	if err := checkTags(ctx, put.Tags); err != nil {
		return Type{}, false, err
	}
	var next *Schema
	if put.Schema != nil {
		if next, err = s.compile(ctx, put.Schema); err != nil {
			return Type{}, false, err
		}
	}
	before, err := s.find(ctx, tenant, put.Type)
	if err != nil {
		return Type{}, false, err
	}
	newest := int64(len(before.Versions))
	var target Version // that put is about: the newest, or an older one
	switch {
	case put.Version < 0 || put.Version > newest:
		return Type{}, false, domain.Errorf(domain.CodeNotFound, "version", "%s has no schema of version %d; the newest is %d", put.Type, put.Version, newest)
	case put.Version > 0:
		target = before.Versions[put.Version-1]
	case newest > 0:
		target = before.Newest()
	}
	if put.Schema == nil {
		if newest == 0 {
			return Type{}, false, domain.Errorf(domain.CodeNotFound, "", "%s has no schema; put one first, or together with the tags", put.Type)
		}
		put.Schema = target.Schema
	}
	compatibility := before.Compatibility
	if put.Compatibility != "" {
		compatibility = put.Compatibility
	}
	of := Type{Name: put.Type, Compatibility: compatibility}
	version := Version{Number: target.Number, Schema: put.Schema, By: put.By}
	if put.Personal != nil {
		version.Personal = *put.Personal
	}
	if newest > 0 {
		samePersonal := put.Personal == nil || slices.Equal(*put.Personal, target.Personal)
		if put.Personal == nil {
			version.Personal = target.Personal
		}
		switch {
		case equalTexts(target.Schema, put.Schema):
			if version.Schema = nil; compatibility == before.Compatibility && put.Upcaster == "" && samePersonal && (put.Tags == nil || *put.Tags == before.Tags) {
				return before, false, nil
			}
			if put.Upcaster != "" && newest > 1 && !target.Breaking {
				return Type{}, false, domain.Errorf(domain.CodeConflict, "upcaster",
					"version %d of %s already exists, and is compatible with the version before: events that name no version have its form, so none needs converting", newest, put.Type)
			}
		case newest >= MaxVersions:
			return Type{}, false, domain.Errorf(domain.CodeQuotaExceeded, "", "%s has %d versions, the most a type may have", put.Type, newest)
		case put.Upcaster != "":
			version.Breaking = true
		default:
			violations, err := s.compare(ctx, before, next, compatibility)
			if err != nil {
				return Type{}, false, err
			}
			if len(violations) > 0 {
				if version.Breaking, err = s.converts(ctx, tenant, put.Type, newest); err != nil {
					return Type{}, false, err
				}
				if !version.Breaking {
					return Type{}, false, incompatible(put.Type, compatibility, newest, violations)
				}
			}
		}
	}
	err = s.keep(ctx, tenant, put, of, newest, version)
	s.Notice(tenant)
	if err != nil {
		return Type{}, false, err
	}
	kept, err = s.Get(ctx, tenant, put.Type)
	return kept, version.Schema != nil, err
}

// keep stores a version, which may lack a schema, with its upcaster.
func (s *Schemas) keep(ctx context.Context, tenant domain.TenantID, put Put, of Type, newest int64, version Version) error {
	if put.Upcaster == "" {
		return s.config.Store.addVersion(ctx, tenant, of, newest, version, put.Tags)
	}
	from := newest
	if version.Schema == nil {
		from-- // the newest version is the one that the request describes
	}
	if from < 1 {
		return domain.Errorf(domain.CodeInvalidRequest, "upcaster", "%s has no version before this one from which the upcaster could convert; put the schema without it", put.Type)
	}
	upcaster := domain.Upcaster{Owner: tenant, Type: put.Type, Version: from, Expression: put.Upcaster, By: put.By}
	_, _, err := s.config.Upcasters.Put(ctx, upcaster, s.config.Store.adding(ctx, tenant, of, newest, version, put.Tags))
	if problem, ok := errors.AsType[*domain.Error](err); ok && problem.Where == "expression" {
		problem.Where = "upcaster.expression"
	}
	return err
}

// find returns a type, or an empty one with the default compatibility if it has no schema.
func (s *Schemas) find(ctx context.Context, tenant domain.TenantID, eventType string) (Type, error) {
	found, err := s.Get(ctx, tenant, eventType)
	if domain.IsCode(err, domain.CodeNotFound) {
		return Type{Name: eventType, Compatibility: Backward}, nil
	}
	return found, err
}

// stepsPerSchemaByte is how many steps of a request compiling takes.
const stepsPerSchemaByte = 10

// compile compiles a schema within a request.
func (s *Schemas) compile(ctx context.Context, text json.RawMessage) (compiled *Schema, err error) {
	err = budget.Work(ctx, func() error {
		expr.MeterOf(ctx).Spend(stepsPerSchemaByte * len(text))
		compiled, err = Compile(text)
		return err
	})
	return compiled, err
}

// compare returns why a schema is not compatible with the versions of a type; at least one must exist.
func (s *Schemas) compare(ctx context.Context, with Type, next *Schema, compatibility Compatibility) (violations []domain.Violation, err error) {
	rule, transitive := strings.CutSuffix(string(compatibility), "-transitive")
	if compatibility == NoCompatibility {
		return nil, nil
	}
	for i := len(with.Versions) - 1; i >= 0 && len(violations) == 0; i-- {
		before, err := s.compile(ctx, with.Versions[i].Schema)
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("version %d", with.Versions[i].Number)
		err = budget.Work(ctx, func() error {
			expr.MeterOf(ctx).Spend(maxComparisons)
			if rule != string(Forward) {
				violations = compareSchemas(next, before, "the new schema", name)
			}
			if rule != string(Backward) {
				for _, violation := range compareSchemas(before, next, name, "the new schema") {
					violation.Fix = "change the new schema, so that " + name + " accepts its data"
					violations = append(violations, violation)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if !transitive || with.Versions[i].Breaking {
			break
		}
	}
	return violations[:min(len(violations), maxViolations)], nil
}

// converts reports whether an upcaster of the tenant, or a shared one, converts events of a version.
func (s *Schemas) converts(ctx context.Context, tenant domain.TenantID, eventType string, version int64) (bool, error) {
	_, err := s.config.Upcasters.Get(ctx, tenant, eventType, version)
	if domain.IsCode(err, domain.CodeNotFound) {
		return false, nil
	}
	return err == nil, err
}

func incompatible(eventType string, compatibility Compatibility, newest int64, violations []domain.Violation) error {
	e := domain.Errorf(domain.CodeConflict, "schema", "the schema is not %s compatible: %s; change it, or put it with an upcaster from version %d of %s",
		compatibility, summary(violations), newest, eventType)
	e.Violations = violations
	return e
}

// summary describes violations for people.
func summary(violations []domain.Violation) string {
	var text strings.Builder
	for i, violation := range violations[:min(len(violations), 3)] {
		if i > 0 {
			text.WriteString("; ")
		}
		if violation.Pointer != "" {
			text.WriteString(violation.Pointer + ": ")
		}
		text.WriteString(violation.Message)
	}
	if more := len(violations) - 3; more > 0 {
		fmt.Fprintf(&text, "; and %d more", more)
	}
	return text.String()
}

// Limits of the pointers to personal data.
const (
	maxPersonal      = 100
	maxPersonalBytes = 1000 // of one
)

var validPointer = regexp.MustCompile(`^(/([^~]|~[01])*)?$`)

func checkPointers(pointers []string) error {
	if len(pointers) > maxPersonal {
		return domain.Errorf(domain.CodeInvalidRequest, "personal", "there are %d pointers; at most %d are allowed: name an object to erase all of it", len(pointers), maxPersonal)
	}
	for i, pointer := range pointers {
		where := fmt.Sprintf("personal[%d]", i)
		switch {
		case len(pointer) > maxPersonalBytes:
			return domain.Errorf(domain.CodeInvalidRequest, where, "it has %d bytes; at most %d are allowed", len(pointer), maxPersonalBytes)
		case !validPointer.MatchString(pointer):
			return domain.Errorf(domain.CodeInvalidRequest, where, "%q is not a JSON Pointer; begin it with /, and write ~0 for ~ and ~1 for / in a name", domain.Clip(pointer, 60))
		case slices.Contains(pointers[:i], pointer):
			return domain.Errorf(domain.CodeInvalidRequest, where, "duplicate pointer %q", domain.Clip(pointer, 60))
		}
	}
	return nil
}
