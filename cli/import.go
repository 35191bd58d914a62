package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func importCommand() *cobra.Command {
	job := &importing{}
	var check, skipCheck bool
	command := &cobra.Command{
		Use:   "import FILE|-",
		Short: "Append the events of a file",
		Long: `Append the events of a file, one JSON object a line: {"stream", "id"?, "type", "time"?, "data", "metadata"?}. The file may
be compressed with gzip or zstd; - is standard input.

A file is read and checked as a whole first: where a line is bad, or the file is damaged, nothing is appended. Standard
input cannot be read twice, so its events are appended as they come, up to the first bad line. The command fails if a
line is bad.

An import that was cut off is repeated as it was: what is there already is recognised, by the lines' ids, or, where they
have none, by the import's name and the line's number.`,
		Example: `  manifold import orders.ndjson.gz
  manifold import --check orders.ndjson.gz
  generate-events | manifold import - --name generated`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if err := job.to.check(); err != nil {
				return err
			}
			job.size = -1
			if args[0] == "-" {
				return job.run(command, command.InOrStdin(), check)
			}
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			info, err := file.Stat()
			if err == nil && info.Mode().IsRegular() {
				job.size = info.Size()
			}
			if check || skipCheck || job.size < 0 || !job.strict {
				return job.run(command, file, check)
			}
			if err := job.run(command, file, true); err != nil {
				return err
			}
			if _, err := file.Seek(0, io.SeekStart); err != nil {
				return err
			}
			return job.run(command, file, false)
		},
	}
	job.to.bind(command, "MANIFOLD_KEY")
	command.Flags().StringVar(&job.name, "name", "", "names the import; needed where lines have no id")
	command.Flags().BoolVar(&job.strict, "strict", true, "append nothing after a bad line; --strict=false skips bad lines")
	command.Flags().BoolVar(&check, "check", false, "check the file, and append nothing")
	command.Flags().BoolVar(&skipCheck, "skip-check", false, "append at once, without checking the whole file first")
	return command
}

// importing is an import, or the check before it.
type importing struct {
	to     connection
	name   string
	strict bool
	size   int64 // of the file; -1: unknown
}

// importProgress is one line of the service's answer: ImportProgress in the contract.
type importProgress struct {
	Lines      int64 `json:"lines"`
	Appended   int64 `json:"appended"`
	Duplicates int64 `json:"duplicates"`
	BadLines   int64 `json:"badLines"`
	Bad        []struct {
		Line   int64  `json:"line"`
		Reason string `json:"reason"`
	} `json:"bad"`
	Position int64           `json:"position"`
	Done     bool            `json:"done"`
	Error    *client.Problem `json:"error"`
}

// run sends the input for a check or for an append.
func (j *importing) run(command *cobra.Command, in io.Reader, check bool) error {
	buffered := bufio.NewReaderSize(in, 256<<10)
	service, err := client.NewClient(j.to.url, j.to.options()...)
	if err != nil {
		return err
	}
	// The file is sent unchanged, with its compression in a header.
	encoding := compression(buffered)
	params := &client.ImportEventsParams{Strict: &j.strict, Check: &check}
	if j.name != "" {
		params.Name = &j.name
	}
	doing := "importing"
	if check {
		doing = "checking"
	}
	bar := newProgress(j.size, doing, true)
	body := io.TeeReader(buffered, byteCounter{bar})
	response, err := service.ImportEventsWithBody(command.Context(), params, "application/x-ndjson", body,
		func(_ context.Context, request *http.Request) error {
			if encoding != "" {
				request.Header.Set("Content-Encoding", encoding)
			}
			return nil
		})
	if err != nil {
		return fmt.Errorf("%w; repeat the import: what was appended is recognised", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
		return errors.Join(refusal(response.Status, answer), err)
	}
	last, err := followImport(response.Body, bar, command.ErrOrStderr())
	_ = bar.Finish() // affects only the screen
	if err != nil {
		return err
	}
	out := command.OutOrStdout()
	switch {
	case !check:
		fmt.Fprintf(out, "%d lines: %d appended, %d there already, %d bad\n", last.Lines, last.Appended, last.Duplicates, last.BadLines)
	case last.Done && last.Error == nil && last.BadLines == 0:
		fmt.Fprintf(out, "%d lines checked: all are good\n", last.Lines)
	default:
		fmt.Fprintf(out, "%d lines checked: %d bad; nothing was appended\n", last.Lines, last.BadLines)
	}
	switch {
	case last.Error != nil:
		return problemError(*last.Error)
	case !last.Done:
		return errors.New("the service's answer was cut off; repeat the import: what was appended is recognised")
	case last.BadLines == 0:
		return nil
	case check:
		return errors.New("correct the bad lines, or skip them with --strict=false")
	case j.strict:
		return fmt.Errorf("line %d is bad, and nothing after it was appended; correct it and repeat the import", last.Lines)
	}
	return fmt.Errorf("%d bad lines were skipped", last.BadLines)
}

// badLinesShown is the largest number of bad lines to print.
const badLinesShown = 20

// followImport reads the progress to its end, and prints the first bad lines as they arrive.
func followImport(body io.Reader, bar *progressbar.ProgressBar, report io.Writer) (last importProgress, err error) {
	shown := 0
	for decoder := json.NewDecoder(body); ; {
		var frame importProgress
		err := decoder.Decode(&frame)
		if errors.Is(err, io.EOF) {
			return last, nil
		}
		if err != nil {
			return last, fmt.Errorf("the service's answer was cut off (%w); repeat the import: what was appended is recognised", err)
		}
		last = frame
		if len(frame.Bad) > 0 {
			_ = bar.Clear()
		}
		for _, bad := range frame.Bad {
			if shown++; shown <= badLinesShown {
				fmt.Fprintf(report, "line %d: %s\n", bad.Line, bad.Reason)
			} else if shown == badLinesShown+1 {
				fmt.Fprintln(report, "further bad lines are not shown")
			}
		}
	}
}

// compression detects the compression from a file's first bytes: gzip, zstd, or "" for neither.
func compression(in *bufio.Reader) string {
	begin, _ := in.Peek(4) // a shorter file is not compressed; reading it returns any error again
	switch {
	case bytes.HasPrefix(begin, []byte{0x1f, 0x8b}):
		return "gzip"
	case bytes.Equal(begin, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return "zstd"
	default:
		return ""
	}
}

// byteCounter advances a progress bar by the number of bytes written to it.
type byteCounter struct{ bar *progressbar.ProgressBar }

func (c byteCounter) Write(p []byte) (int, error) {
	_ = c.bar.Add(len(p)) // affects only the screen
	return len(p), nil
}
