package bench

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"os"
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
	socket  *follower
	batch   int // events acknowledged together
	acks    ackBatch
	frame   []byte
	waiting []sentAck // in the order in which they were sent
}

// sentAck is an ACK that is not answered yet.
type sentAck struct {
	events, measured int
	at               time.Time
}

// consumeOverGateway upgrades a connection to the gateway, and subscribes it to the group.
func consumeOverGateway(w *wire, batch int, check *groupCheck) (*gatewayConsumer, error) {
	if err := w.open("/v1/ws", upgradeHeaders, http.StatusSwitchingProtocols); err != nil {
		return nil, fmt.Errorf("open the gateway: %w", err)
	}
	c := &gatewayConsumer{
		socket: &follower{wire: w, in: bufio.NewReaderSize(w.in, mostFrame)}, batch: max(1, min(batch, gatewayFlight)/2), acks: ackBatch{check: check},
	}
	return c, c.send([]byte(`{"op":"SUBSCRIBE","id":"s","subscription":"bench","group":"bench"}`))
}

// send sends a message, masked with zeroes.
func (c *gatewayConsumer) send(text []byte) error {
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
	wait := gatewayLook
	if c.acks.count > 0 {
		wait = gatewayLinger
	}
	if c.socket.in.Buffered() == 0 && c.socket.wire.in.Buffered() == 0 {
		if err := c.socket.wire.conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return err
		}
	}
	text, err := c.socket.text()
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded) && c.acks.count > 0:
		return c.acknowledge()
	case errors.Is(err, os.ErrDeadlineExceeded):
		return c.acks.check.count(0, 0, 0)
	case err != nil:
		return err
	case bytes.HasPrefix(text, []byte(`{"op":"EVENT"`)):
		d, _, found, err := nextDelivery(text)
		if err != nil || !found {
			return errors.Join(err, fmt.Errorf("an event is %.300s", text))
		}
		if err := c.acks.add(d); err != nil || c.acks.count < c.batch {
			return err
		}
		return c.acknowledge()
	case bytes.HasPrefix(text, []byte(`{"op":"OK"`)):
		return c.handleOK(text)
	default:
		return fmt.Errorf("unexpected message from the gateway: %.300s", text)
	}
}

func (c *gatewayConsumer) acknowledge() error {
	c.acks.check.settle(c.acks.measured)
	c.waiting = append(c.waiting, sentAck{c.acks.count, len(c.acks.measured), time.Now()})
	text := fmt.Appendf(nil, `{"op":"ACK","id":"a","subscription":"bench","ids":[%s]}`, c.acks.ids)
	c.acks.clear()
	return c.send(text)
}

// handleOK records the answer to the oldest ACK.
func (c *gatewayConsumer) handleOK(text []byte) error {
	if !bytes.Contains(text, []byte(`"results"`)) {
		return nil // the subscription has begun
	}
	if len(c.waiting) == 0 {
		return fmt.Errorf("the gateway answered what was not asked: %.300s", text)
	}
	ack := c.waiting[0]
	c.waiting = c.waiting[1:]
	if err := checkDone(text, ack.events); err != nil {
		return err
	}
	return c.acks.check.count(ack.events, ack.measured, time.Since(ack.at))
}
