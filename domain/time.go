package domain

import "time"

// TimeLayout is how Manifold writes every moment that it stores in a document or sends to a client: RFC 3339 in UTC with
// six fractional digits, as many as the database keeps. Texts of one length and one time zone sort and compare as the
// moments do. It is a layout of package time, for a time in UTC.
const TimeLayout = "2006-01-02T15:04:05.000000Z"

// FormatTime writes t as TimeLayout has it.
func FormatTime(t time.Time) string { return t.UTC().Format(TimeLayout) }

// AppendTime appends what FormatTime returns.
func AppendTime(b []byte, t time.Time) []byte { return t.UTC().AppendFormat(b, TimeLayout) }
