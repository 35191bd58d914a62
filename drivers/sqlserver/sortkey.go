package sqlserver

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/manifold-es/manifold/domain"
)

// A sort key is a scalar as bytes that compare as domain.Scalar.Compare does. It has two implementations that must
// agree. sortKey is for constants and for the key columns that Save fills; keyExpression, in T-SQL, is for paths
// without such a column. The first byte is the kind:
//
//	0x10                    null, and nothing there
//	0x20 and a number key   a number
//	0x30 and UTF-8          a text
//	0x40, 0x41              false, true
//	0xff                    what cannot be ordered: a list, an object, a text of more than domain.MaxOrderedCharacters
//
// A number key is ASCII. It begins with "0", "1" or "2" for below, at or above zero. Except for zero, four digits of
// 5000 + m follow, and then the decimal digits d of the number 0.d * 10^m, without zeros at either end. For negative
// numbers, everything after the first character is inverted: 5000 - m, each digit's complement to 9, and "~" at the
// end, which is above all digits. So integers beyond 2^53 and doubles compare by their exact values, and the database's
// rounding is not involved.
//
// SQL Server pads the shorter of two binary values with 0x00. No sort key, text or id contains that byte, so the order
// is still that of the bytes.
const (
	kindNull      = 0x10
	kindNumber    = 0x20
	kindText      = 0x30
	kindBool      = 0x40
	kindUnordered = 0xff

	// maxKeyBytes is the longest sort key of a value that can be ordered. With tenant (16), build (8) and the longest
	// id (512) it is below the 1,700 bytes of an index's key.
	maxKeyBytes = 1 + domain.MaxOrderedCharacters*utf8.UTFMax
)

// sortKey returns the sort key of a scalar of any length.
func sortKey(s domain.Scalar) []byte {
	switch {
	case s.Number():
		return append([]byte{kindNumber}, numberKey(s)...)
	case s.Kind == domain.ScalarText:
		return append([]byte{kindText}, s.Text...)
	case s.Kind == domain.ScalarBool && s.Bool:
		return []byte{kindBool + 1}
	case s.Kind == domain.ScalarBool:
		return []byte{kindBool}
	}
	return []byte{kindNull}
}

// columnKey returns what a key column holds for the scalar.
func columnKey(s domain.Scalar) []byte {
	if s.Kind == domain.ScalarText && utf8.RuneCountInString(s.Text) > domain.MaxOrderedCharacters {
		return []byte{kindUnordered}
	}
	return sortKey(s)
}

func numberKey(s domain.Scalar) string {
	var mantissa string
	exponent := 0
	if s.Kind == domain.ScalarInt {
		mantissa = strconv.FormatInt(s.Int, 10)
	} else {
		// The shortest form, d.ddde±dd.
		text := strconv.FormatFloat(s.Double, 'e', -1, 64)
		var power string
		mantissa, power, _ = strings.Cut(text, "e")
		exponent, _ = strconv.Atoi(power) // FormatFloat always writes one
	}
	mantissa, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	magnitude := len(whole) + exponent
	digits := strings.TrimRight(whole+fraction, "0")
	for strings.HasPrefix(digits, "0") {
		digits = digits[1:]
		magnitude--
	}
	switch {
	case digits == "":
		return "1"
	case !negative:
		return fmt.Sprintf("2%04d%s", 5000+magnitude, digits)
	}
	complement := []byte(digits)
	for i := range complement {
		complement[i] = '0' + '9' - complement[i]
	}
	return fmt.Sprintf("0%04d%s~", 5000-magnitude, complement)
}

// columnKeys returns a document's sort keys at the paths.
func columnKeys(data []byte, paths []domain.Path) ([][]byte, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	var members map[string]any
	if err := domain.DecodeJSON(data, &members); err != nil {
		return nil, err
	}
	keys := make([][]byte, len(paths))
	for i, path := range paths {
		keys[i] = []byte{kindUnordered}
		value, _ := path.Value(members)
		if scalar, ok := domain.ScalarOf(value); ok {
			keys[i] = columnKey(scalar)
		}
	}
	return keys, nil
}

// numberExpression returns the number key, with its kind, of an alias's value, such as p1's. It is the column k of a
// row that exists only for numbers. %[1]s is the alias. Each step computes what the next one needs: sign; mantissa and
// exponent; digits without the point; leading zeros; significant digits and the power of ten. The kinds 0x20 and 0x30
// of numbers and texts are written as the characters " " and "0". It reads only so much of an exponent that it cannot
// overflow. A double's exponent has four characters, and the query must not fail on a number that is not a double.
const numberExpression = `(
	select convert(varbinary(400), case
		when d.digits = '' then ' 1'
		when u.negative = 1 then ' 0' + right('000' + convert(varchar(11), 5000 - d.magnitude), 4) + translate(d.digits, '0123456789', '9876543210') + '~'
		else ' 2' + right('000' + convert(varchar(11), 5000 + d.magnitude), 4) + d.digits
	end) as k
	from (select case when %[1]s.type = 2 then convert(varchar(390), %[1]s.value) end as number) as n
	cross apply (select case when left(n.number, 1) = '-' then 1 else 0 end as negative,
		case when left(n.number, 1) = '-' then substring(n.number, 2, 390) else n.number end as number) as u
	cross apply (select left(u.number, charindex('e', u.number + 'e') - 1) as mantissa,
		coalesce(try_convert(int, substring(u.number, charindex('e', u.number + 'e') + 1, 5)), 0) as exponent) as e
	cross apply (select replace(e.mantissa, '.', '') as digits, charindex('.', e.mantissa + '.') - 1 as whole) as m
	cross apply (select patindex('%%[^0]%%', m.digits + 'x') - 1 as zeros) as z
	cross apply (select replace(rtrim(replace(substring(m.digits, z.zeros + 1, 390), '0', ' ')), ' ', '0') as digits,
		m.whole - z.zeros + e.exponent as magnitude) as d
	where n.number is not null
)`

// keyExpression returns the sort key of the value of an alias such as p1, whose number key has an alias such as n1.
const keyExpression = `(
	select case %[1]s.type
		when 1 then case when len(%[1]s.value collate Latin1_General_100_CS_AS_SC + N'.') <= 251 then convert(varbinary(1001), convert(varchar(1001), N'0' + %[1]s.value collate Latin1_General_100_BIN2_UTF8)) else 0xff end
		when 2 then %[2]s.k
		when 3 then case when %[1]s.value = N'true' then 0x41 else 0x40 end
		when 4 then 0xff
		when 5 then 0xff
		else 0x10
	end as k
)`
