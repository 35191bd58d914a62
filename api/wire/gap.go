package wire

import (
	"strconv"

	"github.com/manifold-es/manifold/domain"
)

// AppendGap appends {"from":f,"to":t,"categories":[...]}. Categories are plain ASCII.
func AppendGap(b []byte, gap *domain.Gap) []byte {
	b = append(b, `{"from":`...)
	b = strconv.AppendInt(b, gap.From, 10)
	b = AppendNumber(b, "to", gap.To)
	b = append(b, `,"categories":[`...)
	for i, category := range gap.Categories {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), category...), '"')
	}
	return append(b, "]}"...)
}
