package systemtest

import (
	"fmt"
	"sync"
	"time"

	"github.com/manifold-es/manifold/client"
)

// extendBy is how much more time consumers ask for.
const extendBy = time.Second

// groupRule checks what consumers of one group saw and answered against the guarantees of groups. It knows only what
// a consumer knows: an answer that was lost may have taken effect or not. It may be used concurrently.
type groupRule struct {
	name        string
	ordered     bool
	maxAttempts int
	wants       func(client.Event) bool

	mu         sync.Mutex
	events     map[client.UUID]*observed
	gone       map[string]bool        // members that have left or were swept: their deliveries go to others at once
	streams    map[string][]*observed // by version
	replayed   time.Time              // when a replay of all dead letters was requested; zero: never
	violations []string
}

// observed is everything known about one event.
type observed struct {
	event    client.Event
	attempts map[int]*observedAttempt
	// overtaken is set if a later event of the ordered stream was delivered before this one was settled, as far as
	// consumers know. That is correct only if the event had used up its attempts, including some whose answers were
	// lost.
	overtaken string
}

// observedAttempt is one delivery and the answers to it.
type observedAttempt struct {
	asked, got time.Time // when the receive was sent, and answered
	member     string    // who has it, in a group with partitions
	partition  int
	deadline   time.Time
	answers    []*observedAnswer
}

// observedAnswer is an ack or a nack.
type observedAnswer struct {
	kind           string // ack, retry, park, skip or extend
	sent, answered time.Time
	outcome        string // empty: none came
}

func newGroupRule(name string, ordered bool, maxAttempts int, wants func(client.Event) bool) *groupRule {
	return &groupRule{
		name: name, ordered: ordered, maxAttempts: maxAttempts, wants: wants,
		events: make(map[client.UUID]*observed), gone: make(map[string]bool), streams: make(map[string][]*observed),
	}
}

// appending records an event that is about to be appended. Events of a stream must be reported in order.
func (g *groupRule) appending(event client.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.wants(event) || g.events[event.Id] != nil {
		return
	}
	o := &observed{event: event, attempts: make(map[int]*observedAttempt)}
	g.events[event.Id] = o
	g.streams[event.Stream] = append(g.streams[event.Stream], o)
}

func (g *groupRule) broken(format string, args ...any) {
	if len(g.violations) < 20 {
		g.violations = append(g.violations, g.name+": "+fmt.Sprintf(format, args...))
	}
}

// leaving records that a member is about to leave, or to be swept.
func (g *groupRule) leaving(member string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gone[member] = true
}

// delivered records the answer to a receive, with its member if the group has partitions.
func (g *groupRule) delivered(asked time.Time, member string, deliveries []client.Delivery) {
	got := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	seen := make(map[string]int)
	for i := range deliveries {
		d := &deliveries[i]
		// Half of the lease may have passed before the answer was sent, and as much here.
		if late := got.Sub(d.AckDeadline); late > within(groupTimeout/2) {
			g.broken("attempt %d of event %s comes %s after its deadline", d.Attempt, d.Event.Id, late)
		}
		alone := d.Event.Id
		if g.ordered {
			alone = d.Event.Stream
		}
		if attempt, twice := seen[alone]; twice {
			g.broken("%s is twice in one answer, with the attempts %d and %d", alone, attempt, d.Attempt)
		}
		seen[alone] = d.Attempt
		if !g.wants(d.Event) {
			g.broken("event %s of %s is delivered, and not of the group", d.Event.Id, d.Event.Stream)
			continue
		}
		o := g.events[d.Event.Id]
		if o == nil {
			g.broken("event %s is delivered, and was never appended", d.Event.Id)
			continue
		}
		o.event.Position = d.Event.Position
		if o.attempts[d.Attempt] != nil {
			g.broken("event %s is delivered twice as attempt %d", d.Event.Id, d.Attempt)
		}
		for n, earlier := range o.attempts {
			g.again(o, n, earlier, d, asked, got)
		}
		now := &observedAttempt{asked: asked, got: got, deadline: d.AckDeadline, member: member}
		if d.Partition != nil {
			now.partition = *d.Partition
		}
		if g.ordered {
			g.inOrder(o, now)
		}
		if member != "" {
			g.alone(now)
		}
		o.attempts[d.Attempt] = now
	}
}

// again checks a delivery of an event against an earlier one.
func (g *groupRule) again(o *observed, n int, earlier *observedAttempt, d *client.Delivery, asked, got time.Time) {
	if earlier.got.Before(asked) && n > d.Attempt {
		g.broken("event %s: attempt %d comes after attempt %d", d.Event.Id, d.Attempt, n)
	}
	given := g.gone[earlier.member] // it was given back, or may have been
	for _, a := range earlier.answers {
		switch a.kind {
		case "ack", "skip", "park":
			settled := a.outcome == "done" && a.answered.Before(asked)
			if replay := a.kind == "park" && !g.replayed.IsZero(); settled && !replay {
				g.broken("event %s: attempt %d comes after the answer to the %s of attempt %d", d.Event.Id, d.Attempt, a.kind, n)
			}
			given = given || a.kind == "park"
		case "retry":
			given = true
		}
	}
	if until := earlier.leasedUntil(); !given && n < d.Attempt && got.Before(until) {
		g.broken("event %s: attempt %d comes %s before the deadline of attempt %d, which nobody gave back", d.Event.Id, d.Attempt, until.Sub(got), n)
	}
}

// leasedUntil returns the earliest time at which the lease can end. After slow saves a lease is granted for longer than
// an extension asks for. So an extension may bring the deadline forward, also one whose answer was lost.
func (a *observedAttempt) leasedUntil() time.Time {
	until := a.deadline
	for _, answer := range a.answers {
		if answer.kind == "extend" {
			if until = a.deadline; answer.sent.Add(extendBy).Before(until) {
				until = answer.sent.Add(extendBy)
			}
		}
	}
	return until
}

// overlaps reports whether two attempts were certainly in flight at the same time. A delivery that arrives after its
// lease proves nothing: others may have been made since.
func (a *observedAttempt) overlaps(b *observedAttempt) bool {
	got := a.got
	if b.got.After(got) {
		got = b.got
	}
	return got.Before(a.leasedUntil()) && got.Before(b.leasedUntil())
}

// alone checks that no other member works on the partition of a delivery.
func (g *groupRule) alone(now *observedAttempt) {
	for _, o := range g.events {
		for n, other := range o.attempts {
			answered := false
			for _, answer := range other.answers {
				answered = answered || answer.kind != "extend"
			}
			if other.partition == now.partition && other.member != now.member && !g.gone[other.member] && !answered && now.overlaps(other) {
				g.broken("partition %d goes to another member while attempt %d of event %s is in flight for %s", now.partition, n, o.event.Id, other.leasedUntil().Sub(now.got))
			}
		}
	}
}

// inOrder checks an attempt at an event of an ordered group against the other events of its stream.
func (g *groupRule) inOrder(o *observed, now *observedAttempt) {
	for _, other := range g.streams[o.event.Stream] {
		if other == o {
			continue
		}
		settled := false
		for n, a := range other.attempts {
			answered := false
			for _, answer := range a.answers {
				settled = settled || answer.kind != "retry" && answer.kind != "extend"
				answered = answered || answer.kind != "extend"
			}
			settled = settled || n >= g.maxAttempts
			if !answered && !g.gone[a.member] && now.overlaps(a) {
				g.broken("stream %s: version %d is delivered while attempt %d of version %d is in flight for another %s",
					o.event.Stream, o.event.Version, n, other.event.Version, a.leasedUntil().Sub(now.got))
			}
		}
		if other.event.Version < o.event.Version && !settled && other.overtaken == "" {
			other.overtaken = fmt.Sprintf("version %d of %s was delivered before it", o.event.Version, o.event.Stream)
		}
	}
}

// answering records that an answer is about to be sent. Pass the results to the returned function.
func (g *groupRule) answering(kind string, attempts []client.Attempt) (answered func(results []client.Answer)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	sent := make([]*observedAnswer, len(attempts))
	for i, attempt := range attempts {
		sent[i] = &observedAnswer{kind: kind, sent: time.Now()}
		a := g.events[attempt.Id].attempts[attempt.Attempt]
		a.answers = append(a.answers, sent[i])
	}
	return func(results []client.Answer) {
		now := time.Now()
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(results) != len(attempts) {
			g.broken("%d outcomes for %d attempts", len(results), len(attempts))
			return
		}
		for i, attempt := range attempts {
			if results[i].Id != attempt.Id || results[i].Attempt != attempt.Attempt {
				g.broken("outcome %d is of another attempt", i)
			}
			sent[i].outcome, sent[i].answered = results[i].Outcome, now
			g.outcome(g.events[attempt.Id], attempt.Attempt, sent[i])
		}
	}
}

// outcome checks the result of an answer.
func (g *groupRule) outcome(o *observed, n int, answer *observedAnswer) {
	a := o.attempts[n]
	switch answer.outcome {
	case "done":
		if extended := answer.sent.Add(extendBy); answer.kind == "extend" && extended.After(a.deadline) {
			a.deadline = extended // or a little later: the database's clock counts from when it is carried out
		}
		for m, later := range o.attempts {
			if m > n && later.got.Before(answer.sent) {
				g.broken("event %s: a late %s of attempt %d took effect, when attempt %d was out", o.event.Id, answer.kind, n, m)
			}
		}
		settles := func(b *observedAnswer) bool {
			return b.outcome == "done" && b.kind != "extend"
		}
		for _, b := range a.answers {
			if b != answer && settles(b) && settles(answer) {
				g.broken("event %s: both the %s and the %s of attempt %d took effect", o.event.Id, b.kind, answer.kind, n)
			}
		}
	case "stale", "not-in-flight":
		// The deliveries of a member that left or was swept go to another member at once.
		if len(a.answers) == 1 && !g.gone[a.member] && answer.answered.Before(a.deadline) {
			g.broken("event %s: the %s of attempt %d is %s, %s before its deadline", o.event.Id, answer.kind, n, answer.outcome, a.deadline.Sub(answer.answered))
		}
	default:
		g.broken("there is no outcome %q", answer.outcome)
	}
}

// replay records that all dead letters are about to be replayed.
func (g *groupRule) replay() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.replayed = time.Now()
}

// end checks the final state of every event, when nothing is in flight or waiting. It returns all violations since
// the beginning.
func (g *groupRule) end(dead map[client.UUID]client.DeadLetter) []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	for id, letter := range dead {
		o := g.events[id]
		if o == nil {
			g.broken("dead letter %s is no event of the group", id)
			continue
		}
		parked := letter.Attempts >= g.maxAttempts
		for _, a := range o.attempts {
			for _, answer := range a.answers {
				parked = parked || answer.kind == "park"
			}
		}
		if !parked {
			g.broken("event %s is a dead letter after %d attempts of %d, and nobody parked it: %s", id, letter.Attempts, g.maxAttempts, letter.Reason)
		}
	}
	for id, o := range g.events {
		letter, isDead := dead[id]
		settled, perhaps := "", false
		for n, a := range o.attempts {
			for _, answer := range a.answers {
				if answer.kind == "ack" || answer.kind == "skip" {
					perhaps = perhaps || answer.outcome == ""
					if answer.outcome == "done" {
						settled = fmt.Sprintf("%s of attempt %d", answer.kind, n)
					}
				}
			}
		}
		switch {
		case settled != "" && isDead:
			g.broken("event %s is a dead letter, and its %s took effect", id, settled)
		case settled == "" && !isDead && !perhaps:
			g.broken("event %s (version %d of %s, %d attempts) is lost", id, o.event.Version, o.event.Stream, len(o.attempts))
		case o.overtaken != "" && (!isDead || letter.Attempts < g.maxAttempts) && g.replayed.IsZero():
			g.broken("event %s, version %d, did not use up its attempts, and %s", id, o.event.Version, o.overtaken)
		}
	}
	return g.violations
}
