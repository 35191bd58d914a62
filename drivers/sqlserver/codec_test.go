package sqlserver

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
	"github.com/manifold-es/manifold/drivers/relational"
)

// drawScalar draws scalars that are close to one another as often as distant ones.
func drawScalar() *rapid.Generator[domain.Scalar] {
	letters := rapid.SampledFrom([]rune{'a', 'b', ' ', '\x01', '\x1f', '\x7f', 'é', '\uffff', '\ufeff', '\U0001f600', '\U0010ffff', '\ud7ff', '\ue000'})
	near := rapid.SampledFrom([]float64{0, 0.1, 1, 9.99, 10, 1 << 53, 1 << 63, 1e21, 1e300, math.MaxFloat64, math.SmallestNonzeroFloat64, 2.2250738585072014e-308})
	return rapid.OneOf(
		rapid.Just(domain.Scalar{}),
		rapid.Map(rapid.Bool(), boolean),
		rapid.Map(rapid.Int64(), whole),
		rapid.Map(rapid.SampledFrom([]int64{0, 1, -1, 9, 10, 99, 100, 1 << 53, 1<<53 + 1, math.MaxInt64, math.MaxInt64 - 1, math.MinInt64}), whole),
		rapid.Map(rapid.Float64Range(-1e9, 1e9), doubleOf),
		rapid.Map(rapid.Float64(), doubleOf),
		rapid.Custom(func(t *rapid.T) domain.Scalar {
			f := near.Draw(t, "near")
			for range rapid.IntRange(0, 2).Draw(t, "steps") {
				f = math.Nextafter(f, rapid.SampledFrom([]float64{0, math.MaxFloat64}).Draw(t, "towards"))
			}
			return doubleOf(f * float64(rapid.SampledFrom([]int{1, -1}).Draw(t, "sign")))
		}),
		rapid.Map(rapid.StringOfN(letters, 0, 4, -1), text),
		rapid.Map(rapid.String(), func(s string) domain.Scalar { return text(strings.ReplaceAll(s, "\x00", "")) }),
	)
}

// doubleOf returns a double as a scalar.
func doubleOf(f float64) domain.Scalar {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		f = 0
	}
	return domain.ParseNumber(double(f).JSON())
}

// padded compares as SQL Server compares binary values.
func padded(a, b []byte) int {
	length := max(len(a), len(b))
	fill := func(x []byte) []byte { return append(slices.Clone(x), make([]byte, length-len(x))...) }
	return bytes.Compare(fill(a), fill(b))
}

func TestSortKeysAreInTheOrderOfScalars(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawScalar().Draw(t, "a"), drawScalar().Draw(t, "b")
		want := a.Compare(b)
		if got := bytes.Compare(sortKey(a), sortKey(b)); got != want {
			t.Fatalf("%q and %q compare as %d, their scalars as %d", sortKey(a), sortKey(b), got, want)
		}
		if got := padded(sortKey(a), sortKey(b)); got != want {
			t.Fatalf("%q and %q compare as %d when they are filled up with zeros, their scalars as %d", sortKey(a), sortKey(b), got, want)
		}
		if slices.Contains(sortKey(a), 0) {
			t.Fatalf("%q has a zero in it", sortKey(a))
		}
	})
}

func TestNumberKeys(t *testing.T) {
	t.Parallel()
	for number, want := range map[string]string{
		"0": "1", "1": "250011", "10": "250021", "0.1": "250001", "0.00123": "24998123", "-1": "049998~", "-12.5": "04998874~",
		"9223372036854775807": "250199223372036854775807", "1e300": "253011", "-5e-324": "053234~", "1.5e-9": "2499215",
	} {
		if got := numberKey(domain.ParseNumber(number)); got != want {
			t.Errorf("the key of %s is %s, want %s", number, got, want)
		}
	}
}

func TestColumnKeysFollowSortKeyOf(t *testing.T) {
	t.Parallel()
	order := []domain.Order{{Path: domain.Path{"a", "b"}}}
	for _, data := range []string{
		`{}`, `{"a": null}`, `{"a": []}`, `{"a": [{"b": 1}]}`, `{"a": {"b": null}}`, `{"a": {"b": {}}}`, `{"a": {"b": []}}`, `{"a": {"b": 1.0}}`,
		`{"a": {"b": "x"}}`, `{"a": {"b": true}}`, `{"a.b": 1}`,
		`{"a": {"b": "` + strings.Repeat("é", domain.MaxOrderedCharacters) + `"}}`, `{"a": {"b": "` + strings.Repeat("\U0001f600", domain.MaxOrderedCharacters) + `"}}`,
		`{"a": {"b": "` + strings.Repeat("x", domain.MaxOrderedCharacters+1) + `"}}`,
	} {
		keys, err := columnKeys([]byte(data), []domain.Path{{"a", "b"}})
		if err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		place, err := domain.SortKeyOf(domain.Document{ID: "x", Data: []byte(data)}, order)
		if err != nil {
			t.Fatal(err)
		}
		want := []byte{kindUnordered}
		if !place.Unordered {
			want = sortKey(place.Values[0])
		}
		if !bytes.Equal(keys[0], want) {
			t.Errorf("%.80s has the key %q, want %q", data, keys[0], want)
		}
		if len(keys[0]) > maxKeyBytes {
			t.Errorf("%.80s has a key of %d bytes", data, len(keys[0]))
		}
	}
}

func TestNormal(t *testing.T) {
	t.Parallel()
	for data, want := range map[string]string{
		" { } ":                         `{}`,
		`[ ]`:                           `[]`,
		`{"a" : [ 1 , 2.50, -0.0 ] }`:   `{"a":[1,2.5,0]}`,
		`{"a": 1, "a": 2}`:              `{"a":2}`,
		`{"a": 1, "b": 2, "\u0061": 3}`: `{"b":2,"\u0061":3}`,
		`{"a": {"x": 1, "x": {"x": 2, "x": 3}}, "b": "\"}{", "a": true}`:                 `{"b":"\"}{","a":true}`,
		`{"a": 1E3, "b": 100000000000000000000000, "c": 1e400, "d": 9007199254740993.0}`: `{"a":1000,"b":1e+23,"c":1e400,"d":9007199254740993}`,
		`{"a": "\\", "b": null, "c": "é\ud83d\ude00"}`:                                   `{"a":"\\","b":null,"c":"é\ud83d\ude00"}`,
	} {
		if got := string(normal([]byte(data))); got != want {
			t.Errorf("%s becomes %s, want %s", data, got, want)
		}
	}
}

// encoding/json reads the same before and after, even with many members and repeated names: it keeps the last one, too.
func TestNormalChangesNoValue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		data := drawJSON(t, 3)
		if err := domain.CheckJSON([]byte(data)); err != nil {
			t.Fatalf("%s: %v", data, err)
		}
		before, after := decode(t, data), decode(t, string(normal([]byte(data))))
		if !reflect.DeepEqual(before, after) {
			t.Fatalf("%s became %s", data, normal([]byte(data)))
		}
		if again := normal(normal([]byte(data))); !bytes.Equal(again, normal([]byte(data))) {
			t.Fatalf("%s changes when it is made normal again: %s", data, again)
		}
	})
}

func drawJSON(t *rapid.T, depth int) string {
	switch kind := rapid.IntRange(0, 5).Draw(t, "kind"); {
	case kind == 0 && depth > 0:
		items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string { return drawJSON(t, depth-1) }), 0, 4).Draw(t, "items")
		return "[" + strings.Join(items, " ,") + "]"
	case kind <= 2 && depth > 0:
		var members []string
		for range rapid.IntRange(0, 40).Draw(t, "members") {
			name := rapid.SampledFrom([]string{`"a"`, `"\u0061"`, `"b"`, `""`, `"\""`, `"\\"`, `"é"`, `"c1"`, `"c2"`, `"c3"`, `"c4"`, `"c5"`, `"c6"`, `"c7"`, `"c8"`, `"c9"`, `"d1"`, `"d2"`, `"d3"`, `"d4"`}).Draw(t, "name")
			members = append(members, name+" : "+drawJSON(t, depth-1))
		}
		return "{ " + strings.Join(members, ",\n") + "}"
	case kind == 3:
		return rapid.SampledFrom([]string{"0", "-0", "1.50", "1e2", "-12E-3", "9223372036854775807", "123456789012345678901234567890", "0.1"}).Draw(t, "number")
	case kind == 4:
		return string(domain.AppendText(nil, strings.ReplaceAll(rapid.String().Draw(t, "text"), "\x00", "")))
	}
	return rapid.SampledFrom([]string{"null", "true", "false", `"\"{[,:]}"`}).Draw(t, "word")
}

// decode reads JSON with numbers as scalars.
func decode(t *rapid.T, data string) any {
	decoder := json.NewDecoder(strings.NewReader(data))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatalf("%s: %v", data, err)
	}
	var scalars func(value any) any
	scalars = func(value any) any {
		switch value := value.(type) {
		case json.Number:
			return domain.ParseNumber(string(value))
		case []any:
			for i := range value {
				value[i] = scalars(value[i])
			}
		case map[string]any:
			for name := range value {
				value[name] = scalars(value[name])
			}
		}
		return value
	}
	return scalars(value)
}

// Every row of a batch is in exactly one part, in its order, and can be read from what is sent to the database.
func TestParts(t *testing.T) {
	t.Parallel()
	type encoded struct {
		Bytes    string `json:"b"`
		ID       string `json:"i"`
		Version  int64  `json:"v"`
		Document string `json:"d"`
		Key      string `json:"k0"`
	}
	rapid.Check(t, func(t *rapid.T) {
		batch := drivers.Batch{To: 10_000}
		id := rapid.SampledFrom([]string{"a", "a ", "é", "\x01", `"\`, "\U0010ffff", "日本"})
		size := rapid.SampledFrom([]int{10, relational.PartBytes})
		large := rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 0, 1}).Draw(t, "large")
		for i := range rapid.SampledFrom([]int{0, 1, 3, relational.PartRows - 1, relational.PartRows, relational.PartRows + 1}).Draw(t, "upserts") {
			length := 3
			if i < large {
				length = size.Draw(t, "size")
			}
			batch.Upserts = append(batch.Upserts, domain.Document{ID: fmt.Sprint(i, id.Draw(t, "id")), Version: int64(i + 1), Data: []byte(`{"a": "` + strings.Repeat("x", length) + `"}`)})
		}
		for i := range rapid.SampledFrom([]int{0, 1, 3, relational.PartRows - 1, relational.PartRows, relational.PartRows + 1}).Draw(t, "deletes") {
			batch.Deletes = append(batch.Deletes, drivers.Deletion{ID: fmt.Sprint("gone", i), Version: int64(i + 1)})
		}
		var upserts, deletes []encoded
		n := 0
		for first, rest := nextPart(batch); n == 0 || len(first.Upserts)+len(first.Deletes) > 0; first, rest = nextPart(rest) {
			part, err := encodePart(first, table{keys: []string{"a"}})
			if err != nil {
				t.Fatal(err)
			}
			n++
			if rows := len(part.upserts) + len(part.deletes); rows > relational.PartRows || rows == 0 && n > 1 {
				t.Fatalf("a part has %d rows", rows)
			}
			for of, rows := range map[*[]encoded][]row{&upserts: part.upserts, &deletes: part.deletes} {
				var read []encoded
				if err := json.Unmarshal([]byte(encodeRows(rows)), &read); err != nil {
					t.Fatal(err)
				}
				*of = append(*of, read...)
			}
		}
		if n == 0 || len(upserts) != len(batch.Upserts) || len(deletes) != len(batch.Deletes) {
			t.Fatalf("%d parts have %d and %d rows, want %d and %d", n, len(upserts), len(deletes), len(batch.Upserts), len(batch.Deletes))
		}
		for i, document := range batch.Upserts {
			got := upserts[i]
			if got.Bytes != hex.EncodeToString([]byte(document.ID)) || got.ID != document.ID || got.Version != document.Version ||
				got.Document != string(normal(document.Data)) || got.Key == "" {
				t.Fatalf("%q became %.200v", document.ID, got)
			}
		}
		for i, deletion := range batch.Deletes {
			if got := deletes[i]; got.Bytes != hex.EncodeToString([]byte(deletion.ID)) || got.Version != deletion.Version {
				t.Fatalf("%q became %v", deletion.ID, got)
			}
		}
	})
}

func TestKeyNamesCanBeReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		path := func(label string) string {
			return rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"status", "Status", "customer.name", "customerName", "a^b", "a%62", "%", "^", "é", "e", "a]b"})).Draw(t, label)
		}
		a, b := path("a"), path("b")
		nameA, ok := keyName(a)
		if pathOfKey(nameA) != a {
			t.Fatalf("%q became %q, which reads as %q", a, nameA, pathOfKey(nameA))
		}
		if ok && len(nameA) > maxName {
			t.Fatalf("%q has %d characters", nameA, len(nameA))
		}
		nameB, _ := keyName(b)
		if strings.EqualFold(nameA, nameB) != (a == b) {
			t.Fatalf("%q and %q became %q and %q", a, b, nameA, nameB)
		}
	})
}

func TestIdentifiers(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"a": "[a]", "order-summary.12": "[order-summary.12]", "a]b": "[a]]b]", "": "[]"} {
		if got := dialect.Quote(name); got != want {
			t.Errorf("%q becomes %s, want %s", name, got, want)
		}
	}
	one, two := dialect.Quote(strings.Repeat("x", 200)+"1"), dialect.Quote(strings.Repeat("x", 200)+"2")
	if one == two || len(one) != maxName+2 {
		t.Errorf("long names become %s and %s", one, two)
	}
	if odd := dialect.Shorten(strings.Repeat("\U0001f600", 100)); utf16Length(odd) > maxName || !utf8.ValidString(odd) {
		t.Errorf("%q has %d units", odd, utf16Length(odd))
	}
	if cmp.Compare(len(dialect.ViewName("documents")), len(tableOf(domain.Build{ProjectionID: domain.ProjectionID{Owner: domain.NewTenantID()}}).name)) == 0 {
		t.Error("the projection named documents has the common table's name")
	}
}
