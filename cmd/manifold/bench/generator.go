package bench

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// generator makes the events of a client: those of a shop, each with some 200 to 300 bytes of data. Each goroutine
// needs its own.
type generator struct {
	random *rand.Rand
	// The stream to which the client appends. After length events (0: never) it moves to the next stream.
	stream, prefix  string
	version, length int64
	streams         int

	tagged, conditional bool  // tag events with their streams; append on a condition instead of expecting versions
	position            int64 // of the last append
}

// streamLength is the usual length of a client's streams.
const streamLength = 100

// newGenerator returns the generator of a client. No two clients of a benchmark have the same streams.
func newGenerator(client, length int) *generator {
	return &generator{
		random: rand.New(rand.NewPCG(uint64(client), 20)),
		prefix: fmt.Sprintf("order-%d.%d.", os.Getpid(), client), length: int64(length),
	}
}

// next returns the stream and its version for the next n events.
func (g *generator) next(n int) (stream string, version int64) {
	if g.stream == "" || g.length > 0 && g.version >= g.length {
		g.streams++
		g.stream, g.version = g.prefix+strconv.Itoa(g.streams), 0
	}
	version = g.version
	g.version += int64(n)
	return g.stream, version
}

var eventTypes = [...]string{"OrderPlaced", "ItemAdded", "ItemAdded", "ItemAdded", "AddressGiven", "PaymentReceived", "OrderShipped"}

var cities = [...]string{"Utrecht", "Lisbon", "Gdansk", "Nagoya", "Valparaiso", "Tromso"}

// eventType returns the type of a stream's event with that version.
func eventType(version int64) string { return eventTypes[(version-1)%int64(len(eventTypes))] }

// data appends an event's data to b.
func (g *generator) data(b []byte) []byte {
	r := g.random
	return fmt.Appendf(b, `{"customer":"customer-%06d","sku":"SKU-%05d","quantity":%d,"price":%d.%02d,"currency":"EUR",`+
		`"address":{"street":"%d Harbour Road","city":"%s","postcode":"%04d"},"channel":"web","campaign":"spring-%d","note":"%016x%016x"}`,
		r.IntN(1_000_000), r.IntN(100_000), 1+r.IntN(5), 1+r.IntN(500), r.IntN(100),
		1+r.IntN(200), cities[r.IntN(len(cities))], r.IntN(10_000), r.IntN(30), r.Uint64(), r.Uint64())
}

// append returns the client's next append for a log in this process.
func (g *generator) append(batch int) domain.Append {
	stream, version := g.next(batch)
	events := make([]domain.NewEvent, batch)
	for i := range events {
		events[i] = domain.NewEvent{ID: domain.NewEventID(), Type: eventType(version + int64(i) + 1), Data: g.data(make([]byte, 0, 320))}
	}
	a := domain.Append{Streams: []domain.StreamAppend{{Stream: stream, Expected: domain.Expected(version), Events: events}}}
	if !g.tagged {
		return a
	}
	tags := []string{"stream:" + stream}
	for i := range events {
		events[i].Tags = tags
	}
	if g.conditional {
		after := g.position
		if version == 0 {
			after = 0
		}
		a.Streams[0].Expected = domain.Any
		a.Conditions = []domain.Condition{{FailIfEventsMatch: domain.Query{{Tags: tags}}, After: after}}
	}
	return a
}

// sender sends a client's events over HTTP.
type sender struct {
	*wire
	*generator
	batch int
	body  []byte
}

func newSender(w *wire, client, length, batch int) *sender {
	return &sender{wire: w, generator: newGenerator(client, length), batch: batch}
}

// appended is an append that was acknowledged.
type appended struct {
	stream   string
	position int64
}

// append appends the next batch.
func (s *sender) append() (appended, error) { return s.post(nil) }

// sentField is the field in the data of stamped events, in nanoseconds since 1970.
const sentField = `"sent":`

// appendStamped appends the next batch, whose events say when they were sent.
func (s *sender) appendStamped(now time.Time) (appended, error) {
	return s.post(fmt.Appendf(nil, "%s%d,", sentField, now.UnixNano()))
}

func (s *sender) post(stamp []byte) (appended, error) {
	stream, version := s.next(s.batch)
	body := s.events(version, "", "data", stamp)
	headers := "Expected-Version: " + strconv.FormatInt(version, 10) + "\r\n"
	answer, err := s.do("POST", "/v1/streams/"+stream+"/events", headers, body, http.StatusCreated)
	if err != nil {
		return appended{}, err
	}
	position, ok := numberIn(answer, `"position":`)
	if !ok {
		return appended{}, fmt.Errorf("the answer to an append has no position: %s", answer)
	}
	return appended{stream, position}, nil
}

// publish publishes the next batch as messages.
func (s *sender) publish() error {
	stream, version := s.next(s.batch)
	topic := fmt.Sprintf(`"topic":%q,"key":%q,`, domain.Category(stream), domain.Key(stream))
	_, err := s.do("POST", "/v1/publish", "", s.events(version, topic, "payload", nil), http.StatusCreated)
	return err
}

// events returns a batch as a JSON array. Each element begins with fields. Its data is in the field dataName and
// begins with stamp, one or more fields each ended by a comma.
func (s *sender) events(version int64, fields, dataName string, stamp []byte) []byte {
	b := append(s.body[:0], '[')
	for i := range s.batch {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{%s"id":"%s","type":"%s",%q:`, fields, domain.NewEventID(), eventType(version+int64(i)+1), dataName)
		begin := len(b)
		b = s.data(b)
		b = append(slices.Insert(b, begin+1, stamp...), '}')
	}
	s.body = append(b, ']')
	return s.body
}
