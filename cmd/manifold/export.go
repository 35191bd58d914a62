package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"

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
		Use:   "export",
		Short: "Write a tenant's whole log, as import takes it",
		Long: `Write a tenant's whole log in the order of positions, one JSON object a line, as import takes it. A file appears under its
name only when it is complete.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := to.check(); err != nil {
				return err
			}
			if file == "" || file == "-" {
				return runExport(command, to, command.OutOrStdout(), from, compress)
			}
			half, err := os.CreateTemp(filepath.Dir(file), ".manifold-export-*")
			if err != nil {
				return err
			}
			defer os.Remove(half.Name()) // where it is still there, it is of no use
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
	command.Flags().StringVar(&compress, "compress", "", "gzip or zstd")
	command.Flags().Int64Var(&from, "from", 1, "the first position to write")
	return command
}

func runExport(command *cobra.Command, to *connection, out io.Writer, from int64, compress string) error {
	into, err := compressor(out, compress)
	if err != nil {
		return err
	}
	service, err := client.NewClient(to.url, client.WithKey(to.key))
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
	bar := newProgress(-1, "exporting", true)
	_, err = io.Copy(into, io.TeeReader(response.Body, byteCounter{bar}))
	_ = bar.Finish() // nothing but the screen depends on it
	if err != nil {
		return fmt.Errorf("the export was cut off: %w", err)
	}
	return into.Close()
}

// compressor compresses what is written to it; closing it does not close out.
func compressor(out io.Writer, how string) (io.WriteCloser, error) {
	switch how {
	case "":
		return plain{out}, nil
	case "gzip":
		return gzip.NewWriter(out), nil
	case "zstd":
		return zstd.NewWriter(out)
	default:
		return nil, fmt.Errorf("--compress %s: write gzip or zstd", how)
	}
}

type plain struct{ io.Writer }

func (plain) Close() error { return nil }
