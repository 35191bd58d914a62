package telemetry

import (
	"io"
	"log/slog"
)

// NewLogger returns a logger that writes to w: JSON lines if format is "json", and otherwise text for people.
func NewLogger(w io.Writer, level slog.Level, format string) *slog.Logger {
	options := &slog.HandlerOptions{Level: level}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
