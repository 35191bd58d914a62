package subscription

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/manifold-es/manifold/domain"
)

// Store keeps groups, each under its tenant. Errors that a caller can act on are *domain.Error.
type Store interface {
	Log

	// PutGroup makes a group, or replaces the definition of one, and returns it as it is then. A definition that is there already
	// as it is changes nothing. start is where a new one's partitions begin to read.
	PutGroup(ctx context.Context, tenant domain.TenantID, name string, definition domain.GroupDefinition, start int64) (group domain.Group, created bool, err error)
	Group(ctx context.Context, tenant domain.TenantID, name string) (domain.Group, error)
	// GroupStatus is a group with how far it has come; Groups lists them by name, those behind a name, at most so many.
	GroupStatus(ctx context.Context, tenant domain.TenantID, name string) (domain.GroupStatus, error)
	Groups(ctx context.Context, tenant domain.TenantID, after string, limit int) ([]domain.GroupStatus, error)
	DeleteGroup(ctx context.Context, tenant domain.TenantID, name string) error
	PauseGroup(ctx context.Context, tenant domain.TenantID, name string, paused bool) (domain.Group, error)

	// Ledger reads a partition with all that belongs to it, in one snapshot. With wait it first waits for whoever is saving it.
	Ledger(ctx context.Context, tenant domain.TenantID, name string, partition int, wait bool) (domain.LedgerRow, error)
	// ReplaysBeside reads the first limit dead letters of a partition whose replay was asked for and that are of none of these streams,
	// oldest first.
	ReplaysBeside(ctx context.Context, tenant domain.TenantID, name string, partition int, streams []string, limit int) ([]domain.DeadLetter, error)
	// SaveLedger makes a change; saved is false, and nothing was written, where group or ledger have other revisions.
	// now is the database's clock. Where the outcome of a save cannot be known, it is found out before it returns, or the error is
	// domain.CodeOutcomeUnknown.
	SaveLedger(ctx context.Context, tenant domain.TenantID, name string, change domain.LedgerChange) (now time.Time, saved bool, err error)
	// SeekGroup gives the group a new revision and writes the ledgers of all its partitions anew, which make returns from what
	// they were; retries are removed.
	SeekGroup(ctx context.Context, tenant domain.TenantID, name string, remake func(partition int, ledger []byte) (again []byte, status domain.PartitionStatus, err error)) (domain.Group, error)

	// StreamsOf returns the streams of events by their ids; those that are not there are left out.
	StreamsOf(ctx context.Context, tenant domain.TenantID, ids []domain.EventID) (map[domain.EventID]string, error)
	// ReadPositions reads the events at these positions, in the order in which they are given; those that are not there are left out.
	ReadPositions(ctx context.Context, tenant domain.TenantID, positions []int64) ([]domain.Event, error)
	// NextInStreams reads, of each stream, the next limit events behind the place, of whatever type, as far as they are not
	// beyond the position to: stream by stream in the order of places, each in its order. Where it gives fewer than limit of a
	// stream, there are no more up to that position. Looking for types is the caller's: a rare one may be far.
	NextInStreams(ctx context.Context, tenant domain.TenantID, places []domain.StreamPlace, to int64, limit int) ([]domain.Event, error)

	DeadLetters(ctx context.Context, tenant domain.TenantID, name string, after int64, limit int) ([]domain.DeadLetter, error)
	// ReplayDeadLetters asks for the replay of one, or of all with the zero id, and returns of how many.
	ReplayDeadLetters(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error)
	DiscardDeadLetters(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error)

	// AnnounceGroupMember gives a sign of life, of a new member or one that is there (domain.CodeNotFound where join is false and it is
	// not), sweeps those that have been silent for domain.GroupMemberDead, and returns those that are alive by their ids.
	AnnounceGroupMember(ctx context.Context, tenant domain.TenantID, name string, member domain.GroupMember, join bool) ([]domain.GroupMember, error)
	GroupMembers(ctx context.Context, tenant domain.TenantID, name string) ([]domain.GroupMember, error)
	RemoveGroupMember(ctx context.Context, tenant domain.TenantID, name string, id domain.GroupMemberID) error

	// NotifyGroup tells other processes that a group may have something to deliver; it returns at once.
	NotifyGroup(tenant domain.TenantID, name string)
}

// GroupsConfig is what Groups are made of.
type GroupsConfig struct {
	Store    Store
	Bytes    int // of events that all groups together read ahead of their delivery, about; 0: DefaultGroupBytes
	Log      *slog.Logger
	Observer GroupObserver
	// Changed is called when a group was changed in this process, or its dead letters were: as Notice, but by Groups. It must return at
	// once; nil: nobody wants to know.
	Changed func(tenant domain.TenantID, name string)
}

// DefaultGroupBytes bounds what groups read ahead where nothing else is said.
const DefaultGroupBytes = 128 << 20

// GroupObserver has functions that are called as things happen, from many goroutines, and must not block. Each is optional.
type GroupObserver struct {
	Delivered func(events int)
	Acked     func(events int, held time.Duration) // held: since the oldest of them was delivered
	Nacked    func(action domain.NackAction, events int)
	Expired   func(events int)
	Parked    func(events int)
	Received  func(took time.Duration, events int) // a receive, its waiting left out
}

// Groups deliver events to consumers. All methods may be called concurrently, and by any number of processes at once.
type Groups struct {
	config GroupsConfig

	mu       sync.RWMutex
	byTenant map[domain.TenantID]map[string]*group
	closed   bool

	running sync.WaitGroup // the partitions' goroutines
	held    atomic.Int64   // bytes of events that the partitions have in memory

	rosterFor, fillFor time.Duration // the constants, but in tests
}

// group is a group that somebody uses in this process.
type group struct {
	tenant domain.TenantID
	name   string

	known   atomic.Pointer[domain.Group] // as it was read last
	head    atomic.Int64                 // of the tenant's log, as far as it is known
	asking  chan struct{}                // has one while a filter of the tenant's groups is asked
	recent  *recent                      // what reads the log for the tenant's groups
	waiting atomic.Int64                 // receives

	members membership    // of a group with partitions
	turn    atomic.Uint64 // with which of its partitions the next receive of a member begins
	placed  places        // of what was delivered here

	parts map[int]*partition // Groups.mu is its lock
}

// know takes the group as it was read.
func (gr *group) know(now domain.Group) {
	if before := gr.known.Load(); before == nil || before.Revision != now.Revision {
		gr.known.Store(&now)
	}
}

// moved notes that the log's head is there, or further, and reports whether that is news.
func (gr *group) moved(head int64) bool {
	for {
		before := gr.head.Load()
		if head <= before {
			return false
		}
		if gr.head.CompareAndSwap(before, head) {
			return true
		}
	}
}

// NewGroups returns Groups; Run must be running.
func NewGroups(config GroupsConfig) *Groups {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	config.Bytes = cmp.Or(config.Bytes, DefaultGroupBytes)
	return &Groups{config: config, byTenant: make(map[domain.TenantID]map[string]*group), rosterFor: rosterFor, fillFor: fillFor}
}

// Run looks after what times out, until ctx ends, and then waits for what is being saved. Nothing is received or answered any
// more from then on.
func (g *Groups) Run(ctx context.Context) error {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-ticker.C:
			g.sweep(time.Now())
		}
	}
	g.close()
	g.running.Wait()
	return nil
}

func (g *Groups) close() {
	gone := domain.Errorf(domain.CodeUnavailable, "", "the service is shutting down")
	g.mu.Lock()
	g.closed = true
	var all []*group
	for _, groups := range g.byTenant {
		for _, gr := range groups {
			all = append(all, gr)
		}
	}
	g.mu.Unlock()
	for _, gr := range all {
		g.drop(gr, gone)
	}
}

// sweep has what timed out looked after, and forgets what nobody has used for a while.
func (g *Groups) sweep(now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for tenant, groups := range g.byTenant {
		for name, gr := range groups {
			for number, p := range gr.parts {
				if p.swept(now) {
					delete(gr.parts, number)
				}
			}
			if len(gr.parts) == 0 && gr.waiting.Load() == 0 {
				delete(groups, name)
			}
		}
		if len(groups) == 0 {
			delete(g.byTenant, tenant)
		}
	}
}

// swept has the partition look after what timed out. It reports true, and the partition is of no more use, where nobody has used it for a
// while and nothing is left to be done.
func (p *partition) swept(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.running:
		return false
	case p.nextPark > 0 && p.clock.now().UnixMicro() >= p.nextPark, p.unsaved && now.Sub(p.savedAt) >= keepPassed:
		p.sweep = true
		p.kick()
		return false
	case len(p.receives) > 0 || p.nextPark > 0 || now.Sub(p.used) < idlePartition:
		return false
	}
	p.close()
	return true
}

// drop forgets a group: with err those are answered who wait.
func (g *Groups) drop(gr *group, err error) {
	g.mu.Lock()
	if groups := g.byTenant[gr.tenant]; groups[gr.name] == gr {
		delete(groups, gr.name)
		if len(groups) == 0 {
			delete(g.byTenant, gr.tenant)
		}
	}
	parts := make([]*partition, 0, len(gr.parts))
	for _, p := range gr.parts {
		parts = append(parts, p)
	}
	g.mu.Unlock()
	for _, p := range parts {
		p.mu.Lock()
		p.close()
		waiting := p.receives
		p.receives = nil
		p.mu.Unlock()
		for _, r := range waiting {
			r.fail(err)
		}
	}
}

// use returns a group to be used, which is looked up where this process does not know it.
func (g *Groups) use(ctx context.Context, tenant domain.TenantID, name string) (*group, error) {
	g.mu.RLock()
	gr, closed := g.byTenant[tenant][name], g.closed
	g.mu.RUnlock()
	if closed {
		return nil, domain.Errorf(domain.CodeUnavailable, "", "the service is shutting down")
	}
	if gr != nil {
		return gr, nil
	}
	found, err := g.config.Store.Group(ctx, tenant, name)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if gr = g.byTenant[tenant][name]; gr != nil {
		return gr, nil
	}
	gr = &group{tenant: tenant, name: name, parts: make(map[int]*partition), asking: make(chan struct{}, 1)}
	gr.know(found)
	for _, other := range g.byTenant[tenant] {
		gr.asking, gr.recent = other.asking, other.recent
		break
	}
	if gr.recent == nil {
		gr.recent = &recent{Log: g.config.Store, groups: func() int { return g.inUse(tenant) }}
	}
	if g.byTenant[tenant] == nil {
		g.byTenant[tenant] = make(map[string]*group)
	}
	g.byTenant[tenant][name] = gr
	return gr, nil
}

// inUse is how many of a tenant's groups are in use.
func (g *Groups) inUse(tenant domain.TenantID) int {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return len(g.byTenant[tenant])
}

// partition returns a partition of a group that is in use.
func (g *Groups) partition(gr *group, number int) *partition {
	g.mu.RLock()
	p := gr.parts[number]
	g.mu.RUnlock()
	if p != nil {
		return p
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p = gr.parts[number]; p == nil {
		p = &partition{groups: g, group: gr, number: number, used: time.Now()}
		if p.gone = g.byTenant[gr.tenant][gr.name] != gr || g.closed; !p.gone {
			gr.parts[number] = p
		}
	}
	return p
}

// Wake tells that a log has moved, and Notice that another process has changed a group. They return at once.
func (g *Groups) Wake(head domain.Head) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	for _, gr := range g.byTenant[head.Tenant] {
		if gr.moved(head.Position) {
			gr.awaken(false)
		}
	}
}

// Notice tells that a group may have something to deliver. The zero name means every group of the tenant, and domain.Everyone
// every group there is.
func (g *Groups) Notice(tenant domain.TenantID, name string) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	switch {
	case tenant == domain.Everyone:
		for _, groups := range g.byTenant {
			for _, gr := range groups {
				gr.awaken(true)
			}
		}
	case name == "":
		for _, gr := range g.byTenant[tenant] {
			gr.awaken(true)
		}
	default:
		if gr := g.byTenant[tenant][name]; gr != nil {
			gr.awaken(true)
		}
	}
}

// changed has those who wait in a group look at it anew, after this process has changed it.
func (g *Groups) changed(tenant domain.TenantID, name string) {
	g.Notice(tenant, name)
	if g.config.Changed != nil {
		g.config.Changed(tenant, name)
	}
}

// awaken has those look again who wait in a group. Groups.mu must be held.
func (gr *group) awaken(stale bool) {
	for _, p := range gr.parts {
		p.awaken(stale)
	}
}

// Put makes a group, or changes one. A group keeps its from, ordering and number of partitions: others are
// domain.CodeConflict. Without From a new one begins at the start.
func (g *Groups) Put(ctx context.Context, tenant domain.TenantID, name string, definition domain.GroupDefinition) (status domain.GroupStatus, created bool, err error) {
	if err := domain.CheckGroupName("name", name); err != nil {
		return domain.GroupStatus{}, false, err
	}
	definition = withDefaults(definition)
	if err := checkDefinition(&definition); err != nil {
		return domain.GroupStatus{}, false, err
	}
	start, err := g.start(ctx, tenant, name, &definition)
	if err != nil {
		return domain.GroupStatus{}, false, err
	}
	if _, created, err = g.config.Store.PutGroup(ctx, tenant, name, definition, start); err != nil {
		return domain.GroupStatus{}, false, err
	}
	g.changed(tenant, name)
	status, err = g.statusOf(ctx, tenant, name)
	return status, created, err
}

// start is where a group's partitions begin to read, where it is new, and checks that it may be changed so where it is not.
func (g *Groups) start(ctx context.Context, tenant domain.TenantID, name string, definition *domain.GroupDefinition) (int64, error) {
	wanted := definition.From
	if wanted == "" {
		wanted = domain.From{}.String()
	}
	from, err := domain.ParseFrom("from", wanted)
	if err != nil {
		return 0, err
	}
	group, err := g.config.Store.Group(ctx, tenant, name)
	if failure, ok := errors.AsType[*domain.Error](err); ok && failure.Code == domain.CodeNotFound {
		definition.From = from.String()
		return resolveFrom(ctx, g.config.Store, tenant, from)
	}
	if err != nil {
		return 0, err
	}
	if definition.From == "" {
		definition.From = group.From
	} else {
		definition.From = from.String()
	}
	return 1, changeable(group, *definition)
}

// Get returns a group.
func (g *Groups) Get(ctx context.Context, tenant domain.TenantID, name string) (domain.GroupStatus, error) {
	return g.statusOf(ctx, tenant, name)
}

// List returns the groups behind the name after, by name, at most so many.
func (g *Groups) List(ctx context.Context, tenant domain.TenantID, after string, limit int) ([]domain.GroupStatus, error) {
	groups, err := g.config.Store.Groups(ctx, tenant, after, limit)
	if err != nil || len(groups) == 0 {
		return groups, err
	}
	floors, err := g.config.Store.Floors(ctx, tenant, nil, 1)
	if err != nil {
		return nil, err
	}
	for i := range groups {
		groups[i].RemovedTo = removedTo(floors, &groups[i].Selection)
	}
	return groups, nil
}

// Delete removes a group.
func (g *Groups) Delete(ctx context.Context, tenant domain.TenantID, name string) error {
	err := g.config.Store.DeleteGroup(ctx, tenant, name)
	g.changed(tenant, name)
	return err
}

// Pause stops or resumes deliveries. What is in flight can be answered all the same.
func (g *Groups) Pause(ctx context.Context, tenant domain.TenantID, name string, paused bool) (domain.GroupStatus, error) {
	if _, err := g.config.Store.PauseGroup(ctx, tenant, name, paused); err != nil {
		return domain.GroupStatus{}, err
	}
	g.changed(tenant, name)
	return g.statusOf(ctx, tenant, name)
}

// Seek moves a group: it goes on at the place. What is in flight or waits for a retry is given up, and dead letters stay. A
// position beyond the head is one that is yet to come. A ledger that cannot be read is made anew.
func (g *Groups) Seek(ctx context.Context, tenant domain.TenantID, name string, to domain.From) (domain.GroupStatus, error) {
	if to.Position < 0 {
		return domain.GroupStatus{}, domain.Errorf(domain.CodeInvalidRequest, "position", "it is %d; positions begin with 1", to.Position)
	}
	start, err := resolveFrom(ctx, g.config.Store, tenant, to)
	if err != nil {
		return domain.GroupStatus{}, err
	}
	group, err := g.config.Store.Group(ctx, tenant, name)
	if err != nil {
		return domain.GroupStatus{}, err
	}
	_, err = g.config.Store.SeekGroup(ctx, tenant, name, func(partition int, ledger []byte) ([]byte, domain.PartitionStatus, error) {
		l, err := openLedger(partition, domain.LedgerRow{Group: group, Ledger: ledger})
		if err != nil {
			g.config.Log.Warn("a seek makes a group's ledger anew, which cannot be read", "tenant", tenant.String(), "group", name, "partition", partition, "error", err)
			l = lostLedger(partition, group.Ordering == domain.OrderingStream)
		}
		l = l.sought(start - 1)
		return l.encode(), l.status(), nil
	})
	if err != nil {
		return domain.GroupStatus{}, err
	}
	g.changed(tenant, name)
	return g.statusOf(ctx, tenant, name)
}

// Receive asks for events.
type Receive struct {
	Batch  int           // at most so many; 0: the group's batch size
	Wait   time.Duration // for an event where none is due
	Member domain.GroupMemberID
	UpTo   int64 // nothing behind this position that was not delivered yet; 0: there is no such bound
}

// Receive leases events to a consumer: at most 8 MiB of them, or one. It waits for one where none is due. A member is given those of all
// its partitions, each partition's in their order. Where ctx ends before it returns, nothing stays leased. domain.CodeTooManyRequests: too many wait already.
func (g *Groups) Receive(ctx context.Context, tenant domain.TenantID, name string, wanted Receive) ([]domain.Delivery, error) {
	if wanted.UpTo < 0 {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "upTo", "it is %d; positions begin with 1", wanted.UpTo)
	}
	if wanted.Batch < 0 || wanted.Batch > domain.MaxBatchSize {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "batch", "it is %d; it must be from 1 to %d", wanted.Batch, domain.MaxBatchSize)
	}
	until := time.Now().Add(wanted.Wait)
	var verified []*partition
	for {
		gr, err := g.use(ctx, tenant, name)
		if err != nil {
			return nil, err
		}
		r, err := g.receive(ctx, gr, wanted)
		if err != nil {
			return nil, err
		}
		r.verified = verified
		wait, shared := time.Until(until), !wanted.Member.IsZero()
		if wait <= 0 {
			if len(r.at) == 0 {
				return nil, nil
			}
			r.tries = len(r.at)
		}
		if shared {
			wait = min(wait, max(g.rosterFor, leastWait)) // then its partitions may be others
		}
		if gr.waiting.Add(1) > maxWaiting {
			gr.waiting.Add(-1)
			return nil, domain.Errorf(domain.CodeTooManyRequests, "", "%d receives wait in this group already; try again later", maxWaiting)
		}
		deliveries, err := r.await(ctx, wait)
		gr.waiting.Add(-1)
		switch {
		case errors.Is(err, errForgotten):
			continue
		case shared && err == nil && len(deliveries) == 0 && time.Now().Before(until):
			verified = r.verified
			continue
		case shared && len(deliveries) > 0:
			if deliveries, err = r.fill(ctx, deliveries, g.fillFor); err == nil {
				gr.placed.note(deliveries)
			}
		}
		return deliveries, err
	}
}

// receive makes a request to the partitions that a consumer may receive from.
func (g *Groups) receive(ctx context.Context, gr *group, wanted Receive) (*receive, error) {
	known := *gr.known.Load()
	numbers := []int{0}
	switch {
	case known.Partitions > 0 && wanted.Member.IsZero():
		return nil, domain.Errorf(domain.CodeInvalidRequest, "memberId", "group %q has partitions, which its members share: join it, and receive as a member", gr.name)
	case known.Partitions > 0:
		roster, err := g.attend(ctx, gr, wanted.Member)
		if err != nil {
			return nil, err
		}
		// The first is asked first: each in its turn.
		numbers = roster.partitions(wanted.Member)
		if n := uint64(len(numbers)); n > 0 {
			begin := gr.turn.Add(1) % n
			numbers = slices.Concat(numbers[begin:], numbers[:begin])
		}
	case !wanted.Member.IsZero():
		return nil, domain.Errorf(domain.CodeInvalidRequest, "memberId", "group %q has no partitions, and so no members; leave memberId out", gr.name)
	}
	r := &receive{batch: wanted.Batch, member: wanted.Member, upTo: wanted.UpTo, done: make(chan struct{}), tries: -1}
	for _, number := range numbers {
		r.at = append(r.at, g.partition(gr, number))
	}
	return r, nil
}

// Ack settles events. Outcomes are in the order of attempts.
func (g *Groups) Ack(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt) ([]domain.Outcome, error) {
	return g.answer(ctx, tenant, name, attempts, newAck)
}

// Nack says that events could not be handled.
func (g *Groups) Nack(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt, nack domain.Nack) ([]domain.Outcome, error) {
	switch {
	case nack.Action == "":
		nack.Action = domain.NackRetry
	case nack.Action != domain.NackRetry && nack.Action != domain.NackPark && nack.Action != domain.NackSkip:
		return nil, domain.Errorf(domain.CodeInvalidRequest, "action", "%q is no action; it is retry, park or skip", clip(string(nack.Action)))
	}
	if nack.Delay > domain.MaxBackoff {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "delay", "it is %s; at most %s are allowed", nack.Delay, domain.MaxBackoff)
	}
	if len(nack.Reason) > domain.MaxReasonBytes {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "reason", "it has %d bytes; at most %d are allowed", len(nack.Reason), domain.MaxReasonBytes)
	}
	return g.answer(ctx, tenant, name, attempts, func(attempts []domain.Attempt) *answer { return newNack(attempts, nack) })
}

// Extend moves deadlines to now and by; 0: by the group's AckTimeout.
func (g *Groups) Extend(ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt, by time.Duration) ([]domain.Outcome, error) {
	if by != 0 && (by < domain.MinAckTimeout || by > domain.MaxAckTimeout) {
		return nil, domain.Errorf(domain.CodeInvalidRequest, "by", "it is %s; it must be from %s to %s", by, domain.MinAckTimeout, domain.MaxAckTimeout)
	}
	return g.answer(ctx, tenant, name, attempts, func(attempts []domain.Attempt) *answer { return newExtend(attempts, by) })
}

// answer has the partitions apply what a consumer says, each its part.
func (g *Groups) answer(
	ctx context.Context, tenant domain.TenantID, name string, attempts []domain.Attempt, newAnswer func([]domain.Attempt) *answer,
) ([]domain.Outcome, error) {
	if len(attempts) == 0 {
		return nil, nil
	}
	for {
		gr, err := g.use(ctx, tenant, name)
		if err != nil {
			return nil, err
		}
		var outcomes []domain.Outcome
		if gr.known.Load().Partitions == 0 {
			outcomes, err = g.partition(gr, 0).ask(ctx, newAnswer(attempts))
		} else {
			outcomes, err = g.answerPartitions(ctx, gr, attempts, newAnswer)
		}
		if !errors.Is(err, errForgotten) {
			return outcomes, err
		}
	}
}

// DeadLetters are the dead letters behind a position, at most so many, each with its event.
func (g *Groups) DeadLetters(ctx context.Context, tenant domain.TenantID, name string, after int64, limit int) ([]DeadLetter, error) {
	found, err := g.config.Store.DeadLetters(ctx, tenant, name, after, limit)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	positions := make([]int64, len(found))
	for i := range found {
		positions[i] = found[i].Position
	}
	events, err := g.config.Store.ReadPositions(ctx, tenant, positions)
	if err != nil {
		return nil, err
	}
	letters := make([]DeadLetter, len(found))
	for i := range found {
		d := &found[i]
		letters[i].DeadLetter = *d
		// What is known of an event that is no longer in the log.
		letters[i].Event = domain.Event{ID: d.EventID, Stream: d.Stream, Version: d.Version, Position: d.Position, Type: d.Type}
		if len(events) > 0 && events[0].Position == d.Position {
			letters[i].Event, events = events[0], events[1:]
		}
	}
	return letters, nil
}

// DeadLetter is a dead letter with its event, which has neither data nor times where the log no longer has it.
type DeadLetter struct {
	domain.DeadLetter
	Event domain.Event
}

// Replay has one dead letter, or with the zero id all, delivered again, and returns how many these are.
func (g *Groups) Replay(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error) {
	replayed, err := g.config.Store.ReplayDeadLetters(ctx, tenant, name, id)
	g.changed(tenant, name)
	return replayed, err
}

// Discard removes one dead letter, or with the zero id all, and returns how many these were.
func (g *Groups) Discard(ctx context.Context, tenant domain.TenantID, name string, id domain.EventID) (int64, error) {
	discarded, err := g.config.Store.DiscardDeadLetters(ctx, tenant, name, id)
	g.changed(tenant, name)
	return discarded, err
}
