package bench

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

// These are the bounds of a consumer over the gateway. It may send 200 messages a second, and have 100 events in
// flight.
const (
	gatewayFlight = 100
	gatewayLinger = 10 * time.Millisecond // before fewer than half a batch are acknowledged
	gatewayLook   = time.Second           // between two checks for the end of the run
)

// gatewayConsumer is one gateway connection that consumes a group. Only one goroutine may use it.
type gatewayConsumer struct {
	socket *follower
	check  *groupCheck
	batch  int // events acknowledged together

	acks    []byte
	frame   []byte
	pending int // events in acks
	events  []settled
	waiting []acknowledging // in the order in which they were sent
}

// acknowledging is an ACK that is not answered yet.
type acknowledging struct {
	events, measured int
	sent             time.Time
}

// consumeOverGateway upgrades a connection to the gateway, and subscribes it to the group.
func (s *service) consumeOverGateway(w *wire, batch int, check *groupCheck) (*gatewayConsumer, error) {
	err := w.send("GET", "/v1/ws", upgradeHeaders, nil)
	status, length := 0, 0
	if err == nil {
		status, length, err = w.header()
	}
	if err == nil && status != 101 {
		answer := make([]byte, max(length, 0))
		_, err = io.ReadFull(w.in, answer)
		err = want(status, 101, answer, err)
	}
	if err != nil {
		return nil, fmt.Errorf("open the gateway: %w", err)
	}
	c := &gatewayConsumer{
		socket: &follower{wire: w, in: bufio.NewReaderSize(w.in, mostFrame)}, check: check, batch: max(1, min(batch, gatewayFlight)/2),
	}
	return c, c.say([]byte(`{"op":"SUBSCRIBE","id":"s","subscription":"bench","group":"bench"}`))
}

// say sends a message, masked with zeroes.
func (c *gatewayConsumer) say(text []byte) error {
	c.frame = append(c.frame[:0], 0x81)
	switch n := len(text); {
	case n < 126:
		c.frame = append(c.frame, 0x80|byte(n))
	default: // no acknowledgement is as large as 64 KiB
		c.frame = binary.BigEndian.AppendUint16(append(c.frame, 0x80|126), uint16(n))
	}
	c.frame = append(append(c.frame, 0, 0, 0, 0), text...)
	_, err := c.socket.wire.conn.Write(c.frame)
	return err
}

// turn reads a message. If there is none, it acknowledges the events received so far.
func (c *gatewayConsumer) turn() error {
	patience := gatewayLook
	if c.pending > 0 {
		patience = gatewayLinger
	}
	if c.socket.in.Buffered() == 0 && c.socket.wire.in.Buffered() == 0 {
		if err := c.socket.wire.conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
	}
	text, err := c.socket.text()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		if c.pending > 0 {
			return c.acknowledge()
		}
		return c.check.count(0, 0, 0)
	case err != nil:
		return err
	case bytes.HasPrefix(text, []byte(`{"op":"EVENT"`)):
		return c.take(text)
	case bytes.HasPrefix(text, []byte(`{"op":"OK"`)):
		return c.answered(text)
	default:
		return fmt.Errorf("the gateway says %.300s", text)
	}
}

// take records an event, and acknowledges the received events if there are enough.
func (c *gatewayConsumer) take(text []byte) error {
	event, _, found, err := nextDelivery(text)
	if err != nil || !found {
		return errors.Join(err, fmt.Errorf("an event is %.300s", text))
	}
	if err := c.check.take(event.stream, event.position, event.version, event.attempt); err != nil {
		return err
	}
	if event.position == 1 && c.check.front > 0 {
		return nil // the event that is never acknowledged
	}
	if c.pending > 0 {
		c.acks = append(c.acks, ',')
	}
	c.acks = append(append(append(c.acks, `{"id":"`...), event.id...), `","attempt":1}`...)
	c.pending++
	if event.position > c.check.front {
		number, _ := strconv.Atoi(string(bytes.TrimPrefix(event.stream, []byte("order-")))) // take has checked it
		c.events = append(c.events, settled{number, event.version})
	}
	if c.pending >= c.batch {
		return c.acknowledge()
	}
	return nil
}

func (c *gatewayConsumer) acknowledge() error {
	c.check.settle(c.events)
	c.waiting = append(c.waiting, acknowledging{c.pending, len(c.events), time.Now()})
	text := append(append([]byte(`{"op":"ACK","id":"a","subscription":"bench","ids":[`), c.acks...), "]}"...)
	c.acks, c.pending, c.events = c.acks[:0], 0, c.events[:0]
	return c.say(text)
}

// answered records the answer to the oldest ACK.
func (c *gatewayConsumer) answered(text []byte) error {
	if !bytes.Contains(text, []byte(`"results"`)) {
		return nil // the subscription has begun
	}
	if len(c.waiting) == 0 {
		return fmt.Errorf("the gateway answers what was not asked: %.300s", text)
	}
	a := c.waiting[0]
	c.waiting = c.waiting[1:]
	if done := bytes.Count(text, []byte(`"outcome":"done"`)); done != a.events {
		return fmt.Errorf("%d of %d events could be acknowledged: %.400s", done, a.events, text)
	}
	return c.check.count(a.events, a.measured, time.Since(a.sent))
}
