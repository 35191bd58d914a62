package proof

import (
	"fmt"
	"slices"
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
)

// Finding is what differs from the sealed log.
type Finding struct {
	Problem     Problem
	First, Last int64 // positions; the same, unless more cannot be told apart
	Detail      string
}

// Summary counts the positions of a log by how they were found.
type Summary struct {
	Intact   int64 // the event is the one that was sealed
	Erased   int64 // its envelope is, and a receipt explains that its content was erased
	Expired  int64 // a receipt explains that it was removed
	Absent   int64 // there was no event when the position was sealed
	Problems int64
}

// Verification compares the events of a log with a checkpoint, in the order of their positions and in bounded memory. Set
// its exported fields, call Add for each event, and then End.
type Verification struct {
	Checkpoint Checkpoint
	Read       func(block int64) (Block, error) // returns the blocks, in order
	Found      func(Finding)                    // called for each finding

	summary Summary
	next    int64 // the position that comes next, minus one
	block   Block
	fresh   bool           // it was read again
	expired map[int64]bool // positions of the block, by receipts
	erased  map[int64]bool

	hasher   Hasher
	leaves   Tree // over the stored leaves
	subtree  Tree // over the leaves of the current tile
	tiles    Tree // over the stored roots of tiles, and the leaves after them
	forged   []int64
	suspects []suspect
}

// suspect is an event that was not sealed at its position.
type suspect struct {
	event  Event
	leaf   Leaf // of its position
	detail string
}

// What is remembered of suspects, to find out which have changed places.
const (
	maxSuspects     = 200
	maxSuspectBytes = 64 << 10
)

func (v *Verification) find(problem Problem, first, last int64, detail string, args ...any) {
	v.summary.Problems++
	v.Found(Finding{problem, first, last, fmt.Sprintf(detail, args...)})
}

// Add compares the next event. Events after the checkpoint are ignored.
func (v *Verification) Add(event *Event) error {
	switch {
	case event.Position > v.Checkpoint.Size:
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
	if problem != "" && !v.fresh {
		if err := v.refresh(); err != nil {
			return err
		}
		leaf = v.block.Leaves[(v.next-1)%BlockSize]
		problem, detail = v.judge(event, leaf)
	}
	switch {
	case problem == Changed:
		v.doubt(event, leaf, detail)
	case problem != "":
		v.find(problem, event.Position, event.Position, "%s, %s in %s: %s", event.ID, event.Type, event.Stream, detail)
	case leaf.Salt == Salt{}:
		v.summary.Erased++
	default:
		v.summary.Intact++
	}
	return nil
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
	case content != leaf.Content:
		return Changed, "its data, metadata or time differs"
	case v.hasher.Leaf(event, content) != leaf.Hash:
		return Changed, "its id, stream, version or type differs"
	case leaf.Salt == Salt{} && !v.erased[event.Position]:
		return Unsettled, "its content cannot be compared, because the salt was erased without a receipt"
	}
	return "", ""
}

// doubt keeps an event that differs from its leaf until the end, where it may turn out to be another one's.
func (v *Verification) doubt(event *Event, leaf Leaf, detail string) {
	if len(v.suspects) == maxSuspects || len(event.Data)+len(event.Metadata) > maxSuspectBytes {
		v.find(Changed, event.Position, event.Position, "%s, %s in %s: %s", event.ID, event.Type, event.Stream, detail)
		return
	}
	kept := *event
	kept.Data, kept.Metadata = slices.Clone(event.Data), slices.Clone(event.Metadata)
	v.suspects = append(v.suspects, suspect{kept, leaf, detail})
}

// skipTo looks at the positions before one, which have no event.
func (v *Verification) skipTo(position int64) error {
	for v.next < position-1 {
		leaf, err := v.leaf()
		if err != nil {
			return err
		}
		if leaf.Content != (Hash{}) && !v.expired[v.next] && !v.fresh {
			if err := v.refresh(); err != nil {
				return err
			}
		}
		switch {
		case leaf.Content == Hash{} && leaf.Hash == Absent(v.next):
			v.summary.Absent++
		case v.expired[v.next]:
			v.summary.Expired++
		default:
			v.find(Missing, v.next, v.next, "there is no event, and no receipt for its removal")
		}
	}
	return nil
}

// leaf takes the leaf of the next position.
func (v *Verification) leaf() (Leaf, error) {
	index := v.next % BlockSize
	if index == 0 {
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
	} else if v.next == v.Checkpoint.Size {
		for at := index / tile * tile; at <= index; at++ {
			v.tiles.Add(0, v.block.Leaves[at].Hash, nil)
		}
	}
	return leaf, nil
}

// refresh reads the current block again: retention or an erasure may have come after it was read, and before its events
// were. What was taken of it for the tree stays.
func (v *Verification) refresh() error {
	number, before := (v.next-1)/BlockSize, v.block.Leaves
	if err := v.readBlock(number); err != nil {
		return err
	}
	v.fresh = true
	for i := range min(len(before), len(v.block.Leaves)) {
		if before[i].Hash != v.block.Leaves[i].Hash {
			return fmt.Errorf("the leaf of position %d was changed between two reads of it", number*BlockSize+int64(i)+1)
		}
	}
	return nil
}

// readBlock reads a block, and what its receipts name.
func (v *Verification) readBlock(number int64) (err error) {
	v.fresh = false
	if v.block, err = v.Read(number); err != nil {
		return err
	}
	want := min(BlockSize, v.Checkpoint.Size-number*BlockSize)
	if int64(len(v.block.Leaves)) < want || int64(len(v.block.Tiles)) < want/tile {
		return fmt.Errorf("the service has no leaves for all positions from %d to %d, though it has signed a checkpoint with them", number*BlockSize+1, number*BlockSize+want)
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

// End looks at the positions after the last event, and at the whole tree.
func (v *Verification) End() (Summary, error) {
	if err := v.skipTo(v.Checkpoint.Size + 1); err != nil {
		return v.summary, err
	}
	v.judgeSuspects()
	if v.leaves.Root() != v.Checkpoint.Root {
		if len(v.forged) == 0 || v.tiles.Root() != v.Checkpoint.Root {
			v.find(Forged, 1, v.Checkpoint.Size, "the stored leaves and subtrees do not lead to the signed root, so differences may lack above")
		} else {
			for _, first := range v.forged {
				v.find(Forged, first, first+tile-1, "the stored leaves were changed: at least one of these events, or its leaf, is not the one that was sealed")
			}
		}
	}
	return v.summary, nil
}

// judgeSuspects finds out which suspects were sealed at the position of another.
func (v *Verification) judgeSuspects() {
	for _, s := range v.suspects {
		sealedAt := int64(0)
		for _, other := range v.suspects {
			event := s.event
			event.Position = other.event.Position
			if other.leaf.Salt != (Salt{}) && v.hasher.Leaf(&event, v.hasher.Content(&event, other.leaf.Salt)) == other.leaf.Hash {
				sealedAt = event.Position
			}
		}
		if sealedAt > 0 {
			v.find(Moved, s.event.Position, s.event.Position, "%s, %s in %s, was sealed at position %d", s.event.ID, s.event.Type, s.event.Stream, sealedAt)
		} else {
			v.find(Changed, s.event.Position, s.event.Position, "%s, %s in %s: %s", s.event.ID, s.event.Type, s.event.Stream, s.detail)
		}
	}
}
