package bench

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/manifold-es/manifold/domain"
)

// sales generates events like those of a shop, each with some 200 to 300 bytes of data. Each goroutine needs its own.
type sales struct {
	random *rand.Rand
	rare   int // in a preloaded log, one event in this many is of rareType; 0: none
	front  int // in a preloaded log, this many events of slowStream come first
}

const rareType = "OrderDisputed"

func newSales(seed int) *sales {
	return &sales{random: rand.New(rand.NewPCG(uint64(seed), 20))}
}

var eventTypes = [...]string{"OrderPlaced", "ItemAdded", "ItemAdded", "ItemAdded", "AddressGiven", "PaymentReceived", "OrderShipped"}

var cities = [...]string{"Utrecht", "Lisbon", "Gdansk", "Nagoya", "Valparaiso", "Tromso"}

// kind returns the type of a stream's event with that version.
func kind(version int64) string { return eventTypes[(version-1)%int64(len(eventTypes))] }

// data appends an event's data to b.
func (s *sales) data(b []byte) []byte {
	r := s.random
	return fmt.Appendf(b, `{"customer":"customer-%06d","sku":"SKU-%05d","quantity":%d,"price":%d.%02d,"currency":"EUR",`+
		`"address":{"street":"%d Harbour Road","city":"%s","postcode":"%04d"},"channel":"web","campaign":"spring-%d","note":"%016x%016x"}`,
		r.IntN(1_000_000), r.IntN(100_000), 1+r.IntN(5), 1+r.IntN(500), r.IntN(100),
		1+r.IntN(200), cities[r.IntN(len(cities))], r.IntN(10_000), r.IntN(30), r.Uint64(), r.Uint64())
}

// streamLength is the usual length of a client's streams.
const streamLength = 100

// cursor is the stream to which a client appends. After length events (0: never) it moves to the next stream.
type cursor struct {
	name    string
	prefix  string
	length  int64
	version int64
	streams int
}

// newCursor returns the cursor of a client. No two clients of a benchmark have the same streams.
func newCursor(run, client, length int) *cursor {
	return &cursor{prefix: "order-" + strconv.Itoa(run) + "." + strconv.Itoa(client) + ".", length: int64(length)}
}

// advance returns the stream and version for the next n events.
func (c *cursor) advance(n int) (stream string, version int64) {
	if c.name == "" || c.length > 0 && c.version >= c.length {
		c.streams++
		c.name, c.version = c.prefix+strconv.Itoa(c.streams), 0
	}
	version = c.version
	c.version += int64(n)
	return c.name, version
}

// request returns a client's next append.
func (c *cursor) request(s *sales, batch int) domain.Append {
	stream, version := c.advance(batch)
	events := make([]domain.NewEvent, batch)
	for i := range events {
		events[i] = domain.NewEvent{ID: domain.NewEventID(), Type: kind(version + int64(i) + 1), Data: s.data(make([]byte, 0, 320))}
	}
	return domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: domain.Expected(version), Events: events}}}
}
