package projection

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

// onNodes returns the nodes that the queue's test gives a tenant.
func (t *tenant) onNodes() map[byte]bool { return map[byte]bool{t.id[0]: true, t.id[1]: true} }

// The queue against random pushes, turns, and changes of shares:
//   - while a tenant waits, every other one gets at most its weight in turns before it gets one, unless one of the two is
//     stalled,
//   - a tenant never has more turns under way than its ceiling, nor do all stalled ones than theirs, nor those on a node,
//   - nothing is given to a pair twice, nothing is lost, and whoever may have a turn gets one,
//   - a tenant's turns go round by its pairs.
func TestQueueIsFair(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		q := queue{ceiling: rapid.IntRange(0, 3).Draw(t, "ceiling"), stalledMost: rapid.IntRange(1, 2).Draw(t, "stalled turns"), nodeMost: rapid.IntRange(2, 3).Draw(t, "turns of a node")}
		cluster := rapid.Bool().Draw(t, "cluster")
		if cluster {
			q.nodesOf = func(tenant domain.TenantID) [2]int32 { return [2]int32{int32(tenant[0]), int32(tenant[1])} }
		}
		workers := rapid.IntRange(1, 4).Draw(t, "workers")
		tenants := make([]*tenant, rapid.IntRange(1, 5).Draw(t, "tenants"))
		var pairs []*pair
		for i := range tenants {
			node := rapid.ByteRange(0, 2)
			id := domain.TenantID{node.Draw(t, "node of the log"), node.Draw(t, "node of the documents"), byte(i)}
			tenants[i] = &tenant{id: id, share: domain.Share{Weight: rapid.IntRange(1, 4).Draw(t, "weight"), Ceiling: rapid.IntRange(0, 3).Draw(t, "own ceiling")}}
			for range rapid.IntRange(1, 4).Draw(t, "pairs") {
				pairs = append(pairs, &pair{tenant: tenants[i]})
			}
		}
		stalled, onNode, mixedOn := 0, make(map[byte]int), make(map[byte]int)
		count := func(of *tenant, turns int) {
			for node := range of.onNodes() {
				onNode[node] += turns
				if len(of.onNodes()) == 2 {
					mixedOn[node] += turns
				}
			}
		}
		room := func(of *tenant, running int) bool {
			for node := range of.onNodes() {
				if cluster && (onNode[node] >= q.nodeMost || len(of.onNodes()) == 2 && mixedOn[node] >= q.nodeMost-1) {
					return false
				}
			}
			switch {
			case of.stalled && stalled >= q.stalledMost:
				return false
			case of.share.Ceiling > 0:
				return running < of.share.Ceiling
			case q.ceiling > 0:
				return running < q.ceiling
			}
			return true
		}
		waiting := make(map[*tenant][]*pair) // in their order
		running := make(map[*pair]bool)
		under := make(map[*tenant]int)
		since := make(map[*tenant]map[*tenant]int) // turns of others while a tenant waits and has room
		check := func() {
			for _, of := range tenants {
				if len(waiting[of]) == 0 || !room(of, under[of]) {
					delete(since, of)
				} else if since[of] == nil {
					since[of] = make(map[*tenant]int)
				}
			}
		}
		push := func(p *pair) {
			q.push(p)
			p.state = pairReady
			waiting[p.tenant] = append(waiting[p.tenant], p)
		}
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				check()
				n := 0
				for _, of := range waiting {
					n += len(of)
				}
				if q.waiting != n {
					t.Fatalf("%d pairs are said to wait, %d do", q.waiting, n)
				}
			},
			"push": func(t *rapid.T) {
				p := rapid.SampledFrom(pairs).Draw(t, "pair")
				if p.state == pairIdle {
					push(p)
				}
			},
			"turn": func(t *rapid.T) {
				if len(running) == workers {
					t.Skip("everybody is at work")
				}
				p := q.pop(func(*pair) bool { return true })
				if p == nil {
					if len(since) > 0 {
						t.Fatalf("no tenant gets a turn, although %d could have one", len(since))
					}
					return
				}
				if len(waiting[p.tenant]) == 0 || waiting[p.tenant][0] != p {
					t.Fatal("it is not this pair's turn")
				}
				if !room(p.tenant, under[p.tenant]) {
					t.Fatal("a tenant is beyond its ceiling")
				}
				waiting[p.tenant] = waiting[p.tenant][1:]
				delete(since, p.tenant)
				for waits, turns := range since {
					if waits.stalled || p.stalled {
						continue
					}
					if turns[p.tenant]++; turns[p.tenant] > p.tenant.share.Weight {
						t.Fatalf("a tenant of weight %d had %d turns while %p waited", p.tenant.share.Weight, turns[p.tenant], waits)
					}
				}
				running[p], p.state = true, pairRunning
				under[p.tenant]++
				count(p.tenant, 1)
				if p.tenant.stalled != p.stalled {
					t.Fatal("a turn does not count as one of a stalled tenant")
				}
				if p.stalled {
					stalled++
				}
			},
			"end": func(t *rapid.T) {
				if len(running) == 0 {
					t.Skip("nothing is under way")
				}
				var begun []*pair
				for _, p := range pairs {
					if running[p] {
						begun = append(begun, p)
					}
				}
				p := rapid.SampledFrom(begun).Draw(t, "pair")
				delete(running, p)
				p.state = pairIdle
				if rapid.Bool().Draw(t, "more") {
					push(p)
				}
				under[p.tenant]--
				count(p.tenant, -1)
				if p.stalled {
					stalled--
				}
				if is := rapid.Bool().Draw(t, "stalled"); is != p.tenant.stalled {
					p.tenant.stalled = is
					delete(since, p.tenant)
				}
				q.done(p)
			},
			"share": func(t *rapid.T) {
				of := rapid.SampledFrom(tenants).Draw(t, "tenant")
				of.share.Ceiling = rapid.IntRange(0, 3).Draw(t, "ceiling")
				q.reconsider(of)
			},
		})
		for _, of := range tenants {
			if of.running != under[of] {
				t.Fatalf("%d turns are counted as under way, %d are", of.running, under[of])
			}
		}
	})
}
