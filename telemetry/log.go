package telemetry

import (
	"io"
	"log/slog"
)

// NewLogger writes to w, as lines of JSON where format is "json", else as text for people.
func NewLogger(w io.Writer, level slog.Level, format string) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
