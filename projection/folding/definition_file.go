package folding

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// File is a YAML or JSON file.
type File struct {
	Path  string
	JSON  json.RawMessage // its content
	lines map[string]int
}

// DefinitionFile is a file that contains a projection's definition.
type DefinitionFile struct {
	File
	Definition domain.Definition
}

// AggregateFile is a file that contains an aggregate's definition, which has a category. The definition is JSON and was
// not checked.
type AggregateFile struct {
	File
	Category string
	Examples string // the path of the file of examples beside it; empty: there is none
}

// Line returns the line on which a field begins, such as "on.ItemAdded" or "indexes[1]". It returns the line of the
// nearest enclosing field if the file does not have that one, or else 1.
func (f *File) Line(field string) int {
	for {
		if line, ok := f.lines[field]; ok {
			return line
		}
		cut := strings.LastIndexAny(field, ".[")
		if cut < 0 {
			return 1
		}
		field = field[:cut]
	}
}

// DefinitionsOf returns the definitions of the files.
func DefinitionsOf(files []DefinitionFile) []domain.Definition {
	definitions := make([]domain.Definition, len(files))
	for i := range files {
		definitions[i] = files[i].Definition
	}
	return definitions
}

// FileError is one error in a file.
type FileError struct {
	Path string
	Line int // 0: the whole file
	Err  error
}

// Error returns path, line and message in one line, as compilers do.
func (e *FileError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.Path, e.Err)
	}
	return fmt.Sprintf("%s:%d: %s", e.Path, e.Line, e.Err)
}

// Unwrap returns the error without its place.
func (e *FileError) Unwrap() error { return e.Err }

// ReadDefinitions reads the definitions of projections in a folder, as ReadFolder does. A definition of an aggregate is
// an error.
func ReadDefinitions(folder string) ([]DefinitionFile, error) {
	projections, aggregates, err := ReadFolder(folder)
	for _, file := range aggregates {
		err = errors.Join(err, &FileError{file.Path, file.Line("category"), errors.New("it defines an aggregate; expected a projection, with a name")})
	}
	return projections, err
}

// ReadFolder reads the definitions in a folder, one per file: the files that end in .yaml, .yml or .json, ordered by
// name. Files with a category define aggregates, the others projections. It skips files that end in .test.yaml,
// .test.yml or .test.json, which contain examples. It returns all errors at once, each a *FileError. Two files that
// define a projection of the same name, or an aggregate of the same category, are an error as well.
func ReadFolder(folder string) (projections []DefinitionFile, aggregates []AggregateFile, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, nil, fmt.Errorf("read the folder of definitions: %w", err)
	}
	var wrong []error
	files := make(map[[2]string]string) // kind and name -> file
	once := func(kind, field, name string, file *File) bool {
		other, twice := files[[2]string{kind, name}]
		if twice {
			wrong = append(wrong, &FileError{file.Path, file.Line(field), fmt.Errorf("%s %q is defined in %s as well", kind, name, other)})
		} else {
			files[[2]string{kind, name}] = file.Path
		}
		return !twice
	}
	for _, entry := range entries {
		name, kind := definitionFileName(entry.Name())
		if kind == "" || strings.HasSuffix(strings.ToLower(name), testSuffix) {
			continue
		}
		path := filepath.Join(folder, entry.Name())
		file, root, err := readFile(path)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		if category, ok := root.category(); ok {
			aggregate := AggregateFile{File: file, Category: category}
			for _, other := range entries {
				if base, kind := definitionFileName(other.Name()); kind != "" && base == name+testSuffix {
					aggregate.Examples = filepath.Join(folder, other.Name())
				}
			}
			if once("aggregate", "category", category, &file) {
				aggregates = append(aggregates, aggregate)
			}
			continue
		}
		var found problems
		definition := readDefinition(root, &found)
		if err := found.err(); err != nil {
			wrong = append(wrong, inFile(path, err))
			continue
		}
		if once("projection", "name", definition.Name, &file) {
			projections = append(projections, DefinitionFile{file, WithDefaults(definition)})
		}
	}
	return projections, aggregates, errors.Join(wrong...)
}

// ReadAggregate reads a file with an aggregate's definition. The error is a *FileError or several.
func ReadAggregate(path string) (AggregateFile, error) {
	file, root, err := readFile(path)
	if err != nil {
		return AggregateFile{}, err
	}
	category, ok := root.category()
	if !ok {
		return AggregateFile{}, &FileError{path, 0, errors.New("it has no category; add one, such as category: order")}
	}
	return AggregateFile{File: file, Category: category}, nil
}

// category returns an aggregate's category.
func (t tree) category() (string, bool) {
	fields, _ := t.value.([]field)
	for _, f := range fields {
		if text, ok := f.value.value.(string); ok && f.name == "category" {
			return text, true
		}
	}
	return "", false
}

// testSuffix ends the base name of a file of examples.
const testSuffix = ".test"

// definitionFileName splits a file's name. kind is empty if the file contains neither a definition nor examples.
func definitionFileName(name string) (base, kind string) {
	kind = filepath.Ext(name)
	switch strings.ToLower(kind) {
	case ".yaml", ".yml", ".json":
		return strings.TrimSuffix(name, kind), kind
	}
	return name, ""
}

// ReadFile reads a YAML or JSON file that is no larger than MaxDefinitionBytes. The error is a *FileError or several.
func ReadFile(path string) (File, error) {
	file, _, err := readFile(path)
	return file, err
}

func readFile(path string) (File, tree, error) {
	text, err := readText(path)
	if err != nil {
		return File{}, tree{}, &FileError{Path: path, Err: err}
	}
	root, err := parseTree(text)
	if err != nil {
		return File{}, tree{}, inFile(path, err)
	}
	var found problems
	file := File{Path: path, JSON: root.json(&found, ""), lines: make(map[string]int)}
	if err := found.err(); err != nil {
		return File{}, tree{}, inFile(path, err)
	}
	root.lines("", file.lines)
	return file, root, nil
}

func readText(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, errors.Unwrap(err)
	}
	if info.IsDir() {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("is a folder")}
	}
	if info.Size() > MaxDefinitionBytes {
		return nil, domain.Errorf(domain.CodeTooLarge, "", "the file has %d bytes; at most %d are allowed", info.Size(), MaxDefinitionBytes)
	}
	return os.ReadFile(path)
}

// inFile converts the errors of a text to file errors.
func inFile(path string, err error) error {
	var wrong []error
	for _, part := range ErrorsOf(err) {
		line, where := lineOf(part.Where)
		wrong = append(wrong, &FileError{path, line, domain.Errorf(part.Code, where, "%s", part.Message)})
	}
	return errors.Join(wrong...)
}

// lineOf splits the line off a place in a text, as formatted by place.
func lineOf(where string) (line int, rest string) {
	rest, last, found := strings.Cut(where, ", ")
	if !found {
		rest, last = "", where
	}
	if n, err := fmt.Sscanf(last, "line %d", &line); n != 1 || err != nil {
		return 0, where
	}
	return line, rest
}

// lines records on which line each field and element begins.
func (t tree) lines(path string, into map[string]int) {
	switch v := t.value.(type) {
	case []field:
		for _, f := range v {
			inner := f.name
			if path != "" {
				inner = path + "." + f.name
			}
			into[inner] = f.line
			f.value.lines(inner, into)
		}
	case []tree:
		for i, item := range v {
			inner := fmt.Sprintf("%s[%d]", path, i)
			into[inner] = item.line
			item.lines(inner, into)
		}
	}
}
