package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/caarlos0/env/v11"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Prefix begins the name of each of Manifold's environment variables.
const Prefix = "MANIFOLD_"

// Load reads the settings: Default, then the YAML file (none where file is empty), then the environment (as os.Environ
// gives it), then the secrets' files. The result is checked.
func Load(file string, environ []string) (Config, error) {
	c := Default()
	if file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return Config{}, fmt.Errorf("read the configuration: %w", err)
		}
		if err := c.readYAML(text); err != nil {
			return Config{}, fmt.Errorf("%s: %w", file, err)
		}
	}
	if err := c.readEnviron(environ); err != nil {
		return Config{}, fmt.Errorf("environment: %w", err)
	}
	if err := errors.Join(c.resolve(), c.Check()); err != nil {
		return Config{}, fmt.Errorf("the configuration cannot work:\n%w", err)
	}
	return c, nil
}

func (c *Config) readYAML(text []byte) error {
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return errors.New(yaml.FormatError(err, false, true))
	}
	var wrong []error
	empty := true
	for _, document := range file.Docs {
		empty = empty && (document.Body == nil || document.Body.Type() == ast.NullType || document.Body.Type() == ast.CommentType)
		wrong = append(wrong, unknownSettings(document.Body, reflect.TypeFor[Config](), "")...)
	}
	if len(file.Docs) > 1 {
		wrong = append(wrong, errors.New("it holds several YAML documents; keep one"))
	}
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	if empty {
		return nil // nothing but comments: decoding would clear the defaults
	}
	if err := yaml.UnmarshalWithOptions(text, c, yaml.Strict()); err != nil {
		return errors.New(yaml.FormatError(err, false, true))
	}
	return nil
}

// unknownSettings compares a YAML mapping with the type that it is for, and says of every name that is not known where
// it stands and what may have been meant.
func unknownSettings(node ast.Node, shape reflect.Type, path string) []error {
	mapping, ok := node.(ast.MapNode)
	if !ok {
		return nil // a value of the wrong kind: decoding says so
	}
	var wrong []error
	for entries := mapping.MapRange(); entries.Next(); {
		name := entries.KeyValue().Key.GetToken().Value
		value := entries.Value()
		switch shape.Kind() {
		case reflect.Map:
			wrong = append(wrong, unknownSettings(value, shape.Elem(), path+name+".")...)
		case reflect.Struct:
			known := fields(shape)
			field, ok := known[name]
			if !ok {
				line := entries.KeyValue().Key.GetToken().Position.Line
				wrong = append(wrong, fmt.Errorf("line %d: there is no setting %s%s; %s", line, path, name, nearest(path, name, known)))
				continue
			}
			if field.Kind() == reflect.Struct || field.Kind() == reflect.Map {
				wrong = append(wrong, unknownSettings(value, field, path+name+".")...)
			}
		}
	}
	return wrong
}

func fields(shape reflect.Type) map[string]reflect.Type {
	known := make(map[string]reflect.Type)
	for field := range shape.Fields() {
		if name := field.Tag.Get("yaml"); name != "-" {
			known[name] = field.Type
		}
	}
	return known
}

func nearest[V any](path, name string, known map[string]V) string {
	best, least := "", 1<<30
	for candidate := range known {
		d := distance(strings.ToLower(name), strings.ToLower(candidate))
		if d < least || d == least && candidate < best {
			best, least = candidate, d
		}
	}
	return fmt.Sprintf("the nearest is %s%s", path, best)
}

// distance is Levenshtein's: how many bytes to insert, remove or replace to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// ClientVariables are the environment variables of the commands that are clients of a service. They are no settings of
// the service.
var ClientVariables = [...]string{"MANIFOLD_URL", "MANIFOLD_KEY", "MANIFOLD_CONFIG", "MANIFOLD_TEST_DATA"}

// Kubernetes gives every container of a namespace variables for each service of it: a service named manifold, or
// manifold-something, makes these.
var kubernetes = regexp.MustCompile(`^MANIFOLD_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)$`)

func (c *Config) readEnviron(environ []string) error {
	given := make(map[string]string)
	for _, entry := range environ {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, Prefix) {
			given[name] = value
		}
	}
	options := env.Options{
		Environment: given,
		Prefix:      Prefix,
		FuncMap: map[reflect.Type]env.ParserFunc{
			reflect.TypeFor[map[string]DocumentsDatabase](): func(text string) (any, error) {
				databases := make(map[string]DocumentsDatabase)
				if err := yaml.UnmarshalWithOptions([]byte(text), &databases, yaml.Strict()); err != nil {
					return nil, errors.New(yaml.FormatError(err, false, false))
				}
				return databases, nil
			},
		},
	}
	known := make(map[string]bool)
	for _, name := range Variables() {
		known[name] = true
	}
	var wrong []error
	for name := range given {
		if !known[name] && !slices.Contains(ClientVariables[:], name) && !kubernetes.MatchString(name) {
			wrong = append(wrong, fmt.Errorf("there is no setting %s; %s", name, nearest("", name, known)))
		}
	}
	if len(wrong) > 0 {
		slices.SortFunc(wrong, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
		return errors.Join(wrong...)
	}
	return env.ParseWithOptions(c, options)
}

// Variables returns the environment variable of every setting, in the order of the settings.
func Variables() []string {
	var names []string
	var walk func(shape reflect.Type, prefix string)
	walk = func(shape reflect.Type, prefix string) {
		for field := range shape.Fields() {
			if inner, ok := field.Tag.Lookup("envPrefix"); ok {
				walk(field.Type, prefix+inner)
			} else if name := field.Tag.Get("env"); name != "-" {
				names = append(names, prefix+name)
			}
		}
	}
	walk(reflect.TypeFor[Config](), Prefix)
	return names
}

// Settings returns the path of every setting in the file, such as database.app.user, in their order. A documents
// database's name stands as NAME.
func Settings() []string {
	var paths []string
	var walk func(shape reflect.Type, prefix string)
	walk = func(shape reflect.Type, prefix string) {
		for field := range shape.Fields() {
			name := field.Tag.Get("yaml")
			switch {
			case name == "-":
			case field.Type.Kind() == reflect.Struct:
				walk(field.Type, prefix+name+".")
			case field.Type.Kind() == reflect.Map:
				walk(field.Type.Elem(), prefix+name+".NAME.")
			default:
				paths = append(paths, prefix+name)
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
	return paths
}
