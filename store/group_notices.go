package store

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// groupsChannel is where processes tell one another of groups that may have something to deliver. The payload is who sends
// it, a semicolon, and a list of tenant:name with commas, or groupsMany where that would be long. As with heads, notices are
// sent apart, for all groups together, by one goroutine.
const (
	groupsChannel = "manifold_groups"
	groupsMany    = "all"
	groupsPause   = 50 * time.Millisecond // between two notices of this process
	groupsBytes   = 7900                  // a notice has less than 8,000
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
// notice, some 50 ms later. It returns at once. A notice may be lost, where the database does not answer.
func (s *Store) NotifyGroup(tenant domain.TenantID, name string) {
	g := s.groups
	g.mu.Lock()
	g.pending[groupName{tenant, name}] = struct{}{}
	g.mu.Unlock()
	select {
	case g.some <- struct{}{}:
	default:
	}
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
		g.send(s)
		select {
		case <-ctx.Done():
		case <-time.After(groupsPause):
		}
	}
}

func (g *groupNotices) send(s *Store) {
	g.mu.Lock()
	pending := g.pending
	g.pending = make(map[groupName]struct{})
	g.mu.Unlock()
	if len(pending) == 0 {
		return // it went with the last notice
	}
	ctx, cancel := context.WithTimeout(context.Background(), groupsWait)
	defer cancel()
	if _, err := s.system.Exec(ctx, "select pg_notify($1, $2)", groupsChannel, g.payload(pending)); err != nil {
		s.log.Debug("changes of groups were not announced; other processes will see them when they look", "error", err)
	}
}

func (g *groupNotices) payload(groups map[groupName]struct{}) string {
	var payload strings.Builder
	payload.WriteString(g.sender)
	separator := byte(';')
	for group := range groups {
		payload.WriteByte(separator)
		payload.WriteString(group.tenant.String())
		payload.WriteByte(':')
		payload.WriteString(group.name)
		if payload.Len() > groupsBytes-2*domain.MaxNameBytes {
			return g.sender + ";" + groupsMany
		}
		separator = ','
	}
	return payload.String()
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
