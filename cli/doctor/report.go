package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Verdict is the result of a check.
type Verdict string

const (
	Fine    Verdict = "ok"      // there is nothing to do
	Warning Verdict = "warning" // it works, but could be better
	Failure Verdict = "failed"  // it does not work
)

// Finding is the outcome of one check.
type Finding struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Message string  `json:"message"`
	Todo    string  `json:"todo,omitempty"` // what to do; empty if the verdict is Fine
}

// Failed reports whether any check failed.
func Failed(findings []Finding) bool {
	for _, f := range findings {
		if f.Verdict == Failure {
			return true
		}
	}
	return false
}

// Write prints a line for each finding.
func Write(out io.Writer, findings []Finding) error {
	for _, f := range findings {
		line := fmt.Sprintf("%-8s %s: %s", f.Verdict, f.Check, oneLine(f.Message))
		if f.Todo != "" {
			line += "; " + oneLine(f.Todo)
		}
		if _, err := fmt.Fprintln(out, line); err != nil {
			return err
		}
	}
	return nil
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// WriteJSON prints the findings as JSON.
func WriteJSON(out io.Writer, findings []Finding) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(struct {
		OK     bool      `json:"ok"`
		Checks []Finding `json:"checks"`
	}{!Failed(findings), findings})
}
