package wire

import (
	"strconv"

	"github.com/manifold-es/manifold/domain"
)

// maxAttempts is the number of attempts that one request may answer.
const maxAttempts = 1000

var (
	attemptsFields = []string{"ids"}
	attemptFields  = []string{"id", "attempt"}
)

// DecodeAttempts decodes the body of an acknowledgement: {"ids": [{"id": "0190d3a4-...", "attempt": 1}]}.
func DecodeAttempts(text []byte) ([]domain.Attempt, error) {
	d := bodyReader{text: text, scan: domain.NewJSONScanner(text)}
	var attempts []domain.Attempt
	given, _, err := d.readObject(attemptsFields, func(string) (err error) {
		attempts, err = d.readAttempts("ids")
		return err
	})
	if err == nil {
		err = d.scan.End()
	}
	if err == nil && given.missing(attemptsFields) != "" {
		err = domain.Errorf(domain.CodeInvalidRequest, "ids", "required field missing: ids")
	}
	return attempts, d.withPlace("body", err)
}

// readAttempts reads the array of a field.
func (d *bodyReader) readAttempts(field string) ([]domain.Attempt, error) {
	var attempts []domain.Attempt
	wrongNumber := domain.Errorf(domain.CodeInvalidRequest, field, "it must have 1 to %d elements", maxAttempts)
	err := d.scan.Array(func(i int) error {
		if i == maxAttempts {
			return wrongNumber
		}
		attempt, at, err := d.readAttempt()
		if err != nil {
			return d.withPlace(place(field+"["+strconv.Itoa(i)+"]", at), err)
		}
		attempts = append(attempts, attempt)
		return nil
	})
	if err == nil && len(attempts) == 0 {
		err = wrongNumber
	}
	return attempts, d.withPlace(field, err)
}

// readAttempt reads an event's id and attempt. If it fails, at is the field that it was reading, or empty.
func (d *bodyReader) readAttempt() (attempt domain.Attempt, at string, err error) {
	given, at, err := d.readObject(attemptFields, func(name string) (err error) {
		switch name {
		case "id":
			attempt.EventID, err = d.readID()
		case "attempt":
			attempt.Attempt, err = d.readAttemptNumber()
		}
		return err
	})
	if err == nil {
		if name := given.missing(attemptFields); name != "" {
			err = domain.Errorf(domain.CodeInvalidRequest, "", "required field missing: %s", name)
		}
	}
	return attempt, at, err
}

// readAttemptNumber reads a whole number from 1, written with digits only.
func (d *bodyReader) readAttemptNumber() (int, error) {
	raw, err := d.scan.Value()
	if err != nil {
		return 0, err
	}
	number, err := strconv.Atoi(string(raw))
	if err != nil {
		return 0, domain.Errorf(domain.CodeInvalidRequest, "", "it must be a whole number")
	}
	if number < 1 {
		return 0, domain.Errorf(domain.CodeInvalidRequest, "", "it must be at least 1")
	}
	return number, nil
}

// AppendAnswers appends the answer to an acknowledgement: the outcome of each attempt.
func AppendAnswers(b []byte, attempts []domain.Attempt, outcomes []domain.Outcome) []byte {
	b = append(b, `{"results":[`...)
	for i, outcome := range outcomes {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendAnswer(b, attempts[i], outcome)
	}
	return append(b, "]}\n"...)
}

func appendAnswer(b []byte, attempt domain.Attempt, outcome domain.Outcome) []byte {
	b = append(b, `{"id":"`...)
	b = attempt.EventID.Append(b)
	b = append(b, `","attempt":`...)
	b = strconv.AppendInt(b, int64(attempt.Attempt), 10)
	b = append(b, `,"outcome":"`...)
	b = append(b, outcome...) // contains nothing to escape
	return append(b, `"}`...)
}
