package totals

import (
	"math/big"
	"strconv"
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// decimal is an exact sum of numbers, digits × 10^-scale. The zero decimal is 0. Doubles count as their shortest
// decimal form, which has its digits between 10^308 and 10^-340, so a decimal has some hundred digits at most.
type decimal struct {
	digits big.Int
	scale  int // at least 0
}

// addNumber adds a number.
func (d *decimal) addNumber(number domain.Scalar) {
	if number.Kind == domain.ScalarInt {
		d.add(big.NewInt(number.Int), 0)
		return
	}
	// The form is -1.25e-07.
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(number.Double, 'e', -1, 64), "e")
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits, _ := new(big.Int).SetString(whole+fraction, 10)
	power, _ := strconv.Atoi(exponent)
	scale := len(fraction) - power
	if scale < 0 {
		digits.Mul(digits, powerOfTen(-scale))
		scale = 0
	}
	d.add(digits, scale)
}

// addDecimal adds another sum.
func (d *decimal) addDecimal(other *decimal) { d.add(new(big.Int).Set(&other.digits), other.scale) }

// add adds digits × 10^-scale. It may change digits.
func (d *decimal) add(digits *big.Int, scale int) {
	switch {
	case scale > d.scale:
		d.digits.Mul(&d.digits, powerOfTen(scale-d.scale))
		d.scale = scale
	case scale < d.scale:
		digits.Mul(digits, powerOfTen(d.scale-scale))
	}
	d.digits.Add(&d.digits, digits)
}

func powerOfTen(n int) *big.Int { return new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil) }

// String returns the sum without an exponent, as PostgreSQL reads it.
func (d *decimal) String() string {
	text := new(big.Int).Abs(&d.digits).String()
	if d.scale > 0 {
		text = strings.Repeat("0", max(0, d.scale+1-len(text))) + text
		text = text[:len(text)-d.scale] + "." + text[len(text)-d.scale:]
	}
	if d.digits.Sign() < 0 {
		text = "-" + text
	}
	return trimZeros(text)
}

// trimZeros removes the zeros at the end of a decimal fraction.
func trimZeros(number string) string {
	if !strings.Contains(number, ".") {
		return number
	}
	return strings.TrimSuffix(strings.TrimRight(number, "0"), ".")
}
