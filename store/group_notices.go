package store

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// groupsChannel is where processes tell one another of groups that may have something to deliver. The payload is who sends
// it, a semicolon, and a list of tenant:name with commas; or groupsMany instead of very many. As with heads, notices are
// sent apart, for all groups together, by one goroutine.
const (
	groupsChannel = "manifold_groups"
	groupsMany    = "all"
	groupsPause   = 50 * time.Millisecond // between two notices of this process
	groupsAgain   = time.Second           // until notices that could not be sent are sent again
	groupsBytes   = 7900                  // a notice has less than 8,000
	groupsNotices = 10                    // at once, at most
	groupsWait    = 10 * time.Second      // for the answer to a notice
)

// groupNotices are what this process has to tell of groups.
type groupNotices struct {
	sender string // this store, which does not listen to itself

	mu      sync.Mutex
	pending map[groupName]struct{}
	some    chan struct{} // has one while pending is not empty
}

type groupName struct {
	tenant domain.TenantID
	name   string
}

func newGroupNotices() *groupNotices {
	return &groupNotices{sender: domain.NewMemberID().String(), pending: make(map[groupName]struct{}), some: make(chan struct{}, 1)}
}

// NotifyGroup tells other processes that a group has changed, or may have something to deliver: at once, or with the next
// notice, some 50 ms later. It returns at once. Where the database does not answer, the notice comes later.
func (s *Store) NotifyGroup(tenant domain.TenantID, name string) {
	g := s.groups
	g.mu.Lock()
	g.pending[groupName{tenant, name}] = struct{}{}
	g.mu.Unlock()
	g.wake()
}

// run sends notices until ctx ends, and what is left then once more.
func (g *groupNotices) run(ctx context.Context, s *Store) {
	for {
		select {
		case <-ctx.Done():
			g.send(s)
			return
		case <-g.some:
		}
		sent, pause := g.send(s), groupsPause
		if !sent {
			pause = groupsAgain
		}
		select {
		case <-ctx.Done():
			continue
		case <-time.After(pause):
		}
		if !sent {
			g.wake()
		}
	}
}

// send tells of all groups that are pending. Where it fails, they still are.
func (g *groupNotices) send(s *Store) (sent bool) {
	g.mu.Lock()
	pending := g.pending
	g.pending = make(map[groupName]struct{})
	g.mu.Unlock()
	if len(pending) == 0 {
		return true // it went with the last notice
	}
	ctx, cancel := context.WithTimeout(context.Background(), groupsWait)
	defer cancel()
	_, err := s.system.Exec(ctx, "select pg_notify($1, p.payload) from unnest($2::text[]) as p(payload)", groupsChannel, g.payloads(pending))
	if err == nil {
		return true
	}
	s.log.Debug("changes of groups were not announced; trying again", "error", err)
	g.mu.Lock()
	maps.Copy(g.pending, pending)
	g.mu.Unlock()
	return false
}

// wake has run send what is pending.
func (g *groupNotices) wake() {
	select {
	case g.some <- struct{}{}:
	default:
	}
}

// payloads are the notices of groups.
func (g *groupNotices) payloads(groups map[groupName]struct{}) []string {
	var all []string
	var payload []byte
	for group := range groups {
		separator := byte(',')
		if len(payload) == 0 {
			payload, separator = append(payload, g.sender...), ';'
		}
		payload = append(payload, separator)
		payload = append(payload, group.tenant.String()...)
		payload = append(payload, ':')
		payload = append(payload, group.name...)
		if len(payload) > groupsBytes-2*domain.MaxNameBytes {
			all, payload = append(all, string(payload)), payload[:0]
		}
		if len(all) == groupsNotices {
			return []string{g.sender + ";" + groupsMany}
		}
	}
	if len(payload) > 0 {
		all = append(all, string(payload))
	}
	return all
}

// parseGroups reads a notice; ok is false where it does not name the groups.
func parseGroups(payload string) (sender string, groups []groupName, ok bool) {
	sender, list, _ := strings.Cut(payload, ";")
	for part := range strings.SplitSeq(list, ",") {
		text, name, _ := strings.Cut(part, ":")
		tenant, err := domain.ParseTenantID(text)
		if err != nil || name == "" {
			return sender, nil, false
		}
		groups = append(groups, groupName{tenant, name})
	}
	return sender, groups, true
}

// ListenGroups calls notice for each group that another process has told of, and with domain.Everyone and no name where
// notices may have been lost, or there are many: any group of any tenant may have changed then. That is also so at the
// start. What this process changes it does not tell. notice must return at once. ListenGroups blocks until ctx ends, and
// returns nil then.
func (s *Store) ListenGroups(ctx context.Context, notice func(tenant domain.TenantID, name string)) error {
	s.listen(ctx, groupsChannel, func() { notice(domain.Everyone, "") }, func(payload string) {
		sender, groups, ok := parseGroups(payload)
		if sender == s.groups.sender {
			return
		}
		if !ok {
			notice(domain.Everyone, "")
		}
		for _, group := range groups {
			notice(group.tenant, group.name)
		}
	})
	return nil
}
