package cli

import (
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
	var from int64
	command := &cobra.Command{
		Use:   "export [FILE|-]",
		Short: "Write a tenant's whole log, as import takes it",
		Long: `Write a tenant's whole log in the order of positions, one JSON object a line, as import takes it: to standard output, or to
a file, which appears under its name only when it is complete. A file named .gz or .zst is compressed.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if err := to.check(); err != nil {
				return err
			}
			if len(args) == 1 {
				if file != "" {
					return errors.New("the file is named twice: as FILE and by --output")
				}
				file = args[0]
			}
			if !command.Flags().Changed("compress") {
				compress = compressionOf(file)
			}
			if file == "" || file == "-" {
				return runExport(command, to, command.OutOrStdout(), from, compress)
			}
			half, err := os.CreateTemp(filepath.Dir(file), ".manifold-export-*")
			if err != nil {
				return err
			}
			defer os.Remove(half.Name()) // if the file still exists, it is incomplete
			err = runExport(command, to, half, from, compress)
			if err == nil {
				err = half.Sync()
			}
			if err := errors.Join(err, half.Close()); err != nil {
				return err
			}
			return os.Rename(half.Name(), file)
		},
	}
	to.bind(command, "MANIFOLD_KEY")
	command.Flags().StringVarP(&file, "output", "o", "", "the file to write (default: standard output)")
	command.Flags().StringVar(&compress, "compress", "", "gzip, zstd or none (default: by the file's name)")
	command.Flags().Int64Var(&from, "from", 1, "the first position to write")
	return command
}

func runExport(command *cobra.Command, to *connection, out io.Writer, from int64, compress string) error {
	into, err := compressor(out, compress)
	if err != nil {
		return err
	}
	service, err := client.NewClient(to.url, to.options()...)
	if err != nil {
		return err
	}
	response, err := service.ExportEvents(command.Context(), &client.ExportEventsParams{From: &from})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
		return errors.Join(refusal(response.Status, answer), err)
	}
	if gone := response.Header.Get("Manifold-Removed-To"); gone != "" {
		fmt.Fprintf(command.ErrOrStderr(), "the log is not whole any more: retention has removed events up to position %s, and they are not in the export\n", gone)
	}
	bar := newProgress(-1, "exporting", true)
	_, err = io.Copy(into, io.TeeReader(response.Body, byteCounter{bar}))
	_ = bar.Finish() // affects only the screen
	if err != nil {
		return fmt.Errorf("the export was cut off: %w", err)
	}
	return into.Close()
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
		return nil, fmt.Errorf("--compress %s: write gzip, zstd or none", how)
	}
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }
