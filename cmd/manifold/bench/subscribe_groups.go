package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// groupPath is the group of the benchmark.
const groupPath = "/v1/subscriptions/bench"

// stalled is how long a run may continue without any delivery before it is given up.
const stalled = time.Minute

func consumeGroup(ctx context.Context, r *run) error {
	wires, err := r.connect(r.consumers + 1)
	if err != nil {
		return err
	}
	owner, wires := wires[0], wires[1:]
	definition := map[string]any{"ordering": r.ordering, "ackTimeout": 3600} // no redelivery during the measurement
	name := fmt.Sprintf("--consumers %d --batch %d --ordering %s --events %d", r.consumers, r.batch, r.ordering, r.events)
	r.latencyName = "receive and acknowledge"
	if r.backlog > 0 {
		name += fmt.Sprintf(" --backlog %d", r.backlog)
	}
	if r.partitions > 0 {
		name += fmt.Sprintf(" --partitions %d", r.partitions)
		definition["partitions"] = r.partitions
	}
	if r.gateway {
		name, r.latencyName = name+" --gateway", "acknowledge"
	}
	if err := owner.json("PUT", groupPath, definition, http.StatusCreated, nil); err != nil {
		return err
	}
	g := &groupCheck{
		front: int64(r.backlog), ordered: r.ordering == "stream",
		delivered: make([]bool, r.backlog+r.events+1), versions: make([]int64, r.streams), left: int64(r.events), moved: time.Now(),
	}
	turns := make([]func() error, len(wires))
	for i, w := range wires {
		if turns[i], err = r.consumer(w, g); err != nil {
			return err
		}
	}
	r.log("consuming with %d consumers", r.consumers)
	usage := r.watchUsage(ctx)
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	var consumers sync.WaitGroup
	for i, turn := range turns {
		consumers.Go(func() {
			for running.Err() == nil {
				err := turn()
				switch {
				case err != nil:
					end(fmt.Errorf("consumer %d: %w", i+1, err))
				case g.isDone():
					end(errEnough)
				}
			}
		})
	}
	consumers.Wait()
	if cause := context.Cause(running); !errors.Is(cause, errEnough) {
		return cause
	}
	measured := g.measured
	measured.took = g.moved.Sub(g.began)
	// The generator has also processed the front.
	measured.processor = time.Duration(float64(usage.load(0).processor) * measured.took.Seconds() / g.moved.Sub(usage.began).Seconds())
	r.addUsagePerEvent(usage, g.acknowledged)
	if r.backlog > 0 {
		r.addFigure(g.began.Sub(usage.began).Seconds(), "s", "until %d events at the front were delivered", r.backlog)
	}
	if err := checkGroup(owner, r.flags); err != nil {
		return err
	}
	r.Name, r.Clients = r.subscribeName(name), r.consumers
	return r.finish(ctx, measured, nil)
}

// consumer returns the function that a consumer of the group repeats. Over HTTP, the consumer joins if the group has
// partitions.
func (r *run) consumer(w *wire, check *groupCheck) (turn func() error, err error) {
	if r.gateway {
		c, err := consumeOverGateway(w, r.batch, check)
		if err != nil {
			return nil, err
		}
		return c.turn, nil
	}
	request := fmt.Sprintf(`{"batch":%d`, r.batch)
	if r.partitions > 0 {
		var member struct{ MemberID string }
		if err := w.json("POST", groupPath+"/members", struct{}{}, http.StatusCreated, &member); err != nil {
			return nil, err
		}
		request += fmt.Sprintf(`,"memberId":%q`, member.MemberID)
	}
	return (&consumer{wire: w, request: request, acks: ackBatch{check: check}}).turn, nil
}

// checkGroup checks that the service also considers everything acknowledged, except what is never acknowledged.
func checkGroup(w *wire, f *flags) error {
	var group struct {
		Progress []struct{ Checkpoint, ReadTo, Oldest, InFlight, Retrying, DeadLetters int64 }
	}
	if err := w.json("GET", groupPath, nil, http.StatusOK, &group); err != nil {
		return err
	}
	if len(group.Progress) != max(1, f.partitions) {
		return fmt.Errorf("the group has %d partitions", len(group.Progress))
	}
	checkpoint, held := int64(f.events), int64(0)
	if f.backlog > 0 {
		checkpoint, held = 0, 1
	}
	for _, p := range group.Progress {
		held -= p.InFlight
		if p.Retrying != 0 || p.DeadLetters != 0 {
			return fmt.Errorf("a partition of the group ends with %+v", p)
		}
	}
	// A partition may not have stored yet how far it has read after its last event.
	if held != 0 || f.partitions == 0 && group.Progress[0].Checkpoint != checkpoint {
		return fmt.Errorf("the group ends with %+v; its checkpoint should be %d", group.Progress, checkpoint)
	}
	return nil
}

// groupCheck is the shared state of all consumers.
type groupCheck struct {
	front   int64 // events up to this position are not measured; the first of them is never acknowledged
	ordered bool

	mu        sync.Mutex
	delivered []bool  // by position
	versions  []int64 // the last acknowledged version of each stream, by stream number
	left      int64   // events still to acknowledge, without the front
	began     time.Time
	moved     time.Time // time of the last acknowledgement
	measured  load

	acknowledged int64 // including the front
}

func (g *groupCheck) isDone() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.left == 0
}

// accept records a delivery, and returns an error if the delivery is not permitted.
func (g *groupCheck) accept(d delivery) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case d.position < 1 || d.position >= int64(len(g.delivered)):
		return fmt.Errorf("position %d was delivered, which does not exist", d.position)
	case g.delivered[d.position] || d.attempt != 1:
		return fmt.Errorf("position %d was delivered again, as attempt %d", d.position, d.attempt)
	}
	g.delivered[d.position] = true
	if d.position <= g.front {
		if g.ordered && d.position > 1 {
			return fmt.Errorf("position %d was delivered, whose stream is held", d.position)
		}
		return nil
	}
	if g.began.IsZero() {
		g.began = time.Now()
	}
	if d.stream < 0 || d.stream >= len(g.versions) {
		return fmt.Errorf("position %d is of an unknown stream", d.position)
	}
	if last := g.versions[d.stream]; g.ordered && d.version != last+1 {
		return fmt.Errorf("of stream %d version %d was delivered when version %d was acknowledged", d.stream, d.version, last)
	}
	return nil
}

// settle records that answers are about to be sent.
func (g *groupCheck) settle(all []delivery) {
	if !g.ordered {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, d := range all {
		g.versions[d.stream] = d.version
	}
}

// count records that answers have taken effect.
func (g *groupCheck) count(acknowledged, measured int, took time.Duration) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if acknowledged > 0 {
		g.moved = time.Now()
		g.acknowledged += int64(acknowledged)
	}
	if measured > 0 {
		g.measured.add(measured, took)
		g.left -= int64(measured)
	}
	if time.Since(g.moved) > stalled {
		return fmt.Errorf("nothing was delivered for %s, and %d events are left", stalled, g.left)
	}
	return nil
}

// ackBatch collects deliveries that are acknowledged together.
type ackBatch struct {
	check    *groupCheck
	ids      []byte // elements of a JSON array
	count    int
	measured []delivery // those after the front
}

func (b *ackBatch) add(d delivery) error {
	if err := b.check.accept(d); err != nil {
		return err
	}
	if d.position == 1 && b.check.front > 0 {
		return nil // the event that is never acknowledged
	}
	if b.count > 0 {
		b.ids = append(b.ids, ',')
	}
	b.ids = fmt.Appendf(b.ids, `{"id":"%s","attempt":1}`, d.id)
	b.count++
	if d.position > b.check.front {
		b.measured = append(b.measured, d)
	}
	return nil
}

// checkDone returns an error if an answer does not say that count events are acknowledged.
func checkDone(answer []byte, count int) error {
	if done := bytes.Count(answer, []byte(`"outcome":"done"`)); done != count {
		return fmt.Errorf("%d of %d events were acknowledged: %.400s", done, count, answer)
	}
	return nil
}

func (b *ackBatch) clear() { b.ids, b.count, b.measured = b.ids[:0], 0, b.measured[:0] }

// consumer is one connection that receives, and acknowledges what it received in its next receive. Only one goroutine
// may use it.
type consumer struct {
	wire    *wire
	request string // the beginning of the bodies of its receives
	acks    ackBatch
}

// turn acknowledges what the last turn has received, and receives.
func (c *consumer) turn() error {
	body := append(make([]byte, 0, len(c.request)+len(c.acks.ids)+16), c.request...)
	if c.acks.count > 0 { // without a wait, which would delay the result
		c.acks.check.settle(c.acks.measured)
		body = append(append(append(body, `,"ack":[`...), c.acks.ids...), "]}"...)
	} else {
		body = append(body, `,"wait":2}`...)
	}
	begin := time.Now()
	answer, err := c.wire.do("POST", groupPath+"/receive", "", body, http.StatusOK)
	if err != nil {
		return err
	}
	if bytes.Contains(answer, []byte(`"unacknowledged":`)) {
		return fmt.Errorf("not all of %d events were acknowledged: %.400s", c.acks.count, answer)
	}
	if err := c.acks.check.count(c.acks.count, len(c.acks.measured), time.Since(begin)); err != nil {
		return err
	}
	c.acks.clear()
	for rest := answer; ; {
		var d delivery
		var found bool
		if d, rest, found, err = nextDelivery(rest); err != nil || !found {
			return err
		}
		if err := c.acks.add(d); err != nil {
			return err
		}
	}
}

// delivery is the part of a delivery that a consumer reads.
type delivery struct {
	id                         []byte // a part of the answer
	stream                     int    // its number; -1 before the measured events
	version, position, attempt int64
}

// nextDelivery finds the next delivery in an answer without decoding it, and returns the rest after it.
func nextDelivery(answer []byte) (d delivery, rest []byte, found bool, err error) {
	if d.id, rest, found = textIn(answer, `"event":{"id":"`); !found {
		return d, nil, false, nil
	}
	var ok [4]bool
	var stream []byte
	stream, rest, ok[0] = textIn(rest, `"stream":"`)
	if d.stream, err = strconv.Atoi(string(bytes.TrimPrefix(stream, []byte("order-")))); err != nil {
		d.stream = -1
	}
	d.version, ok[1] = numberIn(rest, `"version":`)
	d.position, ok[2] = numberIn(rest, `"position":`)
	// The attempt follows the event, whose data has no such field.
	d.attempt, ok[3] = numberIn(rest, `"attempt":`)
	if ok != [4]bool{true, true, true, true} {
		return d, nil, false, fmt.Errorf("a delivery lacks a field: %.600q", answer)
	}
	return d, rest, true, nil
}
