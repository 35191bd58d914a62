package config

import "log/slog"

// Secret is a password or key: it prints and logs as stars, so that it ends up in no log by accident.
type Secret string

const stars = "***"

// String returns stars, or nothing for no secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return stars
}

// GoString is String, for %#v.
func (s Secret) GoString() string { return s.String() }

// LogValue is String, for slog.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText is String, for JSON and YAML.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
