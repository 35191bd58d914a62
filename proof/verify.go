package proof

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// BlockSize is how many positions a block has. Block n begins at position n*BlockSize + 1.
const BlockSize = 4096

// tile is how many leaves a subtree of Block.Tiles has, and tileLevel the logarithm of that.
const (
	tile      = 256
	tileLevel = 8
)

// Leaf is what is stored for a position.
type Leaf struct {
	Hash    Hash
	Content Hash // zero: there was no event when it was sealed
	Salt    Salt // zero: it was erased, or there was no event
}

// Block is what is stored for the positions of a block, as far as they are sealed.
type Block struct {
	Leaves   []Leaf
	Tiles    []Hash    // the roots of complete subtrees of 256 leaves
	Receipts []Receipt // whose signatures were verified
}

// Problem is a kind of finding.
type Problem string

const (
	Changed   Problem = "changed"   // the event is not the one that was sealed
	Moved     Problem = "moved"     // it is one that was sealed at another position
	Missing   Problem = "missing"   // there is no event, and no receipt for its removal
	Added     Problem = "added"     // there was no event when the position was sealed
	Unsettled Problem = "unsettled" // the salt was erased without a receipt
	Disorder  Problem = "disorder"  // it comes after an event of a later position
	Forged    Problem = "forged"    // the stored leaves were changed, too
	NotSealed Problem = "unsealed"  // it should have been sealed long ago
)

// SealedWithin is how old an event after the checkpoint may be, without a backlog. It may be as much newer than now,
// since clocks differ.
const SealedWithin = time.Minute

// Finding is what differs from the sealed log.
type Finding struct {
	Problem     Problem
	First, Last int64 // positions; the same, unless more cannot be told apart
	Detail      string
}

// Summary counts the positions of a log by how they were found.
type Summary struct {
	Size     int64 // how many positions were compared
	Intact   int64 // the event is the one that was sealed
	Erased   int64 // its envelope is, and a receipt explains that its content was erased
	Expired  int64 // a receipt explains that it was removed
	Absent   int64 // there was no event when the position was sealed
	Problems int64
	Later    int64 // events after the checkpoint, which are not compared
}

// Verification compares the events of a log with a checkpoint, in the order of their positions and in bounded memory.
// Set its exported fields, call Add for each event, and then End.
//
// Events may be removed or erased while they are read. So what differs in a block is judged again when the block's last
// event was read, with leaves and receipts that are read after that.
type Verification struct {
	Checkpoint Checkpoint
	Read       func(block int64) (Block, error) // returns the blocks, in order; some repeatedly
	Found      func(Finding)                    // called for each finding

	// Partial means that the events may end before the checkpoint does, as in an older export. They are compared up to
	// the last one. Prove must return the consistency proof (RFC 9162, section 2.1.4) from the tree of that size to the
	// checkpoint.
	Partial bool
	Prove   func(size int64) ([]Hash, error)

	// Now, if it is set, is the time when the checkpoint was requested: events that are not sealed must be of this
	// time.
	Now time.Time

	summary Summary
	next    int64 // the position that comes next, minus one
	block   Block
	expired map[int64]bool // positions of the block, by receipts
	erased  map[int64]bool
	open    []difference // in the block

	hasher   Hasher
	leaves   Tree // over the stored leaves
	subtree  Tree // over the leaves of the current tile
	tiles    Tree // over the stored roots of tiles, and at the end the leaves after them
	forged   []int64
	suspects []difference // that may have changed places
	late     []int64      // positions of the first and the last event that should be sealed
	lateness int64        // how many of these there are
}

// difference is a position that is not as it was sealed.
type difference struct {
	event   *Event // nil: there is none. Its content is missing if there are too many others
	at      int64
	problem Problem
	detail  string
	leaf    Leaf // of its position
}

// What is remembered of differences, to find out which have changed places.
const (
	maxSuspects     = 200
	maxSuspectBytes = 64 << 10
)

// maxReads is how often a block is read, until two readings agree.
const maxReads = 5

func (v *Verification) find(problem Problem, first, last int64, detail string, args ...any) {
	v.summary.Problems++
	v.Found(Finding{problem, first, last, fmt.Sprintf(detail, args...)})
}

// Add compares the next event. Of events after the checkpoint, only the time is looked at.
func (v *Verification) Add(event *Event) error {
	switch {
	case event.Position > v.Checkpoint.Size:
		v.addLater(event)
		return nil
	case event.Position <= v.next:
		v.find(Disorder, event.Position, event.Position, "%s comes after the event of position %d", event.ID, v.next)
		return nil
	}
	if err := v.skipTo(event.Position); err != nil {
		return err
	}
	leaf, err := v.leaf()
	if err != nil {
		return err
	}
	problem, detail := v.judge(event, leaf)
	switch {
	case problem != "":
		v.keep(event, problem, detail, leaf)
	case leaf.Salt == Salt{}:
		v.summary.Erased++
	default:
		v.summary.Intact++
	}
	return nil
}

// addLater looks at an event after the checkpoint.
func (v *Verification) addLater(event *Event) {
	v.summary.Later++
	if v.Now.IsZero() || v.Now.Sub(event.RecordedAt).Abs() <= SealedWithin {
		return
	}
	if v.lateness++; len(v.late) < 2 {
		v.late = append(v.late, event.Position)
	}
	v.late[len(v.late)-1] = event.Position
}

// judge compares an event with its leaf. The problem is empty if there is none.
func (v *Verification) judge(event *Event, leaf Leaf) (problem Problem, detail string) {
	if leaf.Content == (Hash{}) {
		return Added, "it was not there when the position was sealed"
	}
	content := leaf.Content
	if leaf.Salt != (Salt{}) {
		content = v.hasher.Content(event, leaf.Salt)
	}
	switch {
	case content != leaf.Content && event.Unreadable:
		return Changed, "it is marked as unreadable, and was not when it was sealed"
	case content != leaf.Content:
		return Changed, "its data, metadata or time differs"
	case v.hasher.Leaf(event, content) != leaf.Hash:
		return Changed, "its id, stream, version or type differs"
	case leaf.Salt == Salt{} && !v.erased[event.Position]:
		return Unsettled, "its content cannot be compared, because the salt was erased without a receipt"
	}
	return "", ""
}

// keep keeps an event that differs from its leaf, to judge it again.
func (v *Verification) keep(event *Event, problem Problem, detail string, leaf Leaf) {
	kept := *event
	kept.Data, kept.Metadata = nil, nil
	if len(v.open)+len(v.suspects) < maxSuspects && len(event.Data)+len(event.Metadata) <= maxSuspectBytes {
		kept.Data, kept.Metadata = slices.Clone(event.Data), slices.Clone(event.Metadata)
	}
	v.open = append(v.open, difference{&kept, event.Position, problem, detail, leaf})
}

// skipTo looks at the positions before one, which have no event.
func (v *Verification) skipTo(position int64) error {
	for v.next < position-1 {
		leaf, err := v.leaf()
		if err != nil {
			return err
		}
		switch {
		case leaf.Content == Hash{} && leaf.Hash == Absent(v.next):
			v.summary.Absent++
		case v.expired[v.next]:
			v.summary.Expired++
		default:
			v.open = append(v.open, difference{nil, v.next, Missing, "there is no event, and no receipt for its removal", leaf})
		}
	}
	return nil
}

// leaf takes the leaf of the next position.
func (v *Verification) leaf() (Leaf, error) {
	index := v.next % BlockSize
	if index == 0 {
		if err := v.settle(); err != nil {
			return Leaf{}, err
		}
		if err := v.readBlock(v.next / BlockSize); err != nil {
			return Leaf{}, err
		}
	}
	leaf := v.block.Leaves[index]
	v.next++
	v.leaves.Add(0, leaf.Hash, nil)
	v.subtree.Add(0, leaf.Hash, nil)
	if v.next%tile == 0 {
		root := v.block.Tiles[index/tile]
		if v.subtree.Root() != root {
			v.forged = append(v.forged, v.next-tile+1)
		}
		v.tiles.Add(tileLevel, root, nil)
		v.subtree = Tree{}
	}
	return leaf, nil
}

// settle judges what differs in the current block again, with what is stored for the block now.
func (v *Verification) settle() error {
	for reads := 1; len(v.open) > 0; reads++ {
		number, before, expired, erased := (v.next-1)/BlockSize, v.block, v.expired, v.erased
		if reads == maxReads {
			return fmt.Errorf("the leaves and receipts of positions %d to %d change all the time; try again later",
				number*BlockSize+1, (number+1)*BlockSize)
		}
		if err := v.readBlock(number); err != nil {
			return err
		}
		same := min(len(before.Leaves), len(v.block.Leaves)) // the log may grow
		for i := range same {
			if before.Leaves[i].Hash != v.block.Leaves[i].Hash {
				return fmt.Errorf("the leaf of position %d was changed between two reads of it", number*BlockSize+int64(i)+1)
			}
		}
		v.open = slices.DeleteFunc(v.open, v.explained)
		if slices.Equal(before.Leaves[:same], v.block.Leaves[:same]) && maps.Equal(expired, v.expired) &&
			maps.Equal(erased, v.erased) {
			break
		}
	}
	for _, d := range v.open {
		switch {
		case d.event == nil:
			v.find(d.problem, d.at, d.at, "%s", d.detail)
		case d.problem == Changed && d.event.Data != nil:
			v.suspects = append(v.suspects, d)
		default:
			v.findEvent(d)
		}
	}
	v.open = v.open[:0]
	return nil
}

// explained reports whether what is stored now explains a difference, and then counts the position.
func (v *Verification) explained(d difference) bool {
	leaf := v.block.Leaves[(d.at-1)%BlockSize]
	switch {
	case d.event == nil && v.expired[d.at]:
		v.summary.Expired++
		return true
	case d.event == nil || leaf.Salt != Salt{}:
		return false
	}
	if problem, _ := v.judge(d.event, leaf); problem != "" {
		return false
	}
	v.summary.Erased++
	return true
}

func (v *Verification) findEvent(d difference) {
	v.find(d.problem, d.at, d.at, "%s, %s in %s: %s", d.event.ID, d.event.Type, d.event.Stream, d.detail)
}

// readBlock reads a block, and what its receipts name.
func (v *Verification) readBlock(number int64) (err error) {
	if v.block, err = v.Read(number); err != nil {
		return err
	}
	want := min(BlockSize, v.Checkpoint.Size-number*BlockSize)
	if int64(len(v.block.Leaves)) < want || int64(len(v.block.Tiles)) < want/tile {
		return fmt.Errorf("the service lacks leaves of positions %d to %d, though it has signed a checkpoint with them",
			number*BlockSize+1, number*BlockSize+want)
	}
	v.expired, v.erased = make(map[int64]bool), make(map[int64]bool)
	for _, receipt := range v.block.Receipts {
		for _, position := range receipt.Positions {
			switch receipt.Kind {
			case Expired:
				v.expired[position] = true
			case Erased:
				v.erased[position] = true
			}
		}
	}
	return nil
}

// End looks at the positions after the last event, unless the events are Partial, and at the tree.
func (v *Verification) End() (Summary, error) {
	if !v.Partial || v.summary.Later > 0 {
		if err := v.skipTo(v.Checkpoint.Size + 1); err != nil {
			return v.summary, err
		}
	}
	if err := v.settle(); err != nil {
		return v.summary, err
	}
	v.judgeSuspects()
	if v.lateness > 0 {
		v.find(NotSealed, v.late[0], v.late[len(v.late)-1],
			"events that are not sealed, though they were not recorded within the last minute: %d", v.lateness)
	}
	v.summary.Size = v.next
	return v.summary, v.compareRoot()
}

// compareRoot compares the stored leaves with the signed root.
func (v *Verification) compareRoot() error {
	if v.next == 0 {
		return nil
	}
	leadsToRoot := func(tree *Tree) bool { return tree.Root() == v.Checkpoint.Root }
	if v.next < v.Checkpoint.Size {
		hashes, err := v.Prove(v.next)
		if err != nil {
			return err
		}
		leadsToRoot = func(tree *Tree) bool {
			return tlog.CheckTree(hashes, v.Checkpoint.Size, v.Checkpoint.Root, v.next, tree.Root()) == nil
		}
	}
	if leadsToRoot(&v.leaves) {
		return nil
	}
	for at := v.next / tile * tile; at < v.next; at++ {
		v.tiles.Add(0, v.block.Leaves[at%BlockSize].Hash, nil)
	}
	if len(v.forged) == 0 || !leadsToRoot(&v.tiles) {
		v.find(Forged, 1, v.next,
			"the stored leaves do not lead to the signed root; there may be more differences than are listed")
		return nil
	}
	for _, first := range v.forged {
		v.find(Forged, first, first+tile-1,
			"the stored leaves were changed: at least one of these events, or its leaf, is not the one that was sealed")
	}
	return nil
}

// judgeSuspects finds out which suspects were sealed at the position of another.
func (v *Verification) judgeSuspects() {
	for _, s := range v.suspects {
		for _, other := range v.suspects {
			event := *s.event
			event.Position = other.at
			if other.leaf.Salt != (Salt{}) &&
				v.hasher.Leaf(&event, v.hasher.Content(&event, other.leaf.Salt)) == other.leaf.Hash {
				s.problem, s.detail = Moved, fmt.Sprintf("it was sealed at position %d", other.at)
			}
		}
		v.findEvent(s)
	}
}
