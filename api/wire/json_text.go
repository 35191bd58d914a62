package wire

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/manifold-es/manifold/domain"
)

// AppendJSONText appends a text as JSON. Most texts contain nothing to escape.
func AppendJSONText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			return append(b, domain.Scalar{Kind: domain.ScalarText, Text: text}.JSON()...)
		}
	}
	return append(append(append(b, '"'), text...), '"')
}

// AppendNumber appends a number as a further field of an object.
func AppendNumber(b []byte, name string, number int64) []byte {
	b = append(append(append(b, `,"`...), name...), `":`...)
	return strconv.AppendInt(b, number, 10)
}

// AppendTime appends a time as a further field of an object.
func AppendTime(b []byte, name string, at time.Time) []byte {
	b = append(append(append(b, `,"`...), name...), `":"`...)
	return append(domain.AppendTime(b, at), '"')
}
