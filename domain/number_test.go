package domain_test

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

func TestCanonicalNumbers(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"a": 1.0, "b": [1e2, -0, 0.50], "1.0": "1.0 \" 2.0"}`: `{"a": 1, "b": [100, 0, 0.5], "1.0": "1.0 \" 2.0"}`,
		`[18446744073709551615]`:                                `[18446744073709552000]`,
		`0.1000000000000000055511151231257827`:                  `0.1`,
		`[1e-7,1E+21,0.0000001,1e400,123456789012345678]`:       `[1e-07,1e+21,1e-07,1.7976931348623157e+308,123456789012345678]`,
		`"\\"`: `"\\"`,
		`"1.0`: `"1.0`, // what is no JSON is left alone
		`1.`:   `1.`,
		`--1`:  `--1`,
		`01`:   `01`,
		``:     ``,
	} {
		if got := domain.CanonicalNumbers(json.RawMessage(text)); string(got) != want {
			t.Errorf("%s becomes %s; want %s", text, got, want)
		}
	}
}

// Every number comes out as Scalar.JSON writes it, whatever stands around it; and what is in that form already is not
// copied.
func TestCanonicalNumbersWritesWhatScalarsWrite(t *testing.T) {
	t.Parallel()
	numbers := rapid.OneOf(numberTexts(), rapid.StringMatching(`-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,16})?`), rapid.StringMatching(`-?0\.0{0,8}[0-9]{1,9}`))
	rapid.Check(t, func(t *rapid.T) {
		drawn := rapid.SliceOfN(numbers, 1, 5).Draw(t, "numbers")
		written, want := make([]string, len(drawn)), make([]string, len(drawn))
		for i, number := range drawn {
			if !json.Valid([]byte(number)) {
				t.Skip("not JSON")
			}
			written[i] = number
			want[i] = domain.ParseNumber(number).JSON()
		}
		around := func(list []string) string {
			return `{"1.0\\": [` + strings.Join(list, ` ,"-0\"1e5", `) + `], "ä":` + list[0] + `}`
		}
		got := domain.CanonicalNumbers(json.RawMessage(around(written)))
		if string(got) != around(want) {
			t.Fatalf("%s becomes %s; want %s", around(written), got, around(want))
		}
		if again := domain.CanonicalNumbers(got); &again[0] != &got[0] {
			t.Fatalf("%s was copied", got)
		}
	})
}

func FuzzCanonicalNumbers(f *testing.F) {
	for _, text := range []string{`{"a": [1.0, "1.0", -0]}`, `1e5`, `"\"1.0`, `-`, `[1.5e-3,2]`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got := domain.CanonicalNumbers(append(json.RawMessage(nil), text...))
		if json.Valid(text) != json.Valid(got) {
			t.Fatalf("%q becomes %q", text, got)
		}
		if again := domain.CanonicalNumbers(got); string(again) != string(got) {
			t.Fatalf("%q becomes %q, and that %q", text, got, again)
		}
	})
}

// What most documents cost: nothing is changed, nothing allocated.
func BenchmarkCanonicalNumbers(b *testing.B) {
	text := json.RawMessage(`{"status": "placed", "customer": "c-77", "total": 104.5, "items": ["SKU-7", "SKU-9", "SKU-2"], "lines": [{"sku": "SKU-7", "qty": 3, "price": 12.35}, {"sku": "SKU-9", "qty": 1, "price": 67.45}]}`)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		domain.CanonicalNumbers(text)
	}
}
