package proof

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind says what a receipt is for.
type Kind string

const (
	Expired Kind = "expired" // retention has removed the events
	Erased  Kind = "erased"  // the content was erased, and its salt
)

// Receipt names events that were removed or erased on purpose. The service signs it when it does that.
type Receipt struct {
	Origin    string // of the log, as in checkpoints
	Kind      Kind
	Cause     string    // what asked for it: a category's policy, or an erasure
	At        time.Time // when the last of the events was removed or erased
	Positions []int64   // in ascending order
}

const receiptTitle = "manifold receipt v1"

// Text returns the receipt as six lines, ready to be signed.
func (r Receipt) Text() string {
	return fmt.Sprintf("%s\n%s\n%s\n%s\n%s\n%s\n",
		r.Origin, receiptTitle, r.Kind, r.Cause, r.At.UTC().Format(time.RFC3339), formatPositions(r.Positions))
}

// ParseReceipt parses the text of a receipt.
func ParseReceipt(text string) (r Receipt, err error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 7 || lines[1] != receiptTitle {
		return r, fmt.Errorf("it is not a receipt: the second line must be %q", receiptTitle)
	}
	r.Origin, r.Kind, r.Cause = lines[0], Kind(lines[2]), lines[3]
	if r.At, err = time.Parse(time.RFC3339, lines[4]); err != nil {
		return r, fmt.Errorf("read the time of a receipt: %w", err)
	}
	r.Positions, err = parsePositions(lines[5])
	return r, err
}

// formatPositions writes positions as numbers and ranges, such as 1-3 7.
func formatPositions(positions []int64) string {
	var b []byte
	for i := 0; i < len(positions); {
		end := i
		for end+1 < len(positions) && positions[end+1] == positions[end]+1 {
			end++
		}
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, positions[i], 10)
		if end > i {
			b = strconv.AppendInt(append(b, '-'), positions[end], 10)
		}
		i = end + 1
	}
	return string(b)
}

// maxPositions limits what a receipt can make a reader allocate.
const maxPositions = 1 << 20

func parsePositions(text string) (positions []int64, err error) {
	for word := range strings.FieldsSeq(text) {
		first, last, isRange := strings.Cut(word, "-")
		from, err := strconv.ParseInt(first, 10, 64)
		to := from
		if err == nil && isRange {
			to, err = strconv.ParseInt(last, 10, 64)
		}
		if err != nil || from < 1 || to < from || to-from >= maxPositions-int64(len(positions)) {
			return nil, fmt.Errorf("read the positions of a receipt: %.40q is not a position or range", word)
		}
		for p := from; p <= to; p++ {
			positions = append(positions, p)
		}
	}
	if !slices.IsSorted(positions) {
		return nil, fmt.Errorf("read the positions of a receipt: they are not in order")
	}
	return positions, nil
}
