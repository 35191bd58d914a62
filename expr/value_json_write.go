package expr

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// ErrTooLarge is wrapped by the error for a value that is longer than MaxDocumentBytes as JSON, nested deeper than
// MaxDepth, or too long with its numbers written without exponents (domain.PrintedTooLong).
var ErrTooLarge = errors.New("the value is too large for a document")

// AppendJSON appends v to dst as JSON without white space. Equal values give equal bytes: keys are in byte order, and
// numbers in the shortest form that reads back as the same number. Times become strings as in RFC 3339.
//
// The error wraps ErrTooLarge, or is an *EvalError for a value without a JSON form: an optional, a type, or an event
// whose data cannot be read.
func AppendJSON(dst []byte, v Value) ([]byte, error) {
	w := jsonWriter{out: dst, limit: len(dst) + MaxDocumentBytes}
	if err := w.value(v, 0); err != nil {
		return dst, err
	}
	if domain.PrintedTooLong(len(w.out)-len(dst), w.growth) {
		return dst, fmt.Errorf("%w: it has too many numbers such as 1e300, which PostgreSQL keeps with all their digits; make them strings", ErrTooLarge)
	}
	return w.out, nil
}

// ClipJSON returns v as AppendJSON writes it if that is at most most bytes long; otherwise whole is false, and the text
// is only the beginning, which is no JSON. It takes time in proportion to most and to the longest string of v.
func ClipJSON(v Value, most int) (text []byte, whole bool) {
	w := jsonWriter{limit: most}
	if err := w.value(v, 0); err != nil || len(w.out) > most {
		return bytes.ToValidUTF8(w.out[:min(most, len(w.out))], nil), false
	}
	return w.out, true
}

type jsonWriter struct {
	out    []byte
	limit  int
	growth int // how many bytes longer it is as printed by JSONB
}

func (w *jsonWriter) value(v Value, depth int) error {
	if depth > MaxDepth {
		return fmt.Errorf("%w: it is nested deeper than %d", ErrTooLarge, MaxDepth)
	}
	switch v := v.(type) {
	case Null:
		w.out = append(w.out, "null"...)
	case Bool:
		if v {
			w.out = append(w.out, "true"...)
		} else {
			w.out = append(w.out, "false"...)
		}
	case Int:
		w.out = appendNumber(w.out, v)
	case Double:
		start := len(w.out)
		w.out = appendNumber(w.out, v)
		w.growth += domain.NumberGrowth(w.out[start:])
	case String:
		w.out = domain.AppendText(w.out, string(v))
	case List:
		w.out = append(w.out, '[')
		for i, item := range v.items {
			if i > 0 {
				w.out = append(w.out, ',')
				w.growth++
			}
			if err := w.value(item, depth+1); err != nil {
				return err
			}
		}
		w.out = append(w.out, ']')
	case *Object:
		w.out = append(w.out, '{')
		for i, key := range v.keys {
			if i > 0 {
				w.out = append(w.out, ',')
				w.growth++
			}
			w.out = domain.AppendText(w.out, key)
			w.out = append(w.out, ':')
			w.growth++
			if err := w.value(v.values[i], depth+1); err != nil {
				return err
			}
		}
		w.out = append(w.out, '}')
	default:
		settled, err := settle(v)
		if err != nil {
			return err
		}
		return w.value(settled, depth)
	}
	if len(w.out) > w.limit {
		return fmt.Errorf("%w: as JSON it has more than %d bytes", ErrTooLarge, MaxDocumentBytes)
	}
	return nil
}

// timeText formats a Timestamp or Duration as documents store it.
func timeText(v Value) (string, error) {
	switch v := v.(type) {
	case Timestamp:
		return domain.FormatTime(time.Time(v)), nil
	case Duration:
		return durationText(time.Duration(v)), nil
	}
	return "", fmt.Errorf("%s is not a time", Describe(v))
}

// durationText uses CEL's form: seconds, with a fraction if necessary.
func durationText(d time.Duration) string {
	sign := ""
	seconds, fraction := int64(d/time.Second), int64(d%time.Second)
	if d < 0 {
		sign, seconds, fraction = "-", -seconds, -fraction
	}
	text := fmt.Sprintf("%s%d", sign, seconds)
	if fraction != 0 {
		digits := fmt.Sprintf(".%09d", fraction)
		for digits[len(digits)-1] == '0' {
			digits = digits[:len(digits)-1]
		}
		text += digits
	}
	return text + "s"
}
