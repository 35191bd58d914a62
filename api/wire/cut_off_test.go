package wire

import (
	"errors"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/cloudevents"
	"github.com/manifold-es/manifold/domain"
)

// A truncated body is reported as truncated, whatever field is missing.
func TestBodiesThatAreCutOffSaySo(t *testing.T) {
	t.Parallel()
	const event = `{"id":"0190d3a4-5b6c-7def-8123-456789abcde0","type":"A","occurredAt":"2026-01-01T00:00:00Z","metadata":{"m":[]},"data":{"a":[1.5e3,"\u00e9",true]}}`
	const cloudEvent = `{"specversion":"1.0","id":"1","source":"s","type":"T","subject":"7","data":{"a":[1.5e3,"\u00e9",true]}}`
	const message = `{"topic":"order","key":"1","type":"A","headers":{"a":"b"},"tags":["t"],"payload":{"a":[1.5e3,"\u00e9",true]}}`
	for what, c := range map[string]struct {
		whole  string
		decode func([]byte) error
	}{
		"events":                  {"[" + event + "]", func(b []byte) error { _, err := DecodeEvents(b); return err }},
		"streams":                 {`{"streams":[{"stream":"order-1","expectedVersion":"any","events":[` + event + "]}]}", func(b []byte) error { _, err := DecodeAppend(b); return err }},
		"message":                 {message, func(b []byte) error { _, err := DecodePublication(b); return err }},
		"messages":                {"[" + message + "]", func(b []byte) error { _, err := DecodePublication(b); return err }},
		"cloud event":             {cloudEvent, func(b []byte) error { _, err := cloudevents.Parse(b); return err }},
		"cloud batch":             {"[" + cloudEvent + "]", func(b []byte) error { _, err := cloudevents.ParseBatch(b, 9); return err }},
		"import line":             {`{"stream":"order-1",` + event[1:strings.Index(event, `"occurredAt"`)+1] + `time":"2026-01-01T00:00:00Z","data":{"a":[1]}}`, func(b []byte) error { _, err := ParseImportLine(b, "", 1); return err }},
		"import of a cloud event": {cloudEvent, func(b []byte) error { _, err := ParseImportLine(b, "", 1); return err }},
	} {
		if err := c.decode([]byte(c.whole)); err != nil {
			t.Errorf("%s: the whole is refused: %v", what, err)
		}
		for end := 1; end < len(c.whole); end++ {
			err := c.decode([]byte(c.whole[:end]))
			e, ok := errors.AsType[*domain.Error](err)
			if !ok || e.Code != domain.CodeInvalidJSON || !strings.Contains(e.Message, "ends in the middle of") {
				t.Errorf("%s: %s is answered %v", what, c.whole[:end], err)
				break
			}
		}
	}
}
