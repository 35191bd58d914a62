package config

import "log/slog"

// Secret is a password or key. It prints and logs as stars, so that it cannot end up in a log by accident.
type Secret string

const stars = "***"

// String returns stars, or "" for an empty secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return stars
}

// GoString returns String, for %#v.
func (s Secret) GoString() string { return s.String() }

// LogValue returns String, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns String, for JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
