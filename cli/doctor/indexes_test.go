package doctor

import (
	"strings"
	"testing"
)

func TestDoctorOfBloatedIndexes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		bytes, events int64
		want          Verdict
		says          string
	}{
		{0, 0, Fine, "0 MB"},
		{1 << 30, 99_999, Fine, "1024 MB"},
		{35_000_000, 100_000, Fine, "350 bytes per event, 33 MB"},
		{70_000_000, 100_000, Warning, "700 bytes per event, 66 MB"},
	} {
		d := &doctor{}
		d.bloat(c.bytes, c.events)
		if f := found(t, d.findings, indexesCheck); f.Verdict != c.want || !strings.Contains(f.Message, c.says) || (f.Todo == "") != (c.want == Fine) {
			t.Errorf("of %d bytes for %d events it says %+v", c.bytes, c.events, f)
		}
	}
}
