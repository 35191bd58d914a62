package domain_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

func TestCheckJSONRefusesWhatTheLogCannotKeep(t *testing.T) {
	t.Parallel()
	for text, reason := range map[string]string{
		``:               "ends too early",
		`{"a":1,}`:       "a member's name",
		`[1,]`:           "a value is wanted",
		`01`:             "begin with a zero",
		`-`:              "a value is wanted",
		`1.`:             "behind the decimal point",
		`1e`:             "in the exponent",
		`1e200000`:       "out of range",
		`1e-20000`:       "out of range",
		`"\u0000"`:       "U+0000",
		`"\ud800"`:       "high surrogate",
		`"\udc00"`:       "low surrogate",
		`"\ud800\u0041"`: "high surrogate",
		"\"\x01\"":       "control character",
		"\"\xff\"":       "not UTF-8",
		`"\x"`:           "escape",
		`"abc`:           "not closed",
		`{} {}`:          "more behind",
		`nul`:            "a value is wanted",
		`{"a" 1}`:        "a colon",
		strings.Repeat("[", domain.MaxJSONDepth+1) + strings.Repeat("]", domain.MaxJSONDepth+1): "nested",
	} {
		err := domain.CheckJSON([]byte(text))
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("CheckJSON(%.40q) = %v, want an error with %q", text, err, reason)
		}
	}
}

func TestCheckJSONTakesWhatTheLogCanKeep(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		` null `, `true`, `-0`, `0.5e-3`, `123456789012345678901234567890`, `1e100000`,
		`"\ud83d\ude00"`, `"\\u0000"`, `"é"`, `{}`, `[]`, `{"a":[1,{"b":null}],"a":2}`,
		strings.Repeat("[", domain.MaxJSONDepth) + strings.Repeat("]", domain.MaxJSONDepth),
	} {
		if err := domain.CheckJSON([]byte(text)); err != nil {
			t.Errorf("CheckJSON(%.40q): %v", text, err)
		}
	}
}

// What passes is always JSON by the standard library's reckoning too; what it refuses beyond that is named above.
func FuzzCheckJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.5e3,"x\u00e9\ud83d\ude00",null,true]}`, `"\u0000"`, `[[[]]]`, `-0.0`, `{"":""}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if domain.CheckJSON(text) == nil && !json.Valid(text) {
			t.Fatalf("%q passes, but is not JSON", text)
		}
	})
}
