package folding

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// DefinitionFile is a file that contains a definition.
type DefinitionFile struct {
	Path       string
	Definition domain.Definition
	lines      map[string]int
}

// Line returns the line on which a field begins, such as "on.ItemAdded" or "indexes[1]". It returns the line of the
// nearest enclosing field if the file does not have that one, or else 1.
func (f *DefinitionFile) Line(field string) int {
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

// ReadDefinitions reads the definitions in a folder, one per file: the files that end in .yaml, .yml or .json, ordered
// by name. It skips files that end in .test.yaml, .test.yml or .test.json, which contain examples. It returns all
// errors at once, each a *FileError. Two files that define a projection of the same name are an error as well.
func ReadDefinitions(folder string) ([]DefinitionFile, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("read the folder of definitions: %w", err)
	}
	var read []DefinitionFile
	var wrong []error
	files := make(map[string]string) // projection -> file
	for _, entry := range entries {
		name, kind := definitionFileName(entry.Name())
		if kind == "" || strings.HasSuffix(strings.ToLower(name), testSuffix) {
			continue
		}
		path := filepath.Join(folder, entry.Name())
		file, err := readDefinitionFile(path)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		if other, twice := files[file.Definition.Name]; twice {
			wrong = append(wrong, &FileError{path, file.Line("name"), fmt.Errorf("projection %q is defined in %s as well", file.Definition.Name, other)})
			continue
		}
		files[file.Definition.Name] = path
		read = append(read, file)
	}
	return read, errors.Join(wrong...)
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

func readDefinitionFile(path string) (DefinitionFile, error) {
	text, err := readFile(path)
	if err != nil {
		return DefinitionFile{}, &FileError{Path: path, Err: err}
	}
	definition, err := ParseDefinition(text)
	if err != nil {
		return DefinitionFile{}, inFile(path, err)
	}
	root, err := parseTree(text)
	if err != nil {
		return DefinitionFile{}, inFile(path, err)
	}
	lines := make(map[string]int)
	root.lines("", lines)
	return DefinitionFile{Path: path, Definition: definition, lines: lines}, nil
}

// readFile reads a file that is no larger than MaxDefinitionBytes.
func readFile(path string) ([]byte, error) {
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
