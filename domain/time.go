package domain

import "time"

// TimeLayout is the format of every time that Manifold stores in a document or sends to a client: RFC 3339 in UTC with
// six fractional digits, the precision of the database. Texts of one length and one time zone sort and compare like the
// times themselves. TimeLayout is a layout of package time, for a time in UTC.
const TimeLayout = "2006-01-02T15:04:05.000000Z"

// FormatTime formats t with TimeLayout.
func FormatTime(t time.Time) string { return t.UTC().Format(TimeLayout) }

// AppendTime appends what FormatTime returns.
func AppendTime(b []byte, t time.Time) []byte { return t.UTC().AppendFormat(b, TimeLayout) }
