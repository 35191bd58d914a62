package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

func exportCommand() *cobra.Command {
	to := &connection{}
	var file, compress string
	var part eventPeriod
	var first, last int64
	var categories []string
	command := &cobra.Command{
		Use:   "export [FILE|-]",
		Short: "Export a tenant's log, or a part of it",
		Long: `Export a tenant's log, or a part of it, in the order of positions, one JSON object a line, for manifold import. The output is
standard output or a file, which gets its name only when it is complete. A file whose name ends in .gz or .zst is compressed.`,
		Example: `  manifold export log.ndjson.zst
  manifold export --categories order,invoice --since 2026-03-01 --until 2026-04-01 march.ndjson.gz`,
		Args: cobra.MaximumNArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			if len(c.args) == 1 {
				if file != "" {
					return errors.New("the file is given twice: as FILE and with --output")
				}
				file = c.args[0]
			}
			if !c.changed("compress") {
				compress = compressionOf(file)
			}
			params := &client.ExportEventsParams{From: given(first), To: given(last), Categories: givenList(categories), Types: givenList(part.types)}
			var err error
			if params.Since, params.Until, err = part.times(); err != nil {
				return err
			}
			if file == "" || file == "-" {
				return export(ctx, c, c.out, params, compress)
			}
			return writeFile(file, 0o600, func(out io.Writer) error { return export(ctx, c, out, params, compress) })
		}),
	}
	to.bind(command, "MANIFOLD_KEY")
	command.Flags().StringVarP(&file, "output", "o", "", "the file to write (default: standard output)")
	command.Flags().StringVar(&compress, "compress", "", "gzip, zstd or none (default: by the file's name)")
	command.Flags().Int64Var(&first, "from", 0, "the first position to write (default: that of the first event)")
	command.Flags().Int64Var(&last, "to", 0, "the last position to write (default: the log's head)")
	command.Flags().StringSliceVar(&categories, "categories", nil, "only events of these categories, separated by commas")
	part.bind(command)
	return command
}

// writeFile writes a file that gets its name only when it is complete.
func writeFile(file string, mode os.FileMode, write func(out io.Writer) error) error {
	part, err := os.CreateTemp(filepath.Dir(file), ".manifold-*")
	if err != nil {
		return err
	}
	defer os.Remove(part.Name()) // if the file still exists, it is incomplete
	err = write(part)
	if err == nil {
		err = part.Chmod(mode)
	}
	if err == nil {
		err = part.Sync()
	}
	if err := errors.Join(err, part.Close()); err != nil {
		return err
	}
	return os.Rename(part.Name(), file)
}

func export(ctx context.Context, c *call, out io.Writer, params *client.ExportEventsParams, compress string) error {
	compressed, err := compressor(out, compress)
	if err != nil {
		return err
	}
	response, err := c.ExportEvents(ctx, params)
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return done(response, nil)
	}
	defer response.Body.Close()
	if removed := response.Header.Get("Manifold-Removed-To"); removed != "" {
		fmt.Fprintf(c.people, "the log is incomplete: retention has removed events up to position %s, and the export lacks them\n", removed)
	}
	bar := newProgress(-1, "exporting", true)
	_, err = io.Copy(compressed, io.TeeReader(response.Body, byteCounter{bar}))
	_ = bar.Finish() // affects only the screen
	if err != nil {
		return fmt.Errorf("the export was cut off: %w", err)
	}
	return compressed.Close()
}

// compressionOf returns the compression for a file of this name: gzip, zstd, or none.
func compressionOf(file string) string {
	switch strings.ToLower(filepath.Ext(file)) {
	case ".gz":
		return "gzip"
	case ".zst", ".zstd":
		return "zstd"
	default:
		return "none"
	}
}

// compressor compresses what is written to it. Closing it does not close out.
func compressor(out io.Writer, how string) (io.WriteCloser, error) {
	switch how {
	case "none":
		return plain{out}, nil
	case "gzip":
		return gzip.NewWriter(out), nil
	case "zstd":
		return zstd.NewWriter(out)
	default:
		return nil, fmt.Errorf("--compress %s: expected gzip, zstd or none", how)
	}
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }
