package bench

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/manifold-es/manifold/domain"
)

// sales makes events like those of a shop, of some 200 to 300 bytes of data each. One is used by one goroutine.
type sales struct {
	random *rand.Rand
	rare   int // when a log is filled in, one event in so many is of rareType; 0: none
	front  int // when a log is filled in, so many events of slowStream come first
}

const rareType = "OrderDisputed"

func newSales(seed int) *sales {
	return &sales{random: rand.New(rand.NewPCG(uint64(seed), 20))}
}

var eventTypes = [...]string{"OrderPlaced", "ItemAdded", "ItemAdded", "ItemAdded", "AddressGiven", "PaymentReceived", "OrderShipped"}

var cities = [...]string{"Utrecht", "Lisbon", "Gdansk", "Nagoya", "Valparaiso", "Tromso"}

// kind returns the type of a stream's event of that version.
func kind(version int64) string { return eventTypes[(version-1)%int64(len(eventTypes))] }

// data appends an event's data to b.
func (s *sales) data(b []byte) []byte {
	r := s.random
	return fmt.Appendf(b, `{"customer":"customer-%06d","sku":"SKU-%05d","quantity":%d,"price":%d.%02d,"currency":"EUR",`+
		`"address":{"street":"%d Harbour Road","city":"%s","postcode":"%04d"},"channel":"web","campaign":"spring-%d","note":"%016x%016x"}`,
		r.IntN(1_000_000), r.IntN(100_000), 1+r.IntN(5), 1+r.IntN(500), r.IntN(100),
		1+r.IntN(200), cities[r.IntN(len(cities))], r.IntN(10_000), r.IntN(30), r.Uint64(), r.Uint64())
}

// cursor is the stream that a client appends to: after length events (0: never) it goes on to the next one.
type cursor struct {
	name    string
	prefix  string
	length  int64
	version int64
	streams int
}

// newCursor returns the cursor of a client; no two clients of a benchmark have the same streams.
func newCursor(run, client, length int) *cursor {
	return &cursor{prefix: "order-" + strconv.Itoa(run) + "." + strconv.Itoa(client) + ".", length: int64(length)}
}

// advance returns the stream and its version for the next n events.
func (c *cursor) advance(n int) (stream string, version int64) {
	if c.name == "" || c.length > 0 && c.version >= c.length {
		c.streams++
		c.name, c.version = c.prefix+strconv.Itoa(c.streams), 0
	}
	version = c.version
	c.version += int64(n)
	return c.name, version
}

// request makes the next append of a client.
func (c *cursor) request(s *sales, batch int) domain.Append {
	stream, version := c.advance(batch)
	events := make([]domain.NewEvent, batch)
	for i := range events {
		events[i] = domain.NewEvent{ID: domain.NewEventID(), Type: kind(version + int64(i) + 1), Data: s.data(make([]byte, 0, 320))}
	}
	return domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: domain.Expected(version), Events: events}}}
}
