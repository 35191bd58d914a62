package limits

import (
	"encoding/json"
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

// simulated is a process as Limiter is one: it spends what it has leased until its lease ends by its own clock, which
// began before the database's.
type simulated struct {
	name   string
	round  int64
	left   float64
	until  int64
	dead   bool
	slots  int64 // held
	in     int64 // in use
	demand demand
	sent   int64
	flying bool    // a demand is under way
	spent  float64 // since it was sent
}

// Whatever processes do, die, lose answers, and send late, and however the limit is split between them: in any period
// they spend at most a burst and what the rate gives in the period, and occupy no more slots than there are.
func TestLeasesNeverExceedTheLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		rate := &domain.Rate{PerSecond: rapid.Int64Range(1, 1000).Draw(t, "rate")}
		rate.Burst = rate.PerSecond * rapid.Int64Range(1, 20).Draw(t, "burst")
		places := rapid.Int64Range(0, 20).Draw(t, "places")
		limits := &domain.Limits{Requests: rate, Connections: &places}
		var l ledger
		now := rapid.Int64Range(1, 1<<50).Draw(t, "now")
		began := now
		processes := make([]*simulated, rapid.IntRange(1, 3).Draw(t, "processes"))
		born := 0
		for i := range processes {
			processes[i] = &simulated{name: fmt.Sprint(born)}
			born++
		}
		type spending struct {
			at int64
			n  float64
		}
		var all []spending
		var late []func()
		deliver := func(p *simulated, d demand, lost bool) {
			g, ok := l.settle(now, limits, p.name, d)
			text, err := json.Marshal(l)
			if err != nil {
				t.Fatal(err)
			}
			l = ledger{}
			if err := json.Unmarshal(text, &l); err != nil {
				t.Fatal(err)
			}
			if lost || d.Round != p.round || p.dead || !p.flying {
				return
			}
			p.flying = false
			if ok {
				p.left, p.slots, p.until = max(g.Tokens[requests]-p.spent, 0), g.Slots[connections], p.sent+lease.Microseconds()
			}
		}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			p := processes[rapid.IntRange(0, len(processes)-1).Draw(t, "process")]
			switch rapid.IntRange(0, 7).Draw(t, "what") {
			case 0, 1: // time passes
				now += rapid.SampledFrom([]int64{10, 10_000, 1_000_000, 5_000_000, lease.Microseconds()}).Draw(t, "time")
			case 2, 3: // spend
				if now < p.until {
					n := math.Floor(p.left * rapid.SampledFrom([]float64{1, 0.5, 0.1}).Draw(t, "part"))
					p.left, p.spent = p.left-n, p.spent+n
					all = append(all, spending{now, n})
					if p.in < p.slots && rapid.Bool().Draw(t, "enter") {
						p.in++
					} else if p.in > 0 {
						p.in--
					}
				} else {
					p.in = 0 // in the service, they would stay after an outage; see the decision
				}
			case 4, 5: // ask
				if p.flying {
					break
				}
				p.round, p.sent, p.flying, p.spent = p.round+1, now, true, 0
				if now >= p.until {
					p.left, p.slots, p.in = 0, 0, 0
				}
				p.demand = demand{Round: p.round}
				p.demand.Left[requests] = p.left
				p.demand.Tokens[requests] = float64(rate.Burst) * rapid.SampledFrom([]float64{2, 1, 0.5, 0.1, 0}).Draw(t, "tokens")
				p.demand.Used[connections] = p.in
				if rapid.Bool().Draw(t, "wait") {
					p.demand.Least[requests] = math.Floor(p.demand.Tokens[requests])
				}
				p.left = min(p.left, p.demand.Tokens[requests])
				if p.left < p.demand.Least[requests] {
					p.left = 0
				} else {
					p.demand.Least[requests] = 0
				}
				p.demand.Slots[connections] = p.in + rapid.Int64Range(0, 10).Draw(t, "slots")
				p.slots = min(p.slots, p.demand.Slots[connections])
			case 6: // the demand reaches the database, and its answer may be lost; or it comes much later
				if !p.flying {
					break
				}
				d := p.demand
				switch rapid.IntRange(0, 3).Draw(t, "how") {
				case 0:
					p.flying = false
					late = append(late, func() { deliver(p, d, true) })
				case 1:
					deliver(p, d, true)
					p.flying = false
				default:
					deliver(p, d, false)
				}
			case 7:
				if len(late) > 0 && rapid.Bool().Draw(t, "late") {
					late[0]()
					late = late[1:]
					break
				}
				p.dead = true // kill -9; another takes its place
				for i := range processes {
					if processes[i] == p {
						processes[i] = &simulated{name: fmt.Sprint(born)}
						born++
					}
				}
			}
			busy := int64(0)
			for _, p := range processes {
				if now < p.until {
					busy += p.in
				}
			}
			if busy > places {
				t.Fatalf("%d of %d slots are in use", busy, places)
			}
		}
		for i := range all {
			sum := 0.0
			for j := i; j < len(all); j++ {
				sum += all[j].n
				if most := float64(rate.Burst) + float64(rate.PerSecond)*float64(all[j].at-all[i].at)/1e6; sum > most+1e-3 {
					t.Fatalf("%.3f were spent in %d us from %d us on, with %+v: at most %.3f are allowed", sum, all[j].at-all[i].at, all[i].at-began, *rate, most)
				}
			}
		}
	})
}

// The time in which a process held its tokens does not give others while it may still use them.
func TestHeldTokensAreNotRefilled(t *testing.T) {
	t.Parallel()
	limits := &domain.Limits{Requests: &domain.Rate{PerSecond: 100, Burst: 100}}
	var l ledger
	var d demand
	d.Round, d.Tokens[requests] = 1, 100
	l.settle(1, limits, "a", d) // it spends them all after five seconds, at once
	d.Round = 2
	if g, _ := l.settle(5_000_001, limits, "a", d); g.Tokens[requests] > 0 {
		t.Errorf("got %.0f more at once", g.Tokens[requests])
	}
	d.Round = 3
	if g, _ := l.settle(5_500_001, limits, "a", d); g.Tokens[requests] != 50 {
		t.Errorf("got %.0f half a second later", g.Tokens[requests])
	}
}

// A process that uses up its limit gets all of it.
func TestTheWholeLimitIsGranted(t *testing.T) {
	t.Parallel()
	limits := &domain.Limits{Requests: &domain.Rate{PerSecond: 100, Burst: 100}}
	var l ledger
	got := 0.0
	for i := range int64(200) { // 10 s
		now := 1 + i*50_000
		for p, name := range []string{"a", "b"} {
			d := demand{Round: i + 1}
			d.Tokens[requests] = 25
			if g, ok := l.settle(now+int64(p)*20_000, limits, name, d); !ok {
				t.Fatal("refused")
			} else {
				got += g.Tokens[requests] // and spends it at once
			}
		}
	}
	if got < 1050 {
		t.Errorf("two processes got %.0f of 1100", got)
	}
}

// A dead process's lease returns.
func TestLeasesOfDeadProcessesReturn(t *testing.T) {
	t.Parallel()
	places := int64(5)
	limits := &domain.Limits{Connections: &places}
	var l ledger
	var d demand
	d.Round, d.Slots[connections] = 1, 5
	l.settle(1, limits, "dead", d)
	if g, _ := l.settle(2, limits, "other", d); g.Slots[connections] != 0 {
		t.Errorf("got %+v while the others are held", g)
	}
	d.Round = 2
	if g, _ := l.settle(1+lease.Microseconds(), limits, "other", d); g.Slots[connections] != 5 {
		t.Errorf("got %+v after the lease", g)
	}
}
