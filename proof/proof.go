// Package proof says how a sealed log proves what it contains: the leaves of its Merkle tree, its checkpoints, and the
// receipts for what was removed. It only computes, so services, clients and auditors can all use it. Start with Event
// and Checkpoint.
//
// The tree is that of RFC 6962, and checkpoints are those of C2SP's tlog-checkpoint, as transparency logs have them
// (golang.org/x/mod/sumdb/tlog). Position p is leaf p-1. A leaf commits to an event's envelope and to a salted hash of
// its content. Once the salt is gone, the hash says nothing about the content, while the leaf can still be computed.
package proof

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"
)

// SaltBytes is the length of a salt.
const SaltBytes = 16

// Salt makes the hash of a content unpredictable. The zero value means that it was erased.
type Salt [SaltBytes]byte

// Hash is a SHA-256 hash.
type Hash = tlog.Hash

// Event is an event as a leaf commits to it. Tags are left out, since retagging changes them.
type Event struct {
	Position   int64
	ID         string
	Stream     string
	Version    int64
	Type       string
	RecordedAt time.Time
	OccurredAt time.Time // zero: not given
	Data       []byte    // in the form of Canonical
	Metadata   []byte    // likewise; nil: there is none
	Unreadable bool      // PostgreSQL cannot print data and metadata
}

// Hasher computes leaves. It reuses its memory, so it is for one goroutine. The zero value is ready to use.
type Hasher struct{ buffer []byte }

// Content returns the salted hash of an event's content: SHA-256 of the salt and four lines without the last line's
// end. The lines are the recorded time and, if there is one, the event's own time, in microseconds since 1970, the
// data, and the metadata. For an unreadable event, the word unreadable replaces data and metadata.
func (h *Hasher) Content(e *Event, salt Salt) Hash {
	b := append(h.buffer[:0], salt[:]...)
	b = strconv.AppendInt(b, e.RecordedAt.UnixMicro(), 10)
	b = append(b, '\n')
	if !e.OccurredAt.IsZero() {
		b = strconv.AppendInt(b, e.OccurredAt.UnixMicro(), 10)
	}
	b = append(b, '\n')
	if e.Unreadable {
		b = append(b, "unreadable\n"...)
	} else {
		b = append(append(append(b, e.Data...), '\n'), e.Metadata...)
	}
	h.buffer = b
	return sha256.Sum256(b)
}

// Leaf returns the leaf hash of an event whose content has the given hash. Its record has seven lines: a title, the
// position, id, stream, version and type, and the hash in hexadecimal digits.
func (h *Hasher) Leaf(e *Event, content Hash) Hash {
	b := append(h.buffer[:0], 0) // as RFC 6962 begins leaves
	b = append(b, "manifold event v1\n"...)
	b = strconv.AppendInt(b, e.Position, 10)
	b = append(append(append(append(append(b, '\n'), e.ID...), '\n'), e.Stream...), '\n')
	b = strconv.AppendInt(b, e.Version, 10)
	b = append(append(append(b, '\n'), e.Type...), '\n')
	b = append(hex.AppendEncode(b, content[:]), '\n')
	h.buffer = b
	return sha256.Sum256(b)
}

// Absent returns the leaf hash of a position without an event: retention had removed it before it was sealed.
func Absent(position int64) Hash {
	return tlog.RecordHash(fmt.Appendf(nil, "manifold absent v1\n%d\n", position))
}

// Tree is a growing Merkle tree, of which only the right edge is kept. The zero value is the empty tree.
type Tree struct {
	size int64
	edge [63]Hash // [level] is the complete subtree of 1<<level leaves, if the size has that bit
}

// Size returns the number of leaves.
func (t *Tree) Size() int64 { return t.size }

// Add adds a complete subtree of 1<<level leaves. The size must be a multiple of that. completed is called for each
// larger subtree that it completes, with its level; nil: nothing is called.
func (t *Tree) Add(level int, hash Hash, completed func(level int, hash Hash)) {
	added := int64(1) << level
	for ; t.size>>level&1 == 1; level++ {
		hash = tlog.NodeHash(t.edge[level], hash)
		if completed != nil {
			completed(level+1, hash)
		}
	}
	t.edge[level] = hash
	t.size += added
}

// Root returns the tree's root hash.
func (t *Tree) Root() Hash {
	if t.size == 0 {
		return sha256.Sum256(nil)
	}
	var root Hash
	empty := true
	for level := range t.edge {
		switch {
		case t.size>>level&1 == 0:
		case empty:
			root, empty = t.edge[level], false
		default:
			root = tlog.NodeHash(t.edge[level], root)
		}
	}
	return root
}

// Edge returns the hashes that NewTree makes the tree of, the smallest subtree first.
func (t *Tree) Edge() []byte {
	var b []byte
	for level := range t.edge {
		if t.size>>level&1 == 1 {
			b = append(b, t.edge[level][:]...)
		}
	}
	return b
}

// NewTree returns the tree of a size with an edge.
func NewTree(size int64, edge []byte) (*Tree, error) {
	t := &Tree{size: size}
	for level := range t.edge {
		if size>>level&1 == 0 {
			continue
		}
		if len(edge) < len(t.edge[level]) {
			return nil, fmt.Errorf("the edge of a tree with %d leaves is too short", size)
		}
		edge = edge[copy(t.edge[level][:], edge):]
	}
	if size < 0 || len(edge) > 0 {
		return nil, fmt.Errorf("the edge of a tree with %d leaves is too long", size)
	}
	return t, nil
}

// Checkpoint is the state of a log's tree.
type Checkpoint struct {
	Origin string // names the log: the name of the signing keys, a slash, and the tenant
	Size   int64
	Root   Hash
}

// Text returns the checkpoint in C2SP's format, ready to be signed.
func (c Checkpoint) Text() string { return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, c.Root) }

// ParseCheckpoint parses the text of a checkpoint. Lines after the third are ignored, as C2SP's format asks.
func ParseCheckpoint(text string) (c Checkpoint, err error) {
	lines := strings.Split(text, "\n")
	if len(lines) < 4 || lines[0] == "" {
		return c, fmt.Errorf("it is not a checkpoint: it has too few lines")
	}
	c.Origin = lines[0]
	c.Size, err = strconv.ParseInt(lines[1], 10, 64)
	if err != nil || c.Size < 0 || strconv.FormatInt(c.Size, 10) != lines[1] {
		return c, fmt.Errorf("it is not a checkpoint: the second line must be a size, got %.40q", lines[1])
	}
	if c.Root, err = tlog.ParseHash(lines[2]); err != nil {
		return c, fmt.Errorf("it is not a checkpoint: the third line must be a hash, got %.60q", lines[2])
	}
	return c, nil
}
