package main

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
	"path/filepath"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold"
	"github.com/manifold-es/manifold/client"
)

func importCommand() *cobra.Command {
	to, name, strict := &connection{}, "", false
	command := &cobra.Command{
		Use:   "import FILE|-",
		Short: "Append the events of a file",
		Long: `Append the events of a file, one JSON object a line: {"stream", "id"?, "type", "time"?, "data", "metadata"?}. The file may
be compressed with gzip or zstd; - is standard input.

An import that was cut off is repeated as it was: what is there already is recognised, by the lines' ids, or, where they
have none, by the import's name and the line's content. Bad lines are reported, with their numbers, and do not stop the
good ones unless --strict is given; the command fails in the end where there were any.`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if err := to.check(); err != nil {
				return err
			}
			in, size := command.InOrStdin(), int64(-1)
			if args[0] != "-" {
				file, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer file.Close()
				if info, err := file.Stat(); err == nil && info.Mode().IsRegular() {
					size = info.Size()
				}
				if name == "" {
					name = filepath.Base(args[0])
				}
				in = file
			}
			return runImport(command, to, in, size, name, strict)
		},
	}
	to.bind(command, "MANIFOLD_KEY")
	command.Flags().StringVar(&name, "name", "", "names the import, where lines have no id (default: the file's name)")
	command.Flags().BoolVar(&strict, "strict", false, "append nothing behind the first bad line")
	return command
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

func runImport(command *cobra.Command, to *connection, in io.Reader, size int64, name string, strict bool) error {
	buffered := bufio.NewReaderSize(in, 256<<10)
	service, err := client.NewClient(to.url, to.options()...)
	if err != nil {
		return err
	}
	// The service is told how the file is compressed, and gets it as it is.
	encoding := compression(buffered)
	params := &client.ImportEventsParams{Strict: &strict}
	if name != "" {
		params.Name = &name
	}
	bar := newProgress(size, "importing", true)
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
	_ = bar.Finish() // nothing but the screen depends on it
	if err != nil {
		return err
	}
	fmt.Fprintf(command.OutOrStdout(), "%d lines: %d appended, %d there already, %d bad\n", last.Lines, last.Appended, last.Duplicates, last.BadLines)
	switch {
	case last.Error != nil:
		return problemError(*last.Error)
	case !last.Done:
		return errors.New("the service's answer was cut off; repeat the import: what was appended is recognised")
	case last.BadLines > 0:
		return fmt.Errorf("%d bad lines were left out: %w", last.BadLines, manifold.ErrShown)
	}
	return nil
}

// followImport reads the progress to its end and reports bad lines as they come.
func followImport(body io.Reader, bar *progressbar.ProgressBar, report io.Writer) (last importProgress, err error) {
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
			fmt.Fprintf(report, "line %d: %s\n", bad.Line, bad.Reason)
		}
	}
}

// compression looks at how a file begins: gzip, zstd, or "" for neither.
func compression(in *bufio.Reader) string {
	begin, _ := in.Peek(4) // a shorter file is not compressed; an error comes again when it is read
	switch {
	case bytes.HasPrefix(begin, []byte{0x1f, 0x8b}):
		return "gzip"
	case bytes.Equal(begin, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return "zstd"
	default:
		return ""
	}
}

// byteCounter moves a bar by what is written to it.
type byteCounter struct{ bar *progressbar.ProgressBar }

func (c byteCounter) Write(p []byte) (int, error) {
	_ = c.bar.Add(len(p)) // nothing but the screen depends on it
	return len(p), nil
}
