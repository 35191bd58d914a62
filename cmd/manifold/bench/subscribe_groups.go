package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// groupPath is the group of the benchmark.
const groupPath = "/v1/subscriptions/bench"

// stalled is how long a run may continue without any delivery before it is given up.
const stalled = time.Minute

func consume(ctx context.Context, f *flags, progress io.Writer) (_ Result, err error) {
	if f.consumers < 1 || f.batch < 1 || f.streams < 1 {
		return Result{}, errors.New("--consumers, --batch and --streams must be at least 1")
	}
	s, err := quietService(ctx, f, progress)
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.db.preloadBehind(ctx, s.tenant, f.backlog, f.events, f.streams, progress); err != nil {
		return Result{}, err
	}
	if err := execute(ctx, s.db.super, "checkpoint"); err != nil {
		return Result{}, err
	}
	wires, err := s.connect(f.consumers + 1)
	if err != nil {
		return Result{}, err
	}
	defer disconnect(wires)
	operator, wires := wires[0], wires[1:]
	// Nothing may be redelivered automatically during the measurement.
	definition := fmt.Appendf(nil, `{"ordering":%q,"ackTimeout":3600}`, f.ordering)
	if f.partitions > 0 {
		definition = fmt.Appendf(nil, `{"ordering":%q,"ackTimeout":3600,"partitions":%d}`, f.ordering, f.partitions)
	}
	status, answer, err := operator.do("PUT", groupPath, "", definition)
	if err := want(status, http.StatusCreated, answer, err); err != nil {
		return Result{}, err
	}
	fmt.Fprintf(progress, "consuming, with %d consumers ...\n", f.consumers)
	name := fmt.Sprintf("--consumers %d --batch %d --ordering %s --events %d", f.consumers, f.batch, f.ordering, f.events)
	if f.backlog > 0 {
		name += fmt.Sprintf(" --backlog %d", f.backlog)
	}
	if f.partitions > 0 {
		name += fmt.Sprintf(" --partitions %d", f.partitions)
	}
	what := "receive and acknowledge"
	if f.gateway {
		name, what = name+" --gateway", "acknowledge"
	}
	result := Result{Name: f.subscribeName(name), Clients: f.consumers, what: what}
	g := &groupCheck{
		front: int64(f.backlog), ordered: f.ordering == "stream",
		delivered: make([]bool, f.backlog+f.events+1), versions: make([]int64, f.streams), left: int64(f.events), moved: time.Now(),
	}
	turns, err := s.consumers(f, wires, g)
	if err != nil {
		return Result{}, err
	}
	cpu, used, begin := s.watch(ctx), processorTime(), time.Now()
	running, end := context.WithCancelCause(ctx)
	defer end(nil)
	var done sync.WaitGroup
	for i, turn := range turns {
		done.Go(func() {
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
	done.Wait()
	if cause := context.Cause(running); !errors.Is(cause, errEnough) {
		return Result{}, cause
	}
	measured := g.measured
	measured.took, measured.processor = g.moved.Sub(g.began), processorTime()-used
	result.tellUsageOf(cpu, g.acknowledged)
	if f.backlog > 0 {
		result.tell(g.began.Sub(begin).Seconds(), "s", "until %d events at the front were behind it", f.backlog)
	}
	if err := operator.checkGroup(f); err != nil {
		return Result{}, err
	}
	result.take(measured)
	measured.took = g.moved.Sub(begin) // the generator has processed the front, too
	result.GeneratorCPU = generatorShare(measured)
	err = s.finish(ctx, &result, "", nil, progress)
	return result, err
}

// consumers returns a function for each consumer of a group, which the consumer repeats. Over HTTP, consumers join if
// the group has partitions. Over the gateway, the gateway joins for them.
func (s *service) consumers(f *flags, wires []*wire, check *groupCheck) (turns []func() error, err error) {
	for _, w := range wires {
		if f.gateway {
			c, err := s.consumeOverGateway(w, f.batch, check)
			if err != nil {
				return nil, err
			}
			turns = append(turns, c.turn)
			continue
		}
		c := &consumer{wire: w, check: check, wanted: fmt.Appendf(nil, `{"batch":%d,"wait":2}`, f.batch)}
		if f.partitions > 0 {
			status, answer, err := w.do("POST", groupPath+"/members", "", []byte(`{}`))
			if err := want(status, http.StatusCreated, answer, err); err != nil {
				return nil, err
			}
			member, _, _ := textIn(answer, `"memberId":"`)
			c.wanted = fmt.Appendf(nil, `{"batch":%d,"wait":2,"memberId":%q}`, f.batch, member)
		}
		turns = append(turns, c.turn)
	}
	return turns, nil
}

// checkGroup checks that the service also considers everything acknowledged, except what is never acknowledged.
func (w *wire) checkGroup(f *flags) error {
	status, answer, err := w.do("GET", groupPath, "", nil)
	var group struct {
		Progress []struct{ Checkpoint, ReadTo, Oldest, InFlight, Retrying, DeadLetters int64 }
	}
	if err := errors.Join(want(status, http.StatusOK, answer, err), json.Unmarshal(answer, &group)); err != nil {
		return err
	}
	if len(group.Progress) != max(1, f.partitions) {
		return fmt.Errorf("the group has %d partitions", len(group.Progress))
	}
	end, held := int64(f.backlog+f.events), int64(0)
	if f.backlog > 0 {
		held = 1
	}
	for _, p := range group.Progress {
		held -= p.InFlight
		if p.Retrying != 0 || p.DeadLetters != 0 {
			return fmt.Errorf("a partition of the group ends with %+v", p)
		}
	}
	p, checkpoint := group.Progress[0], end
	if f.backlog > 0 {
		checkpoint = 0
	}
	// A partition may not have stored yet how far it has read after its last event.
	if held != 0 || f.partitions == 0 && p.Checkpoint != checkpoint {
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

// take records a delivery, and returns an error if the delivery is not permitted.
func (g *groupCheck) take(stream []byte, position, version, attempt int64) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case position < 1 || position >= int64(len(g.delivered)):
		return fmt.Errorf("position %d was delivered, which is not there", position)
	case g.delivered[position] || attempt != 1:
		return fmt.Errorf("position %d was delivered again, as attempt %d", position, attempt)
	}
	g.delivered[position] = true
	if position <= g.front {
		if g.ordered && position > 1 {
			return fmt.Errorf("position %d was delivered, whose stream is held", position)
		}
		return nil
	}
	if g.began.IsZero() {
		g.began = time.Now()
	}
	number, err := strconv.Atoi(string(bytes.TrimPrefix(stream, []byte("order-"))))
	if err != nil || number >= len(g.versions) {
		return fmt.Errorf("an event is of the stream %s", stream)
	}
	if last := g.versions[number]; g.ordered && version != last+1 {
		return fmt.Errorf("of %s version %d was delivered when version %d was acknowledged", stream, version, last)
	}
	// The event counts as settled when its answer is sent, which this consumer does next.
	return nil
}

// settle records that answers are about to be sent.
func (g *groupCheck) settle(all []settled) {
	if !g.ordered {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, one := range all {
		g.versions[one.stream] = one.version
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
		g.measured.count(measured, took)
		g.left -= int64(measured)
	}
	if time.Since(g.moved) > stalled {
		return fmt.Errorf("nothing was delivered for %s, and %d events are left", stalled, g.left)
	}
	return nil
}

// settled is an event of a benchmark stream, identified by the stream's number.
type settled struct {
	stream  int
	version int64
}

// consumer is one connection that receives and acknowledges. Only one goroutine may use it.
type consumer struct {
	wire   *wire
	check  *groupCheck
	wanted []byte // the body of its receives
	acks   []byte
	events []settled
}

// turn receives once, and acknowledges the received events.
func (c *consumer) turn() error {
	begin := time.Now()
	status, answer, err := c.wire.do("POST", groupPath+"/receive", "", c.wanted)
	if err := want(status, http.StatusOK, answer, err); err != nil {
		return err
	}
	acknowledged, measured := 0, 0
	c.acks, c.events = append(c.acks[:0], `{"ids":[`...), c.events[:0]
	for rest := answer; ; {
		var event delivered
		var found bool
		if event, rest, found, err = nextDelivery(rest); err != nil {
			return err
		}
		if !found {
			break
		}
		if err := c.check.take(event.stream, event.position, event.version, event.attempt); err != nil {
			return err
		}
		if event.position == 1 && c.check.front > 0 {
			continue // the event that is never acknowledged
		}
		if acknowledged > 0 {
			c.acks = append(c.acks, ',')
		}
		c.acks = append(c.acks, `{"id":"`...)
		c.acks = append(c.acks, event.id...)
		c.acks = append(c.acks, `","attempt":1}`...)
		acknowledged++
		if event.position > c.check.front {
			measured++
			number, _ := strconv.Atoi(string(bytes.TrimPrefix(event.stream, []byte("order-")))) // take has checked it
			c.events = append(c.events, settled{number, event.version})
		}
	}
	if acknowledged > 0 {
		c.check.settle(c.events)
		status, answer, err := c.wire.do("POST", groupPath+"/ack", "", append(c.acks, "]}"...))
		if err := want(status, http.StatusOK, answer, err); err != nil {
			return err
		}
		if done := bytes.Count(answer, []byte(`"outcome":"done"`)); done != acknowledged {
			return fmt.Errorf("%d of %d events could be acknowledged: %.400s", done, acknowledged, answer)
		}
	}
	return c.check.count(acknowledged, measured, time.Since(begin))
}

// delivered is the part of a delivery that a consumer reads. Its texts are slices of the answer.
type delivered struct {
	id, stream                 []byte
	version, position, attempt int64
}

// nextDelivery finds the next delivery in an answer without decoding it, and returns the rest after it.
func nextDelivery(answer []byte) (d delivered, rest []byte, found bool, err error) {
	if d.id, rest, found = textIn(answer, `"event":{"id":"`); !found {
		return d, nil, false, nil
	}
	var ok [4]bool
	d.stream, rest, ok[0] = textIn(rest, `"stream":"`)
	d.version, ok[1] = numberIn(rest, `"version":`)
	d.position, ok[2] = numberIn(rest, `"position":`)
	// The attempt follows the event, whose data has no such field.
	d.attempt, ok[3] = numberIn(rest, `"attempt":`)
	if ok != [4]bool{true, true, true, true} {
		return d, nil, false, fmt.Errorf("a delivery lacks a field: %.600q", answer)
	}
	return d, rest, true, nil
}
