package domain_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

func TestCheckJSONRefusesWhatTheLogCannotStore(t *testing.T) {
	t.Parallel()
	for text, reason := range map[string]string{
		``:                              "the text is empty",
		`{"a":1,}`:                      "a member's name",
		`[1,]`:                          "expected a value",
		`[1,`:                           "in the middle of an array; was it cut off on its way? (at /1, byte 3)",
		`01`:                            "begin with a zero",
		`-`:                             "in the middle of a number",
		`-x`:                            "expected a value",
		`1.x`:                           "after the decimal point",
		`1ex`:                           "in the exponent",
		`1e309`:                         "the number is too long",
		`-10e308`:                       "the number is too long",
		`1e-341`:                        "the number is too long",
		`0e-341`:                        "the number is too long",
		`0e1000000`:                     "the number is too long",
		`1e131071`:                      "the number is too long",
		`1e99999999999999999999`:        "the number is too long",
		strings.Repeat("9", 310):        "the number is too long",
		"0." + strings.Repeat("0", 341): "the number is too long",
		`{"a/b":[{"n":[1,1e400]}]}`:     "(at /a~1b/0/n/1, byte 16)",
		"[" + strings.Repeat("1e300,", 7000) + "1]": "more than 2097152 bytes when its numbers are written without exponents",
		`"\u0000"`:       "U+0000",
		`"\ud800"`:       "high surrogate",
		`"\udc00"`:       "low surrogate",
		`"\ud800\u0041"`: "high surrogate",
		"\"\x01\"":       "control character",
		"\"\xff\"":       "not UTF-8",
		`"\x"`:           "escape",
		`"abc`:           "in the middle of a string",
		`{} {}`:          "text after",
		`nul`:            "in the middle of a value",
		`nulx`:           "expected a value",
		`{"a" 1}`:        "a colon",
		strings.Repeat("[", domain.MaxJSONDepth+1) + strings.Repeat("]", domain.MaxJSONDepth+1): "nested",
	} {
		err := domain.CheckJSON([]byte(text))
		if err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("CheckJSON(%.40q) = %v, want an error with %q", text, err, reason)
		}
	}
}

func TestCheckJSONAcceptsWhatTheLogCanStore(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		` null `, `true`, `-0`, `0.5e-3`, `123456789012345678901234567890`, `1e308`, `-1.7976931348623157e308`, `4.9406564584124654e-324`, `1e-320`,
		`0e999999`, `0.00E+999999`, strings.Repeat("7", 78), "[" + strings.Repeat("1e300,", 6800) + "1]",
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

// A text that was cut off says so, wherever that was.
func TestCheckJSONReportsTruncation(t *testing.T) {
	t.Parallel()
	const whole = `{"type":"A","data":[{"n":-1.5e+10,"t":"é\u00e9\ud83d\ude00\n"},true,false,null,{}],"x":{"":[]}}`
	if err := domain.CheckJSON([]byte(whole)); err != nil {
		t.Fatal(err)
	}
	for end := 1; end < len(whole); end++ {
		err := domain.CheckJSON([]byte(whole[:end]))
		if err == nil || !strings.Contains(err.Error(), "ends in the middle of") {
			t.Errorf("CheckJSON(%q) = %v, want that it is cut off", whole[:end], err)
		}
	}
}

func TestStoredJSONMayHaveLongNumbers(t *testing.T) {
	t.Parallel()
	scan := domain.NewStoredJSONScanner([]byte(`[1` + strings.Repeat("0", 5000) + `]`))
	if _, err := scan.Value(); err != nil {
		t.Error(err)
	}
	if err := scan.End(); err != nil {
		t.Error(err)
	}
}

func BenchmarkCheckJSON(b *testing.B) {
	text := []byte(`{"order":"o-123","total":129.95,"lines":[{"sku":"a-1","quantity":2,"price":1.5e1},{"sku":"b-2","quantity":1,"price":99.95}],"note":"ready"}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if err := domain.CheckJSON(text); err != nil {
			b.Fatal(err)
		}
	}
}
