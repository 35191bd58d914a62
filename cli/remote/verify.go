package remote

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/manifold-es/manifold/cli"
	"github.com/manifold-es/manifold/client"
	"github.com/manifold-es/manifold/proof"
)

// findingsShown is the largest number of findings to print.
const findingsShown = 100

// maxLineBytes limits a line of an export: data and metadata of up to 16 MiB together.
const maxLineBytes = 48 << 20

func verifyCommand() *cobra.Command {
	to := &connection{}
	var checkpoint string
	var verifiers []string
	var audit bool
	command := &cobra.Command{
		Use:   "verify [FILE|-]",
		Short: "Prove that a log is the one that was sealed",
		Long: `Compare a tenant's log, or an export of it, with the leaves that the service has sealed, and these with the signed checkpoint. Each
event that was changed, moved, added or removed is printed with its position. Events that retention removed and contents that an
erasure emptied are explained by signed receipts. The key needs the scope events:read.

With --checkpoint, the new checkpoint must continue the one in the file, and replaces it if the log is in order. So a log that was
cut, or restored from an older backup, is noticed. Without --verifier, the keys that verify signatures are those of the file
CHECKPOINT.keys. If there is none yet, the service's are trusted, and written to it.

FILE is the complete export of a log (manifold export), also compressed with gzip or zstd; - is standard input.

The exit code is 2 if something differs, and 1 if the log could not be compared.`,
		Example: `  manifold verify --checkpoint acme.checkpoint
  manifold verify --checkpoint acme.checkpoint log.ndjson.zst
  manifold verify --audit --checkpoint acme-audit.checkpoint`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if audit {
				to.base = "/audit"
			}
			return to.run(func(ctx context.Context, c *call) error {
				v := &verifyRun{call: c, file: checkpoint}
				return v.run(ctx, verifiers)
			})(command, args)
		},
	}
	to.bind(command, "MANIFOLD_KEY")
	command.Flags().StringVar(&checkpoint, "checkpoint", "", "the file with the last verified checkpoint; it is created and updated")
	command.Flags().StringArrayVar(&verifiers, "verifier", nil, "a key that verifies signatures, as manifold signing-keys prints it; may be repeated")
	command.Flags().BoolVar(&audit, "audit", false, "verify the audit log instead (scope audit:read)")
	return command
}

// verifyRun is one run of the command.
type verifyRun struct {
	*call
	file      string // with the checkpoint; empty: none
	verifiers note.Verifiers
	pin       string // to write to the file of keys; empty: nothing
	findings  int
}

func (v *verifyRun) run(ctx context.Context, verifiers []string) error {
	if err := v.findVerifiers(ctx, verifiers); err != nil {
		return err
	}
	signed, err := bodyOf(v.GetCheckpoint(ctx))
	if err != nil {
		return err
	}
	current, err := v.open(signed)
	if err != nil {
		return fmt.Errorf("the service's checkpoint: %w", err)
	}
	if err := v.compareSaved(ctx, current); err != nil {
		return err
	}
	summary := proof.Summary{}
	if v.findings == 0 { // otherwise it is another log
		if summary, err = v.compareEvents(ctx, current); err != nil {
			return err
		}
	}
	if v.findings > 0 {
		if v.findings > findingsShown {
			v.out.printf("%d more are not shown\n", v.findings-findingsShown)
		}
		v.out.printf("the log differs from the one that was sealed; findings: %d\n", v.findings)
		return cli.ExitError{Code: differ}
	}
	if err := v.save(signed); err != nil {
		return err
	}
	return v.out.printf("the log is the one that was sealed, up to position %d: %d events intact, %d erased, %d expired, %d removed before they were sealed\n",
		current.Size, summary.Intact, summary.Erased, summary.Expired, summary.Absent)
}

// findVerifiers sets the keys that verify signatures.
func (v *verifyRun) findVerifiers(ctx context.Context, texts []string) error {
	if len(texts) == 0 && v.file != "" {
		pinned, err := os.ReadFile(v.file + ".keys")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		texts = strings.Fields(string(pinned))
	}
	if len(texts) == 0 {
		list, err := read[client.SigningKeyList](v.ListSigningKeys(ctx))
		if err != nil {
			return err
		}
		for _, key := range list.Keys {
			texts = append(texts, key.Verifier)
		}
		v.pin = strings.Join(texts, "\n") + "\n"
		fmt.Fprintln(v.people, "trusting the keys that the service shows; compare them with those you got another way:\n"+strings.Join(texts, "\n"))
	}
	var list []note.Verifier
	for _, text := range texts {
		verifier, err := note.NewVerifier(text)
		if err != nil {
			return fmt.Errorf("the verifier %.100q is not a key as manifold signing-keys prints it", text)
		}
		list = append(list, verifier)
	}
	v.verifiers = note.VerifierList(list...)
	return nil
}

// verify returns the text of a signed note.
func (v *verifyRun) verify(signed []byte) (string, error) {
	opened, err := note.Open(signed, v.verifiers)
	if _, unknown := errors.AsType[*note.UnverifiedNoteError](err); unknown {
		return "", errors.New("it is signed with a key that is not trusted; if the service's operator confirms a new one, add it to the file of keys, or with --verifier")
	}
	if err != nil {
		return "", err
	}
	return opened.Text, nil
}

// open returns a signed checkpoint.
func (v *verifyRun) open(signed []byte) (proof.Checkpoint, error) {
	text, err := v.verify(signed)
	if err != nil {
		return proof.Checkpoint{}, err
	}
	return proof.ParseCheckpoint(text)
}

// compareSaved checks that a checkpoint continues the one in the file.
func (v *verifyRun) compareSaved(ctx context.Context, current proof.Checkpoint) error {
	if v.file == "" {
		return nil
	}
	signed, err := os.ReadFile(v.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	saved, err := v.open(signed)
	switch {
	case err != nil:
		return fmt.Errorf("the checkpoint in %s: %w", v.file, err)
	case saved.Origin != current.Origin:
		return fmt.Errorf("the checkpoint in %s is of the log %s, and the service's is of %s", v.file, saved.Origin, current.Origin)
	case saved.Size > current.Size:
		v.found("the log has %d sealed positions, and had %d: it was cut, or restored from an older backup", current.Size, saved.Size)
		return nil
	case saved.Size == current.Size:
		if saved.Root != current.Root {
			v.found("the checkpoint has the size of the saved one, and another root: the log was made again")
		}
		return nil
	}
	answer, err := read[client.ConsistencyProof](v.GetConsistencyProof(ctx, &client.GetConsistencyProofParams{From: saved.Size, To: current.Size}))
	if err != nil {
		return err
	}
	hashes := make([]tlog.Hash, len(answer.Hashes))
	for i, text := range answer.Hashes {
		if hashes[i], err = tlog.ParseHash(text); err != nil {
			return fmt.Errorf("the service's proof: %w", err)
		}
	}
	if tlog.CheckTree(hashes, current.Size, current.Root, saved.Size, saved.Root) != nil {
		v.found("the checkpoint does not continue the saved one: the log was changed before position %d", saved.Size+1)
	}
	return nil
}

func (v *verifyRun) found(format string, args ...any) {
	if v.findings++; v.findings <= findingsShown {
		v.out.printf(format+"\n", args...)
	}
}

// compareEvents compares the events with the checkpoint.
func (v *verifyRun) compareEvents(ctx context.Context, checkpoint proof.Checkpoint) (proof.Summary, error) {
	events, err := v.events(ctx, checkpoint.Size)
	if err != nil {
		return proof.Summary{}, err
	}
	defer events.Close()
	verification := &proof.Verification{
		Checkpoint: checkpoint,
		Read:       func(number int64) (proof.Block, error) { return v.block(ctx, number, checkpoint.Origin) },
		Found: func(f proof.Finding) {
			positions := fmt.Sprint(f.First)
			if f.Last > f.First {
				positions = fmt.Sprintf("%d to %d", f.First, f.Last)
			}
			v.found("position %s: %s: %s", positions, f.Problem, f.Detail)
		},
	}
	lines := bufio.NewScanner(events)
	lines.Buffer(make([]byte, 64<<10), maxLineBytes)
	for number := 1; lines.Scan(); number++ {
		if len(lines.Bytes()) == 0 {
			continue
		}
		event, err := sealedEvent(lines.Bytes())
		if err == nil {
			err = verification.Add(event)
		}
		if err != nil {
			return proof.Summary{}, fmt.Errorf("line %d of the events: %w", number, err)
		}
	}
	if err := lines.Err(); err != nil {
		return proof.Summary{}, fmt.Errorf("read the events: %w", err)
	}
	return verification.End()
}

// events returns the log's events, as lines of an export.
func (v *verifyRun) events(ctx context.Context, to int64) (io.ReadCloser, error) {
	if len(v.args) == 0 {
		response, err := v.ExportEvents(ctx, &client.ExportEventsParams{To: &to})
		if err != nil {
			return nil, err
		}
		if response.StatusCode != http.StatusOK {
			return nil, done(response, nil)
		}
		return response.Body, nil
	}
	file := io.NopCloser(v.in)
	if name := v.args[0]; name != "-" {
		opened, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		file = opened
	}
	in := bufio.NewReader(file)
	var plain io.Reader = in
	var err error
	switch compression(in) {
	case "gzip":
		plain, err = gzip.NewReader(in)
	case "zstd":
		plain, err = zstd.NewReader(in)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{plain, file}, nil
}

// block reads a block of leaves, and verifies its receipts.
func (v *verifyRun) block(ctx context.Context, number int64, origin string) (block proof.Block, err error) {
	answer, err := read[client.LeafBlock](v.GetLeaves(ctx, &client.GetLeavesParams{Block: number}))
	if err != nil {
		return block, err
	}
	leaves, err1 := split(answer.Leaves, tlog.HashSize)
	contents, err2 := split(answer.Contents, tlog.HashSize)
	salts, err3 := split(answer.Salts, proof.SaltBytes)
	tiles, err4 := split(answer.Tiles, tlog.HashSize)
	if err := errors.Join(err1, err2, err3, err4); err != nil || len(contents) != len(leaves) || len(salts) != len(leaves) {
		return block, fmt.Errorf("the service's leaves of block %d cannot be read: they are cut off", number)
	}
	for i := range leaves {
		block.Leaves = append(block.Leaves, proof.Leaf{Hash: proof.Hash(leaves[i]), Content: proof.Hash(contents[i]), Salt: proof.Salt(salts[i])})
	}
	for _, root := range tiles {
		block.Tiles = append(block.Tiles, proof.Hash(root))
	}
	for _, signed := range answer.Receipts {
		text, err := v.verify([]byte(signed))
		if err != nil {
			fmt.Fprintf(v.people, "a receipt of block %d is ignored: %s\n", number, err)
			continue
		}
		receipt, err := proof.ParseReceipt(text)
		if err != nil || receipt.Origin != origin {
			fmt.Fprintf(v.people, "a receipt of block %d is ignored: it is not of this log\n", number)
			continue
		}
		block.Receipts = append(block.Receipts, receipt)
	}
	return block, nil
}

// split decodes base64 into parts of equal length.
func split(text string, length int) ([][]byte, error) {
	data, err := base64.StdEncoding.DecodeString(text)
	if err == nil && len(data)%length != 0 {
		err = errors.New("it is cut off")
	}
	return slices.Collect(slices.Chunk(data, length)), err
}

// sealedEvent reads a line of an export.
func sealedEvent(line []byte) (*proof.Event, error) {
	var from struct {
		Position   int64           `json:"position"`
		ID         string          `json:"id"`
		Stream     string          `json:"stream"`
		Version    int64           `json:"version"`
		Type       string          `json:"type"`
		Time       time.Time       `json:"time"`
		RecordedAt time.Time       `json:"recordedAt"`
		Data       json.RawMessage `json:"data"`
		Metadata   json.RawMessage `json:"metadata"`
		Gap        json.RawMessage `json:"gap"`
	}
	if err := json.Unmarshal(line, &from); err != nil {
		return nil, err
	}
	if from.Position < 1 || from.RecordedAt.IsZero() || from.Data == nil {
		return nil, errors.New("it is not an event of an export, with position, recordedAt and data")
	}
	event := &proof.Event{
		Position: from.Position, ID: from.ID, Stream: from.Stream, Version: from.Version, Type: from.Type,
		RecordedAt: from.RecordedAt, OccurredAt: from.Time, Unreadable: from.Gap != nil,
	}
	var err error
	if event.Data, err = proof.Canonical(from.Data); err == nil && from.Metadata != nil {
		event.Metadata, err = proof.Canonical(from.Metadata)
	}
	return event, err
}

// save writes the checkpoint, and the keys if they are new.
func (v *verifyRun) save(signed []byte) error {
	if v.file == "" {
		return nil
	}
	if v.pin != "" {
		if err := writeFile(v.file+".keys", 0o644, func(out io.Writer) error { _, err := io.WriteString(out, v.pin); return err }); err != nil {
			return err
		}
	}
	return writeFile(v.file, 0o644, func(out io.Writer) error { _, err := out.Write(signed); return err })
}
