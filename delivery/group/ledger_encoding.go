package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/manifold-es/manifold/domain"
)

// ledgerVersion is the first byte of an encoded ledger. Numbers follow as varints, and each list is preceded by its
// length. Positions are encoded as the distance from the previous one, and times as the distance from the first lease's
// time. Leases that follow one another and differ only in their events are a run, whose terms are written once. Of the
// events only the positions are written, since the log has the rest: see identify.
const ledgerVersion = 2

// ledgerVersion1 wrote the terms of each lease, and the event's id, stream, version and type.
const ledgerVersion1 = 1

// encode returns the content of the ledger's row.
func (l *ledger) encode() []byte {
	l.tidy()
	size := 64 + 2*len(l.leases)
	for stream := range l.behind {
		size += 16 + len(stream)
	}
	b := make([]byte, 0, size+16*len(l.origins))
	number := func(n int64) { b = binary.AppendUvarint(b, uint64(n)) }
	text := func(s string) {
		number(int64(len(s)))
		b = append(b, s...)
	}

	b = append(b, ledgerVersion)
	number(l.readTo)
	number(int64(l.floor))
	number(int64(l.highest))
	b = append(b, l.owner[:]...)

	var epoch, position int64
	if len(l.leases) > 0 {
		epoch = l.leases[0].delivered
	}
	number(epoch)
	number(int64(len(l.leases)))
	for left := l.leases; len(left) > 0; {
		run := 1
		for run < len(left) && left[run].leaseTerms == left[0].leaseTerms {
			run++
		}
		number(int64(run))
		terms := left[0].leaseTerms
		number(int64(terms.attempt))
		number(int64(terms.base))
		number(int64(terms.replays))
		b = binary.AppendVarint(b, terms.delivered-epoch)
		if terms.deadline == 0 {
			number(0)
		} else {
			number(max(0, terms.deadline-terms.delivered) + 1)
		}
		for _, le := range left[:run] {
			number(le.position - position)
			position = le.position
		}
		left = left[run:]
	}

	number(int64(len(l.behind)))
	position = 0
	for _, left := range l.sortedBehind() {
		text(left.stream)
		number(left.version)
		number(left.position - position)
		position = left.position
	}

	number(int64(len(l.origins)))
	for _, at := range slices.Sorted(maps.Keys(l.origins)) {
		number(at)
		b = binary.AppendVarint(b, l.origins[at])
	}
	return b
}

// ledgerReader reads the result of encode. After the first error it returns zeros.
type ledgerReader struct {
	rest []byte
	err  error
}

func (r *ledgerReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("a group's ledger cannot be read: "+format, args...)
		r.rest = nil
	}
}

// maxNumber prevents sums of decoded numbers from overflowing.
const maxNumber = 1 << 61

func (r *ledgerReader) number(what string) int64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 || n > maxNumber {
		r.fail("%s is no number, %d bytes before the end", what, len(r.rest))
		return 0
	}
	r.rest = r.rest[size:]
	return int64(n)
}

func (r *ledgerReader) signed(what string) int64 {
	n, size := binary.Varint(r.rest)
	if size <= 0 || n > maxNumber || n < -maxNumber {
		r.fail("%s is no number, %d bytes before the end", what, len(r.rest))
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// small reads a number that fits an int on every platform.
func (r *ledgerReader) small(what string) int {
	n := r.number(what)
	if n > 1<<31-1 {
		r.fail("%s is %d, which is too large", what, n)
		return 0
	}
	return int(n)
}

// count reads the length of a list whose elements have at least this many bytes.
func (r *ledgerReader) count(what string, least int) int {
	n := r.number(what)
	if n > int64(len(r.rest)/least) {
		r.fail("there are %d %s, but %d bytes", n, what, len(r.rest))
		return 0
	}
	return int(n)
}

func (r *ledgerReader) bytes(what string, n int) []byte {
	if len(r.rest) < n {
		r.fail("%s has %d bytes of %d", what, len(r.rest), n)
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *ledgerReader) text(what string) string {
	return string(r.bytes(what, r.count("bytes of "+what, 1)))
}

func (r *ledgerReader) uuid(what string) (id [16]byte) {
	copy(id[:], r.bytes(what, 16))
	return id
}

// decode reads the result of encode into a new ledger, whose leases must then be identified. It fails on anything that
// it cannot read.
func (l *ledger) decode(b []byte) error {
	r := &ledgerReader{rest: b}
	version := r.bytes("the version", 1)
	if len(version) == 1 && version[0] != ledgerVersion && version[0] != ledgerVersion1 {
		return fmt.Errorf("a group's ledger was written by another release: its version is %d, and this one reads up to %d", version[0], ledgerVersion)
	}
	l.readTo = r.number("readTo")
	l.floor, l.highest = r.small("the floor"), r.small("the highest attempt")
	l.owner = domain.GroupMemberID(r.uuid("the owner"))

	if r.err == nil && version[0] == ledgerVersion1 {
		l.decodeLeases1(r)
	} else {
		l.decodeLeases(r)
	}
	position := int64(0)
	for range r.count("streams behind", 3) {
		left := &leftBehind{stream: r.text("a stream behind"), version: r.number("its version")}
		position += r.number("its position")
		left.position = position
		if l.behind[left.stream] != nil {
			r.fail("the stream %q has a backlog twice", left.stream)
		}
		if position > l.readTo+1 {
			r.fail("the stream %q has a backlog from position %d, which was not read", left.stream, position)
			position = 0
		}
		l.behind[left.stream] = left
	}
	for range r.count("origins", 2) {
		at := r.number("an origin's position")
		l.origins[at] = r.signed("an origin")
	}
	if r.err == nil && len(r.rest) > 0 {
		r.fail("%d bytes are left over", len(r.rest))
	}
	if r.err == nil && l.highest < l.floor {
		return errors.New("a group's ledger cannot be read: its attempts end below their floor")
	}
	return r.err
}

func (l *ledger) decodeLeases(r *ledgerReader) {
	epoch := r.number("the epoch")
	left := r.count("leases", 1)
	l.leases = make([]*lease, 0, left)
	position := int64(0)
	for left > 0 && r.err == nil {
		run := r.count("leases of a run", 1)
		terms := r.terms(epoch)
		if run < 1 || run > left {
			r.fail("there are %d leases, but a run of %d", left, run)
			return
		}
		left -= run
		leases := make([]lease, run)
		for i := range leases {
			position = l.decodePosition(r, position)
			leases[i] = lease{leasedEvent: leasedEvent{position: position}, leaseTerms: terms}
			l.leases = append(l.leases, &leases[i])
		}
	}
}

// decodeLeases1 reads the leases of ledgerVersion1.
func (l *ledger) decodeLeases1(r *ledgerReader) {
	for range r.count("types", 1) {
		r.text("a type")
	}
	epoch := r.number("the epoch")
	position := int64(0)
	for range r.count("leases", 25) {
		position = l.decodePosition(r, position)
		r.uuid("a lease's event")
		r.text("a lease's stream")
		r.number("a lease's version")
		r.number("a lease's type")
		l.leases = append(l.leases, &lease{leasedEvent: leasedEvent{position: position}, leaseTerms: r.terms(epoch)})
	}
}

// decodePosition reads the position of a lease, which is after the previous one.
func (l *ledger) decodePosition(r *ledgerReader, previous int64) int64 {
	distance := r.number("a lease's position")
	position := previous + distance
	if distance == 0 || position > l.readTo {
		r.fail("a lease is at position %d, which was not read or is leased twice", position)
		return 0
	}
	return position
}

func (r *ledgerReader) terms(epoch int64) leaseTerms {
	t := leaseTerms{attempt: r.small("a lease's attempt"), base: r.small("a lease's base"), replays: r.small("a lease's replays")}
	t.delivered = epoch + r.signed("a lease's delivery")
	if within := r.number("a lease's deadline"); within > 0 {
		t.deadline = t.delivered + within - 1
	}
	return t
}
