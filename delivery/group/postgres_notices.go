package group

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// groupsChannel is the channel on which processes notify one another of groups that may have something to deliver. The
// payload is the sender, a semicolon, and a comma-separated list of tenant:name, or allGroups instead of a very long
// list. As with heads, one goroutine sends the notices for all groups, separately from other statements.
const (
	groupsChannel    = "manifold_groups"
	allGroups        = "all"
	noticeInterval   = 50 * time.Millisecond // between two notices of this process
	noticeRetryDelay = time.Second           // before notices that could not be sent are retried
	maxNoticeBytes   = 7900                  // the limit of a notice is just under 8,000
	maxNotices       = 10                    // at most this many at once
	noticeTimeout    = 10 * time.Second      // the longest wait for the answer to a notice
)

// groupNotices holds the changes of groups that this process has yet to announce.
type groupNotices struct {
	sender string // this store, which ignores its own notices

	mu      sync.Mutex
	pending map[groupName]struct{}
	some    chan struct{} // has an element while pending is not empty
}

type groupName struct {
	tenant domain.TenantID
	name   string
}

func newGroupNotices() *groupNotices {
	return &groupNotices{sender: domain.NewMemberID().String(), pending: make(map[groupName]struct{}), some: make(chan struct{}, 1)}
}

// NotifyGroup notifies other processes that a group has changed or may have something to deliver. It returns at once;
// the notice is sent immediately or with the next one, about 50 ms later. If the database does not answer, the notice
// is sent later.
func (s *Postgres) NotifyGroup(tenant domain.TenantID, name string) {
	g := s.groups
	g.mu.Lock()
	g.pending[groupName{tenant, name}] = struct{}{}
	g.mu.Unlock()
	g.wake()
}

// run sends notices until ctx ends, and then sends the remaining ones.
func (g *groupNotices) run(ctx context.Context, s *Postgres) {
	for {
		select {
		case <-ctx.Done():
			g.send(s)
			return
		case <-g.some:
		}
		sent, pause := g.send(s), noticeInterval
		if !sent {
			pause = noticeRetryDelay
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

// send announces all pending groups. If it fails, they stay pending.
func (g *groupNotices) send(s *Postgres) (sent bool) {
	g.mu.Lock()
	pending := g.pending
	g.pending = make(map[groupName]struct{})
	g.mu.Unlock()
	if len(pending) == 0 {
		return true // the last notice included it
	}
	ctx, cancel := context.WithTimeout(context.Background(), noticeTimeout)
	defer cancel()
	_, err := s.db.Foreground.Exec(ctx, "select pg_notify($1, p.payload) from unnest($2::text[]) as p(payload)", groupsChannel, g.payloads(pending))
	if err == nil {
		return true
	}
	s.db.Log.Debug("changes of groups were not announced; trying again", "error", err)
	g.mu.Lock()
	maps.Copy(g.pending, pending)
	g.mu.Unlock()
	return false
}

// wake makes run send the pending notices.
func (g *groupNotices) wake() {
	select {
	case g.some <- struct{}{}:
	default:
	}
}

// payloads returns the notices for groups.
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
		if len(payload) > maxNoticeBytes-2*domain.MaxNameBytes {
			all, payload = append(all, string(payload)), payload[:0]
		}
		if len(all) == maxNotices {
			return []string{g.sender + ";" + allGroups}
		}
	}
	if len(payload) > 0 {
		all = append(all, string(payload))
	}
	return all
}

// parseGroups parses a notice; ok is false if it does not name the groups.
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

// ListenGroups calls notice for each group that another process has announced. It calls notice with domain.Everyone and
// no name if notices may have been lost, including at the start, or if there are very many. Any group of any tenant may
// then have changed. Changes made by this process are not reported. notice must return at once. ListenGroups blocks
// until ctx ends, and then returns nil.
func (s *Postgres) ListenGroups(ctx context.Context, notice func(tenant domain.TenantID, name string)) error {
	s.db.ListenOn(ctx, groupsChannel, func() { notice(domain.Everyone, "") }, func(payload string) {
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
