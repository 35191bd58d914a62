package examples

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// The guide shows the driver as it is: each of its Go blocks is a part of a file, and it shows every file.
func TestGuideShowsTheDriver(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../docs/guides/write-a-driver.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := make(map[string]bool)
	for _, block := range regexp.MustCompile("(?ms)^```go *([^\n]*)\n(.*?)^```$").FindAllSubmatch(guide, -1) {
		name := string(block[1])
		source, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Errorf("a block of the guide is of no file: %v", err)
			continue
		}
		if !bytes.Contains(source, block[2]) {
			t.Errorf("%s does not contain what the guide shows:\n%s", name, block[2])
		}
		shown[filepath.Base(name)] = true
	}
	files, err := filepath.Glob("memory-driver/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("the driver's files: %v, %v", files, err)
	}
	for _, file := range files {
		if !shown[filepath.Base(file)] {
			t.Errorf("the guide does not show %s", file)
		}
	}
}
