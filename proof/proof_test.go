package proof_test

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/manifold-es/manifold/proof"
)

// At every size the root is that of tlog, also if the tree is stored and made again, or made of larger subtrees.
func TestTreeIsThatOfTransparencyLogs(t *testing.T) {
	t.Parallel()
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		hashes := make([]tlog.Hash, len(indexes))
		for i, index := range indexes {
			hashes[i] = stored[index]
		}
		return hashes, nil
	})
	tree, tiles := &proof.Tree{}, &proof.Tree{}
	var rest []proof.Hash // leaves after the last tile
	for n := range int64(1200) {
		if n > 0 {
			want, err := tlog.TreeHash(n, reader)
			if err != nil || tree.Root() != want {
				t.Fatalf("with %d leaves the root is %s, %v; want %s", n, tree.Root(), err, want)
			}
			whole := *tiles
			for _, leaf := range rest {
				whole.Add(0, leaf, nil)
			}
			if whole.Root() != want {
				t.Fatalf("with %d leaves the root over subtrees differs", n)
			}
		}
		leaf := proof.Absent(n + 1)
		hashes, err := tlog.StoredHashesForRecordHash(n, leaf, reader)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, hashes...)
		rest = append(rest, leaf)
		tree.Add(0, leaf, func(level int, hash proof.Hash) {
			if hash != hashes[level] {
				t.Fatalf("leaf %d completes a different subtree of level %d", n, level)
			}
			if level == 8 {
				tiles.Add(8, hash, nil)
				rest = nil
			}
		})
		if tree, err = proof.NewTree(tree.Size(), tree.Edge()); err != nil {
			t.Fatal(err)
		}
	}
	for _, edge := range [][]byte{nil, make([]byte, 31), make([]byte, 65)} {
		if _, err := proof.NewTree(2, edge); err == nil {
			t.Errorf("an edge of %d bytes is accepted for one hash", len(edge))
		}
	}
}

// Whatever differs between two events, their leaves differ; without the content, the envelope still has its leaf.
func TestLeavesDiffer(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 3, 1, 9, 0, 0, 1000, time.UTC)
	base := proof.Event{
		Position: 7, ID: "i", Stream: "order-1", Version: 3, Type: "Placed", RecordedAt: at, Data: []byte(`{"a": 1}`),
	}
	salt := proof.Salt{1}
	var hasher proof.Hasher
	leaf := func(e proof.Event, salt proof.Salt) proof.Hash { return hasher.Leaf(&e, hasher.Content(&e, salt)) }
	seen := map[proof.Hash]string{
		leaf(base, salt): "the event", leaf(base, proof.Salt{2}): "another salt", proof.Absent(7): "no event",
	}
	for name, change := range map[string]func(*proof.Event){
		"position":   func(e *proof.Event) { e.Position++ },
		"id":         func(e *proof.Event) { e.ID += "j" },
		"stream":     func(e *proof.Event) { e.Stream += "1" },
		"version":    func(e *proof.Event) { e.Version++ },
		"type":       func(e *proof.Event) { e.Type += "d" },
		"recorded":   func(e *proof.Event) { e.RecordedAt = at.Add(time.Microsecond) },
		"occurred":   func(e *proof.Event) { e.OccurredAt = at },
		"data":       func(e *proof.Event) { e.Data = []byte(`{"a": 2}`) },
		"metadata":   func(e *proof.Event) { e.Metadata = []byte(`{}`) },
		"unreadable": func(e *proof.Event) { e.Unreadable = true },
	} {
		changed := base
		change(&changed)
		hash := leaf(changed, salt)
		if other, found := seen[hash]; found {
			t.Errorf("a changed %s has the leaf of %s", name, other)
		}
		seen[hash] = name
	}
	if len(seen) != 13 {
		t.Errorf("there are %d leaves", len(seen))
	}
	erased := base
	content := hasher.Content(&base, salt)
	erased.Data = []byte("null")
	if hasher.Leaf(&erased, content) != leaf(base, salt) {
		t.Error("the leaf of an erased event cannot be computed from its envelope and the hash")
	}
}

func TestCheckpointsAndReceiptsAreParsed(t *testing.T) {
	t.Parallel()
	tree := &proof.Tree{}
	tree.Add(0, proof.Absent(1), nil)
	checkpoint := proof.Checkpoint{Origin: "manifold.1/t", Size: 1, Root: tree.Root()}
	if got, err := proof.ParseCheckpoint(checkpoint.Text() + "an extension\n"); err != nil || got != checkpoint {
		t.Errorf("it is %+v, %v", got, err)
	}
	root := checkpoint.Root.String() + "\n"
	for _, bad := range []string{"", "a\n1\n", "a\n-1\n" + root, "a\n01\n" + root, "a\n1\nshort\n", "\n1\n" + root} {
		if got, err := proof.ParseCheckpoint(bad); err == nil {
			t.Errorf("%q is the checkpoint %+v", bad, got)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		receipt := proof.Receipt{
			Origin: "o/t", Kind: proof.Expired, Cause: "category order", At: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC),
		}
		for p := int64(1); len(receipt.Positions) < 20; p += 1 + random.Int64N(3) {
			receipt.Positions = append(receipt.Positions, p)
		}
		got, err := proof.ParseReceipt(receipt.Text())
		if err != nil || !slices.Equal(got.Positions, receipt.Positions) || got.Text() != receipt.Text() {
			t.Fatalf("%q is %+v, %v", receipt.Text(), got, err)
		}
	}
	for _, bad := range []string{"0", "5-4", "x", "2 1", "1-9999999999"} {
		text := "o/t\nmanifold receipt v1\nexpired\nc\n2026-03-01T09:00:00Z\n" + bad + "\n"
		if got, err := proof.ParseReceipt(text); err == nil {
			t.Errorf("the positions %q are %v", bad, got.Positions)
		}
	}
}

// What retention or an erasure does while a log is verified is explained by leaves and receipts that are read
// afterwards. A block that never stays the same cannot be verified.
func TestBlocksAreReadUntilTheyAgree(t *testing.T) {
	t.Parallel()
	const size = 10
	var hasher proof.Hasher
	var stored proof.Block
	tree, events := &proof.Tree{}, make([]*proof.Event, size)
	for i := range events {
		event := &proof.Event{Position: int64(i + 1), ID: "i", Stream: "order-1", Type: "Placed", Data: []byte("{}")}
		salt := proof.Salt{byte(i + 1)}
		content := hasher.Content(event, salt)
		leaf := hasher.Leaf(event, content)
		events[i], stored.Leaves = event, append(stored.Leaves, proof.Leaf{Hash: leaf, Content: content, Salt: salt})
		tree.Add(0, leaf, nil)
	}
	erased := *events[4]
	erased.Data = []byte("null")
	receipt := func(kind proof.Kind, position int64) proof.Receipt {
		return proof.Receipt{Kind: kind, Positions: []int64{position}}
	}
	verify := func(skipped int, read func(reads int, block proof.Block) proof.Block) (proof.Summary, []proof.Finding, error) {
		reads, findings := 0, []proof.Finding(nil)
		v := &proof.Verification{
			Checkpoint: proof.Checkpoint{Size: size, Root: tree.Root()},
			Found:      func(f proof.Finding) { findings = append(findings, f) },
			Read: func(int64) (proof.Block, error) {
				reads++
				block := stored
				block.Leaves = slices.Clone(stored.Leaves)
				return read(reads, block), nil
			},
		}
		for i, event := range events {
			if i == 4 {
				event = &erased
			}
			if i != skipped {
				if err := v.Add(event); err != nil {
					return proof.Summary{}, nil, err
				}
			}
		}
		summary, err := v.End()
		return summary, findings, err
	}
	summary, findings, err := verify(2, func(reads int, block proof.Block) proof.Block {
		if reads > 1 {
			block.Receipts = append(block.Receipts, receipt(proof.Expired, 3))
		}
		if reads > 2 {
			block.Leaves[4].Salt = proof.Salt{}
			block.Receipts = append(block.Receipts, receipt(proof.Erased, 5))
		}
		return block
	})
	want := proof.Summary{Size: size, Intact: 8, Erased: 1, Expired: 1}
	if err != nil || summary != want || len(findings) > 0 {
		t.Errorf("it is %+v, %+v, %v", summary, findings, err)
	}
	_, _, err = verify(2, func(reads int, block proof.Block) proof.Block {
		block.Receipts = append(block.Receipts, receipt(proof.Expired, int64(reads+5)))
		return block
	})
	if err == nil || !strings.Contains(err.Error(), "change all the time") {
		t.Errorf("a block that changes all the time is verified: %v", err)
	}
	_, findings, err = verify(2, func(_ int, block proof.Block) proof.Block { return block })
	if err != nil || len(findings) != 2 || findings[0].Problem != proof.Missing || findings[1].Problem != proof.Changed {
		t.Errorf("without receipts it is %+v, %v", findings, err)
	}
}

func FuzzCanonical(f *testing.F) {
	f.Add([]byte(`{"bb":1.0,"a":[true,null,"x\u0001\n"],"c":{"z":-1e5}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		once, err := proof.Canonical(text)
		if err != nil {
			return
		}
		twice, err := proof.Canonical(once)
		if err != nil || string(once) != string(twice) || !json.Valid(once) {
			t.Errorf("%q becomes %q, and then %q, %v", text, once, twice, err)
		}
	})
}
