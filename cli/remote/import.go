package remote

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
	to, job, check, skipCheck := &connection{}, &importing{}, false, false
	command := &cobra.Command{
		Use:   "import FILE|-",
		Short: "Append the events of a file",
		Long: `Append the events of a file, one JSON object a line: {"stream", "id"?, "type", "time"?, "data", "metadata"?}. The file may be
compressed with gzip or zstd; - is standard input.

A file is first checked as a whole: if a line is bad or the file is damaged, nothing is appended. Standard input cannot be read
twice, so its events are appended as they arrive, up to the first bad line. The command fails if a line is bad.

To continue an import that was cut off, run the same command again. Events that were appended before are recognised by their
ids. Lines without ids are recognised by their numbers and the name of the import.`,
		Example: `  manifold import orders.ndjson.gz
  manifold import --check orders.ndjson.gz
  generate-events | manifold import - --name generated`,
		Args: cobra.ExactArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			job.size = -1
			if c.args[0] == "-" {
				return job.send(ctx, c, c.in, check)
			}
			file, err := os.Open(c.args[0])
			if err != nil {
				return err
			}
			defer file.Close()
			info, err := file.Stat()
			if err == nil && info.Mode().IsRegular() {
				job.size = info.Size()
			}
			if check || skipCheck || job.size < 0 || !job.strict {
				return job.send(ctx, c, file, check)
			}
			if err := job.send(ctx, c, file, true); err != nil {
				return err
			}
			if _, err := file.Seek(0, io.SeekStart); err != nil {
				return err
			}
			return job.send(ctx, c, file, false)
		}),
	}
	to.bind(command, "MANIFOLD_KEY")
	command.Flags().StringVar(&job.name, "name", "", "the import's name; required if lines have no id")
	command.Flags().BoolVar(&job.strict, "strict", true, "append nothing after a bad line; --strict=false skips bad lines")
	command.Flags().BoolVar(&check, "check", false, "check the file, and append nothing")
	command.Flags().BoolVar(&skipCheck, "skip-check", false, "append at once, without checking the whole file first")
	return command
}

// importing is an import, or the check before it.
type importing struct {
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

// repeatImport is what to do about an import that was cut off.
const repeatImport = "run the same import again: events already appended are recognised"

// send sends the input for a check or for an append.
func (j *importing) send(ctx context.Context, c *call, in io.Reader, check bool) error {
	buffered := bufio.NewReaderSize(in, 256<<10)
	encoding := compression(buffered)
	doing := "importing"
	if check {
		doing = "checking"
	}
	bar := newProgress(j.size, doing, true)
	params := &client.ImportEventsParams{Strict: &j.strict, Check: &check, Name: given(j.name)}
	// The file is sent unchanged, with its compression in a header.
	response, err := c.ImportEventsWithBody(ctx, params, "application/x-ndjson", io.TeeReader(buffered, byteCounter{bar}),
		func(_ context.Context, request *http.Request) error {
			if encoding != "" {
				request.Header.Set("Content-Encoding", encoding)
			}
			return nil
		})
	if err != nil {
		return fmt.Errorf("%w; %s", err, repeatImport)
	}
	if response.StatusCode != http.StatusOK {
		return done(response, nil)
	}
	defer response.Body.Close()
	last, err := followImport(response.Body, bar, c.people)
	_ = bar.Finish() // affects only the screen
	if err != nil {
		return err
	}
	switch {
	case !check:
		c.out.printf("%d lines: %d appended, %d duplicates, %d bad\n", last.Lines, last.Appended, last.Duplicates, last.BadLines)
	case last.Done && last.Error == nil && last.BadLines == 0:
		c.out.printf("%d lines checked: all are good\n", last.Lines)
	default:
		c.out.printf("%d lines checked: %d bad; nothing was appended\n", last.Lines, last.BadLines)
	}
	switch {
	case last.Error != nil:
		return problemError(*last.Error)
	case !last.Done:
		return errors.New("the service's answer was cut off; " + repeatImport)
	case last.BadLines == 0:
		return nil
	case check:
		return errors.New("correct the bad lines, or skip them with --strict=false")
	case j.strict:
		return fmt.Errorf("line %d is bad, and nothing after it was appended; correct it and run the import again", last.Lines)
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
			return last, fmt.Errorf("the service's answer was cut off (%w); %s", err, repeatImport)
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
