package sqlserver

import (
	"bytes"
	"database/sql"
	"strings"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/drivers"
)

// Whatever equals a constant was saved in the partition that the query uses.
func TestPartitionsOfEqualValues(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", domain.MaxOrderedCharacters+1)
	for _, equal := range []struct {
		value  domain.Scalar
		saved  []string
		others []string
	}{
		{text("a"), []string{`"a"`, `"\u0061"`}, []string{`"A"`, `"a "`, `["a"]`, `null`}},
		{whole(1), []string{`1`, `1.0`, `10e-1`}, []string{`"1"`, `2`, `true`}},
		{whole(1 << 62), []string{`4611686018427387904`, `4611686018427387904.0`}, []string{`4611686018427387905`}},
		{double(0.5), []string{`0.5`, `5e-1`, `0.50`}, []string{`0.25`}},
		{boolean(true), []string{`true`}, []string{`false`, `"true"`}},
		{domain.Scalar{}, []string{`null`}, []string{`0`, `""`}},
		{text(long), []string{`"` + long + `"`}, []string{`"x"`}},
	} {
		q := newQuery(partitioned(), tenant)
		if q.partition(domain.Path{"customer"}, equal.value) != "" || q.partition(domain.Path{"customer.id"}, equal.value) != "" {
			t.Error("another path is taken for the partition's")
		}
		condition := q.partition(domain.Path{"customer", "id"}, equal.value)
		param, ok := q.args[len(q.args)-1].(sql.NamedArg)
		if !ok || !strings.Contains(condition, "@"+param.Name+",") {
			t.Fatalf("the condition %s has no parameter", condition)
		}
		saved := func(value string) mssql.VarCharMax {
			batch := drivers.Batch{To: 1, Upserts: []domain.Document{{ID: "a", Version: 1, Data: []byte(`{"customer": {"id": ` + value + `}}`)}}}
			rows := rowsOf(t, batch, partitioned())
			if len(rows.upserts[0].partition) != partitionBytes || !bytes.Contains([]byte(encodeRows(rows.upserts)), []byte(hexadecimal(rows.upserts[0].partition))) {
				t.Fatalf("the partition %x is not sent", rows.upserts[0].partition)
			}
			return hexadecimal(rows.upserts[0].partition)
		}
		for _, value := range equal.saved {
			if saved(value) != param.Value {
				t.Errorf("%.40s is saved in the partition %s, and asked for in %s", value, saved(value), param.Value)
			}
		}
		for _, value := range equal.others {
			if saved(value) == param.Value {
				t.Errorf("%.40s is saved in the partition of %.40s", value, equal.value.JSON())
			}
		}
	}
}

func TestColumnsAreKnownByTheirNames(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"customer.id", "Key a", "partition b", "é.\U0001f600"} {
		name, ok := partitionName(path)
		key, _ := keyName(path)
		found := parseColumns([]string{key, name})
		if !ok || found.partition != path || len(found.keys) != 1 || found.keys[0] != path {
			t.Errorf("the columns %q and %q are taken for %+v", key, name, found)
		}
	}
	if _, ok := partitionName(strings.Repeat("x", maxName)); ok {
		t.Error("a name is too long, and is not said to be")
	}
}
