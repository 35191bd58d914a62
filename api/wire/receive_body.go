package wire

import (
	"math"
	"strconv"

	"github.com/manifold-es/manifold/delivery/group"
	"github.com/manifold-es/manifold/domain"
)

// maxWait is how long a receive may wait, in seconds.
const maxWait = 30

var receiveFields = []string{"batch", "wait", "memberId", "ack"}

// DecodeReceive decodes the body of a receive, which may be empty:
// {"batch": 100, "wait": 20, "ack": [{"id": "0190d3a4-...", "attempt": 1}]}.
func DecodeReceive(text []byte) (wanted group.Receive, err error) {
	if len(text) == 0 {
		return wanted, nil
	}
	d := bodyReader{text: text, scan: domain.NewJSONScanner(text)}
	_, _, err = d.readObject(receiveFields, func(name string) (err error) {
		switch name {
		case "batch":
			var batch float64
			if batch, err = d.readNumber(1, domain.MaxBatchSize); err == nil && batch != math.Trunc(batch) {
				err = domain.Errorf(domain.CodeInvalidRequest, "", "it must be a whole number")
			}
			wanted.Batch = int(batch)
		case "wait":
			var wait float64
			wait, err = d.readNumber(0, maxWait)
			wanted.Wait = Seconds(wait)
		case "memberId":
			var id string
			if id, err = d.readString(""); err == nil {
				if wanted.Member, err = domain.ParseGroupMemberID(id); err != nil {
					err = domain.Errorf(domain.CodeInvalidRequest, "", "%s", err)
				}
			}
		case "ack":
			wanted.Ack, err = d.readAttempts("ack")
		}
		return d.withPlace(name, err)
	})
	if err == nil {
		err = d.scan.End()
	}
	return wanted, d.withPlace("body", err)
}

// readNumber reads a number in an interval.
func (d *bodyReader) readNumber(least, most float64) (float64, error) {
	raw, err := d.scan.Value()
	if err != nil {
		return 0, err
	}
	number, err := strconv.ParseFloat(string(raw), 64)
	switch {
	case err != nil:
		return 0, domain.Errorf(domain.CodeInvalidRequest, "", "it must be a number")
	case number < least || number > most:
		return 0, domain.Errorf(domain.CodeInvalidRequest, "",
			"it is %s; it must be from %g to %g", domain.Clip(string(raw), 40), least, most)
	}
	return number, nil
}
