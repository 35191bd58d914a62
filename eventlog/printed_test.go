package eventlog_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/embedded/pgtest"
	"github.com/manifold-es/manifold/migrations"
)

// drawNumber draws a JSON number that is often near the bounds, and often beyond.
func drawNumber(t *rapid.T) string {
	digits := rapid.Custom(func(t *rapid.T) string {
		return strings.Repeat(rapid.SampledFrom([]string{"0", "1", "9", "10", "00", "7"}).Draw(t, "digit"),
			rapid.SampledFrom([]int{1, 1, 1, 2, 17, 78, 154, 155, 309, 310, 340, 341}).Draw(t, "count"))
	})
	number := rapid.SampledFrom([]string{"", "-"}).Draw(t, "sign")
	if whole := strings.TrimLeft(digits.Draw(t, "whole"), "0"); whole == "" {
		number += "0"
	} else {
		number += whole
	}
	if rapid.Bool().Draw(t, "has a fraction") {
		number += "." + digits.Draw(t, "fraction")
	}
	if rapid.Bool().Draw(t, "has an exponent") {
		number += rapid.SampledFrom([]string{"e", "E", "e+", "e-", "E-", "e-0", "e00000"}).Draw(t, "e")
		number += fmt.Sprint(rapid.SampledFrom([]int{0, 1, 17, 291, 292, 307, 308, 309, 323, 324, 340, 341, 16383, 131071, 999_999, 1_000_000, 2_000_000_000}).Draw(t, "exponent"))
	}
	return number
}

// drawText draws a JSON text of values that JSONB prints longer, or shorter, than they were sent.
func drawText(t *rapid.T, depth int) string {
	switch kind := rapid.IntRange(0, 6).Draw(t, "kind"); {
	case kind == 0:
		return rapid.SampledFrom([]string{`"\u0001\u001f\b\f"`, `"é\u00e9\ud83d\ude00\/\""`, `""`, "true", "null", " false "}).Draw(t, "scalar")
	case kind <= 3 || depth == 0:
		return drawNumber(t)
	case kind == 4:
		// Many of one kind.
		return "[" + strings.TrimSuffix(strings.Repeat(drawText(t, 0)+",", rapid.SampledFrom([]int{1, 10, 6000, 7000, 9000}).Draw(t, "times")), ",") + "]"
	case kind == 5:
		var items []string
		for range rapid.IntRange(0, 4).Draw(t, "items") {
			items = append(items, drawText(t, depth-1))
		}
		return "[" + strings.Join(items, ",") + "]"
	default:
		var members []string
		for i := range rapid.IntRange(0, 4).Draw(t, "members") {
			members = append(members, fmt.Sprintf(`"%d\u0001":%s`, i, drawText(t, depth-1)))
		}
		return "{" + strings.Join(members, ",") + "}"
	}
}

// Whatever CheckJSON takes, PostgreSQL takes too, and prints no longer than it says.
func TestWhatIsTakenIsPrintedWithinItsBound(t *testing.T) {
	t.Parallel()
	db := pgtest.Database(t)
	printed := printer(t, db.Pool(t, migrations.RoleApp, 1))
	hold := func(t rapid.TB, text string) bool {
		if domain.CheckJSON([]byte(text)) != nil {
			return false
		}
		most := max(domain.MaxPrintedBytes, 2*len(text))
		if got := printed(t, text); got > most {
			t.Fatalf("%d bytes, %.200s, are printed as %d; at most %d were promised", len(text), text, got, most)
		}
		return true
	}
	for _, number := range []string{"1.7976931348623157e308", "4.9406564584124654e-324", "5e-324", "0e999999", "-0.0e5", "0e-340", strings.Repeat("9", 309), "9223372036854775807", strings.Repeat("7", 78)} {
		growth := domain.NumberGrowth([]byte(number))
		if !hold(t, number) {
			t.Errorf("%s is refused", number)
		} else if got := printed(t, number); got > len(number)+growth {
			t.Errorf("%s is printed in %d bytes; %d were foreseen", number, got, len(number)+growth)
		}
	}
	taken := 0
	rapid.Check(t, func(t *rapid.T) {
		if hold(t, drawText(t, 3)) {
			taken++
		}
	})
	if taken < 20 {
		t.Errorf("only %d of the texts were taken: nothing was tested", taken)
	}
}

// printer returns how many bytes a text has when PostgreSQL's JSONB prints it.
func printer(t *testing.T, pool *pgxpool.Pool) func(t rapid.TB, text string) int {
	ctx := t.Context()
	return func(t rapid.TB, text string) (length int) {
		err := pool.QueryRow(ctx, "select octet_length($1::text::jsonb::text)", text).Scan(&length)
		if err != nil {
			t.Fatalf("%d bytes, %.200s, pass the check, and PostgreSQL does not take them: %v", len(text), text, err)
		}
		return length
	}
}
