package config

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caarlos0/env/v11"
	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// Prefix is the prefix of all of Manifold's environment variables.
const Prefix = "MANIFOLD_"

// Load reads the settings. It applies Default, the YAML file (unless file is empty), the environment (in the form of
// os.Environ) and the files with secrets, in this order. It checks the result.
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
		return Config{}, fmt.Errorf("invalid configuration:\n%w", err)
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
		wrong = append(wrong, wrongSettings(document.Body, reflect.TypeFor[Config](), "")...)
	}
	if len(file.Docs) > 1 {
		wrong = append(wrong, errors.New("the file has several YAML documents; keep one"))
	}
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	if empty {
		return nil // only comments: decoding would clear the defaults
	}
	if err := yaml.UnmarshalWithOptions(text, c, yaml.Strict()); err != nil {
		return errors.New(yaml.FormatError(err, false, true))
	}
	return nil
}

// wrongSettings compares a YAML mapping with the type of its settings. For each unknown name, the error gives the
// place and the known names. For each value that cannot be parsed, it gives the expected form.
func wrongSettings(node ast.Node, shape reflect.Type, path string) []error {
	mapping, ok := node.(ast.MapNode)
	if !ok {
		return nil // a value of the wrong kind: the decoder reports it
	}
	var wrong []error
	for entries := mapping.MapRange(); entries.Next(); {
		name := entries.KeyValue().Key.GetToken().Value
		value := entries.Value()
		switch shape.Kind() {
		case reflect.Map:
			wrong = append(wrong, wrongSettings(value, shape.Elem(), path+name+".")...)
		case reflect.Struct:
			known := fields(shape)
			field, ok := known[name]
			if !ok {
				line := entries.KeyValue().Key.GetToken().Position.Line
				wrong = append(wrong, fmt.Errorf("line %d: there is no setting %s%s; the settings there are %s", line, path, name,
					strings.Join(slices.Sorted(maps.Keys(known)), ", ")))
				continue
			}
			if field.Kind() == reflect.Struct || field.Kind() == reflect.Map {
				wrong = append(wrong, wrongSettings(value, field, path+name+".")...)
			} else if err := checkValue(value, field); err != nil {
				wrong = append(wrong, fmt.Errorf("line %d: %s%s: %w", value.GetToken().Position.Line, path, name, err))
			}
		}
	}
	return wrong
}

// checkValue checks a YAML scalar. For anything else, the decoder reports the wrong kind.
func checkValue(node ast.Node, shape reflect.Type) error {
	switch n := node.(type) {
	case *ast.StringNode:
		return checkText(n.Value, shape)
	case *ast.IntegerNode, *ast.FloatNode:
		if shape.Kind() != reflect.Int { // the decoder accepts every YAML notation for numbers
			return checkText(n.GetToken().Value, shape)
		}
	}
	return nil
}

// checkText reports the expected form of a value that cannot be parsed.
func checkText(text string, shape reflect.Type) error {
	if shape.Kind() == reflect.Pointer {
		shape = shape.Elem()
	}
	switch shape {
	case reflect.TypeFor[time.Duration]():
		if _, err := time.ParseDuration(text); err != nil {
			return fmt.Errorf("%q is not a duration; write a number with its unit, such as 30s, 5m or 1h", text)
		}
	case reflect.TypeFor[slog.Level]():
		if new(slog.Level).UnmarshalText([]byte(text)) != nil {
			return fmt.Errorf("%q is not a level; write DEBUG, INFO, WARN or ERROR", text)
		}
	case reflect.TypeFor[Size]():
		return new(Size).UnmarshalText([]byte(text))
	case reflect.TypeFor[int]():
		if _, err := strconv.Atoi(text); err != nil {
			return fmt.Errorf("%q is not a whole number", text)
		}
	}
	return nil
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

// TestPrefix is the prefix of the environment variables of Manifold's own tests. They are not settings of the
// service.
const TestPrefix = Prefix + "TEST_"

// ClientVariables are the environment variables of the client commands. They are not settings of the service.
var ClientVariables = [...]string{"MANIFOLD_URL", "MANIFOLD_KEY", "MANIFOLD_PROFILE", "MANIFOLD_PROFILES", "MANIFOLD_CONFIG"}

// kubernetes matches the variables that Kubernetes sets in every container of a namespace for a service named
// manifold or manifold-something.
var kubernetes = regexp.MustCompile(`^MANIFOLD_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_\d+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)$`)

func (c *Config) readEnviron(environ []string) error {
	given := make(map[string]string)
	for _, entry := range environ {
		if name, value, _ := strings.Cut(entry, "="); strings.HasPrefix(name, Prefix) {
			given[name] = value
		}
	}
	options := env.Options{
		Prefix: Prefix,
		FuncMap: map[reflect.Type]env.ParserFunc{
			reflect.TypeFor[map[string]DocumentsDatabase](): parseNamed[DocumentsDatabase],
			reflect.TypeFor[map[string]Egress]():            parseNamed[Egress],
			reflect.TypeFor[map[string]Issuer]():            parseNamed[Issuer],
		},
	}
	known := variables()
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(given)) {
		shape, ok := known[name]
		if !ok {
			if !slices.Contains(ClientVariables[:], name) && !strings.HasPrefix(name, TestPrefix) && !kubernetes.MatchString(name) {
				wrong = append(wrong, fmt.Errorf("there is no setting %s; the configuration reference lists all variables", name))
			}
			continue
		}
		if given[name] == "" {
			continue // orchestrators pass unset variables as empty ones
		}
		// Parse one variable at a time, since the parser's errors do not name it.
		options.Environment = map[string]string{name: given[name]}
		err := checkText(given[name], shape)
		if err == nil {
			err = env.ParseWithOptions(c, options)
		}
		if parse, ok := errors.AsType[env.ParseError](err); ok {
			err = parse.Err
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(wrong...)
}

// parseNamed parses a variable with settings by name, as YAML or JSON.
func parseNamed[T any](text string) (any, error) {
	all := make(map[string]T)
	if err := yaml.UnmarshalWithOptions([]byte(text), &all, yaml.Strict()); err != nil {
		return nil, errors.New(yaml.FormatError(err, false, false))
	}
	return all, nil
}

// Variables returns the environment variable of every setting, sorted by name.
func Variables() []string { return slices.Sorted(maps.Keys(variables())) }

// variables returns the environment variables of the settings, with the types of their values.
func variables() map[string]reflect.Type {
	all := make(map[string]reflect.Type)
	var walk func(shape reflect.Type, prefix string)
	walk = func(shape reflect.Type, prefix string) {
		for field := range shape.Fields() {
			if inner, ok := field.Tag.Lookup("envPrefix"); ok {
				walk(field.Type, prefix+inner)
			} else if name := field.Tag.Get("env"); name != "-" {
				all[prefix+name] = field.Type
			}
		}
	}
	walk(reflect.TypeFor[Config](), Prefix)
	return all
}

// Settings returns the path of every setting in the file, such as database.app.user, sorted. NAME represents the name
// of a documents database, an egress or an issuer.
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
			case field.Type.Kind() == reflect.Map && field.Type.Elem().Kind() == reflect.Struct:
				walk(field.Type.Elem(), prefix+name+".NAME.")
			default:
				paths = append(paths, prefix+name)
			}
		}
	}
	walk(reflect.TypeFor[Config](), "")
	return paths
}
