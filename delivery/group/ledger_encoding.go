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
// time. Each event type is written once.
const ledgerVersion = 1

// encode returns the content of the ledger's row.
func (l *ledger) encode() []byte {
	l.tidy()
	size := 64
	types := make(map[string]uint64)
	var names []string
	for _, le := range l.leases {
		size += 48 + len(le.stream)
		if _, known := types[le.eventType]; !known {
			types[le.eventType] = uint64(len(names))
			names = append(names, le.eventType)
			size += 4 + len(le.eventType)
		}
	}
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

	number(int64(len(names)))
	for _, name := range names {
		text(name)
	}
	var epoch, position int64
	if len(l.leases) > 0 {
		epoch = l.leases[0].delivered
	}
	number(epoch)
	number(int64(len(l.leases)))
	for _, le := range l.leases {
		number(le.position - position)
		position = le.position
		b = append(b, le.id[:]...)
		text(le.stream)
		number(le.version)
		b = binary.AppendUvarint(b, types[le.eventType])
		number(int64(le.attempt))
		number(int64(le.base))
		number(int64(le.replays))
		b = binary.AppendVarint(b, le.delivered-epoch)
		if le.deadline == 0 {
			number(0)
		} else {
			number(max(0, le.deadline-le.delivered) + 1)
		}
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

// decode reads the result of encode into a new ledger. It fails on anything that it cannot read.
func (l *ledger) decode(b []byte) error {
	r := &ledgerReader{rest: b}
	version := r.bytes("the version", 1)
	if len(version) == 1 && version[0] != ledgerVersion {
		return fmt.Errorf("a group's ledger was written by another release: its version is %d, and this one reads %d", version[0], ledgerVersion)
	}
	l.readTo = r.number("readTo")
	l.floor, l.highest = r.small("the floor"), r.small("the highest attempt")
	l.owner = domain.GroupMemberID(r.uuid("the owner"))

	types := make([]string, r.count("types", 1))
	for i := range types {
		types[i] = r.text("a type")
	}
	l.decodeLeases(r, types)

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

func (l *ledger) decodeLeases(r *ledgerReader, types []string) {
	epoch := r.number("the epoch")
	count := r.count("leases", 25)
	leases := make([]lease, count)
	l.leases = make([]*lease, 0, count)
	position := int64(0)
	for i := range leases {
		le := &leases[i]
		distance := r.number("a lease's position")
		position += distance
		le.position, le.id = position, domain.EventID(r.uuid("a lease's event"))
		le.stream, le.version = r.text("a lease's stream"), r.number("a lease's version")
		eventType := r.number("a lease's type")
		le.attempt, le.base, le.replays = r.small("a lease's attempt"), r.small("a lease's base"), r.small("a lease's replays")
		le.delivered = epoch + r.signed("a lease's delivery")
		if within := r.number("a lease's deadline"); within > 0 {
			le.deadline = le.delivered + within - 1
		}
		switch {
		case r.err != nil:
			return
		case distance == 0 || position > l.readTo:
			r.fail("lease %d is at position %d, which was not read or is leased twice", i, position)
			return
		case eventType >= int64(len(types)):
			r.fail("lease %d has type %d of %d", i, eventType, len(types))
			return
		case l.leaseOf[le.id] != nil:
			r.fail("event %s is leased twice", le.id)
			return
		}
		le.eventType = types[eventType]
		l.leases = append(l.leases, le)
		l.leaseOf[le.id] = le
	}
}
