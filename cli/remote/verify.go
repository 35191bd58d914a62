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
	"github.com/manifold-es/manifold/domain"
	"github.com/manifold-es/manifold/proof"
)

// findingsShown is the largest number of findings to print.
const findingsShown = 100

// maxLineBytes limits a line of an export: data and metadata of up to 16 MiB together.
const maxLineBytes = 48 << 20

func verifyCommand() *cobra.Command {
	to, v := &connection{}, &verifyRun{}
	command := &cobra.Command{
		Use:   "verify [FILE|-]",
		Short: "Prove that a log is the one that was sealed",
		Long: `Compare a tenant's log, or an export of it, with the leaves that the service has sealed, and these
with the signed checkpoint. Each event that was changed, moved, added or removed is printed with its position. Events
that retention removed and contents that an erasure emptied are explained by signed receipts. The key needs the scope
events:read.

With --checkpoint, the new checkpoint must continue the one in the file, and replaces it if the log is in order. So
whatever is changed up to the checkpoint in the file is noticed, and a log that was cut or restored from an older
backup. Without it, the service's present state is compared with its present signature only. Keep the file where
nobody who can change the database can change it.

--checkpoint-only does not read events: it checks the signature, and that the new checkpoint continues the one in the
file. It takes two requests, so it may run every minute, between complete runs.

Without --verifier, the keys that verify signatures are those of the file CHECKPOINT.keys. If there is no checkpoint
yet, the keys that the service shows are trusted, and written to that file.

FILE is an export of a log from its beginning (manifold export), also compressed with gzip or zstd; - is standard
input. It is verified up to its last event.

The exit code is 2 if something differs, and 1 if the log could not be compared.`,
		Example: `  manifold verify --checkpoint acme.checkpoint
  manifold verify --checkpoint acme.checkpoint --checkpoint-only
  manifold verify --checkpoint acme.checkpoint log.ndjson.zst
  manifold verify --audit --checkpoint acme-audit.checkpoint`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			if v.checkpointOnly && (v.file == "" || len(args) > 0) {
				return errors.New("--checkpoint-only needs --checkpoint, and reads no file of events")
			}
			v.whose = *to
			if v.audit {
				to.base = "/audit"
			}
			return to.run(func(ctx context.Context, c *call) error {
				v.call = c
				return v.run(ctx)
			})(command, args)
		},
	}
	to.bind(command, "MANIFOLD_KEY")
	flags := command.Flags()
	flags.StringVar(&v.file, "checkpoint", "", "the file with the last verified checkpoint; it is created and updated")
	flags.BoolVar(&v.checkpointOnly, "checkpoint-only", false, "compare the checkpoints, and no events")
	flags.StringArrayVar(&v.trusted, "verifier", nil,
		"a key that verifies signatures, as manifold signing-keys prints it; may be repeated")
	flags.BoolVar(&v.trustFirst, "trust-first-use", false,
		"trust the keys that the service shows, although there is a checkpoint without a file of keys")
	flags.StringVar(&v.origin, "origin", "", "the origin that the checkpoint must have, as an earlier run has printed it")
	flags.BoolVar(&v.audit, "audit", false, "verify the audit log instead (scope audit:read)")
	return command
}

// verifyRun is one run of the command.
type verifyRun struct {
	*call
	whose          connection // to ask whose key it is
	file           string     // with the checkpoint; empty: none
	checkpointOnly bool
	trusted        []string // verifiers
	trustFirst     bool
	origin         string // that the checkpoint must have; empty: that of the key's tenant
	audit          bool

	savedNote []byte           // the checkpoint in the file; nil: there is none
	saved     proof.Checkpoint // likewise
	verifiers note.Verifiers
	pin       string // to write to the file of keys; empty: nothing
	findings  int
}

func (v *verifyRun) run(ctx context.Context) (err error) {
	if v.file != "" {
		if v.savedNote, err = os.ReadFile(v.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := v.findVerifiers(ctx); err != nil {
		return err
	}
	if v.savedNote != nil {
		if v.saved, err = v.open(v.savedNote); err != nil {
			return fmt.Errorf("the checkpoint in %s: %w", v.file, err)
		}
	}
	now := time.Now()
	response, err := v.GetCheckpoint(ctx)
	if err == nil {
		if date, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			now = date // by the service's clock, as in events
		}
	}
	signed, err := bodyOf(response, err)
	if err != nil {
		return err
	}
	current, err := v.open(signed)
	if err != nil {
		return fmt.Errorf("the service's checkpoint: %w", err)
	}
	if err := v.checkOrigin(ctx, current.Origin); err != nil {
		return err
	}
	if err := v.compareSaved(ctx, current); err != nil {
		return err
	}
	summary := proof.Summary{}
	if v.findings == 0 && !v.checkpointOnly { // with findings, it is another log
		if summary, err = v.compareEvents(ctx, current, now); err != nil {
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
	return v.report(current, summary)
}

// report prints what was verified.
func (v *verifyRun) report(current proof.Checkpoint, summary proof.Summary) error {
	v.out.printf("origin %s\n", current.Origin)
	if v.checkpointOnly && v.saved.Size == 0 {
		return v.out.printf("this is the first checkpoint, at position %d; nothing was compared\n", current.Size)
	}
	if v.checkpointOnly {
		return v.out.printf("the checkpoint at position %d continues the saved one, at %d; events were not compared\n",
			current.Size, v.saved.Size)
	}
	if summary.Size < current.Size {
		v.out.printf("the file ends at %d of %d\n", summary.Size, current.Size)
	}
	if summary.Size < v.saved.Size {
		v.out.printf("the file is older than the saved checkpoint, at %d\n", v.saved.Size)
	}
	if summary.Later > 0 {
		v.out.printf("not sealed yet, and not compared: %d newer events\n", summary.Later)
	}
	if summary.Erased > 0 {
		v.out.printf("events erased, each named by a signed receipt: %d\n", summary.Erased)
	}
	return v.out.printf("the log is the one that was sealed, up to position %d: "+
		"%d events intact, %d erased, %d expired, %d removed before they were sealed\n",
		summary.Size, summary.Intact, summary.Erased, summary.Expired, summary.Absent)
}

// findVerifiers sets the keys that verify signatures.
func (v *verifyRun) findVerifiers(ctx context.Context) error {
	var pinned []string
	if v.file != "" {
		text, err := os.ReadFile(v.file + ".keys")
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		pinned = strings.Fields(string(text))
	}
	texts := v.trusted
	if len(texts) == 0 {
		texts = pinned
	}
	if len(texts) == 0 {
		if v.savedNote != nil && !v.trustFirst {
			return fmt.Errorf("%s has a checkpoint, and %s.keys has no keys to verify it; "+
				"restore that file, name the keys with --verifier, or use --trust-first-use to trust those that the service shows",
				v.file, v.file)
		}
		list, err := read[client.SigningKeyList](v.ListSigningKeys(ctx))
		if err != nil {
			return err
		}
		for _, key := range list.Keys {
			texts = append(texts, key.Verifier)
		}
		fmt.Fprintln(v.people, "trusting the keys that the service shows; compare them with those you got another way:\n"+
			strings.Join(texts, "\n"))
	}
	if len(pinned) == 0 {
		v.pin = strings.Join(texts, "\n") + "\n"
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

// checkOrigin returns an error unless an origin is that of the log: the given one, that of the saved checkpoint, or one
// of the key's tenant.
func (v *verifyRun) checkOrigin(ctx context.Context, origin string) error {
	if v.saved.Origin != "" && v.saved.Origin != origin {
		return fmt.Errorf("the checkpoint in %s is of the log %s, and the service's is of %s", v.file, v.saved.Origin, origin)
	}
	if v.origin != "" && v.origin != origin {
		return fmt.Errorf("the service's checkpoint is of the log %s, and --origin says %s", origin, v.origin)
	}
	if v.saved.Origin != "" || v.origin != "" {
		return nil
	}
	service, err := v.whose.open()
	if err != nil {
		return err
	}
	caller, err := read[client.Caller](service.Whoami(ctx))
	if err != nil {
		return err
	}
	log := domain.Everyone
	if caller.Tenant != nil {
		if log, err = domain.ParseTenantID(caller.Tenant.Id); err != nil {
			return err
		}
	}
	if v.audit {
		log = log.AuditLog()
	}
	if !strings.HasSuffix(origin, "/"+log.String()) {
		return fmt.Errorf("the service's checkpoint is of the log %s, and the key's is %s: it was copied from another tenant",
			origin, log)
	}
	return nil
}

// verify returns the text of a signed note.
func (v *verifyRun) verify(signed []byte) (string, error) {
	opened, err := note.Open(signed, v.verifiers)
	if _, unknown := errors.AsType[*note.UnverifiedNoteError](err); unknown {
		return "", errors.New("it is signed with a key that is not trusted; " +
			"if the service's operator confirms a new one, add it to the file of keys, or with --verifier")
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
	switch saved := v.saved; {
	case v.savedNote == nil: // this is the first
	case saved.Size > current.Size:
		v.found("the log has %d sealed positions, and had %d: it was cut, or restored from an older backup",
			current.Size, saved.Size)
	case saved.Size == current.Size && saved.Root != current.Root:
		v.found("the checkpoint has the size of the saved one, and another root: the log was made again")
	case saved.Size < current.Size:
		hashes, err := v.consistency(ctx, saved.Size, current.Size)
		if err != nil {
			return err
		}
		if tlog.CheckTree(hashes, current.Size, current.Root, saved.Size, saved.Root) != nil {
			v.found("the checkpoint does not continue the saved one: the log was changed before position %d", saved.Size+1)
		}
	}
	return nil
}

// consistency returns the service's proof that the log of one size begins with that of another. It is not verified yet.
func (v *verifyRun) consistency(ctx context.Context, from, to int64) ([]proof.Hash, error) {
	answer, err := read[client.ConsistencyProof](
		v.GetConsistencyProof(ctx, &client.GetConsistencyProofParams{From: from, To: to}))
	if err != nil {
		return nil, err
	}
	hashes := make([]proof.Hash, len(answer.Hashes))
	for i, text := range answer.Hashes {
		if hashes[i], err = tlog.ParseHash(text); err != nil {
			return nil, fmt.Errorf("the service's proof: %w", err)
		}
	}
	return hashes, nil
}

func (v *verifyRun) found(format string, args ...any) {
	if v.findings++; v.findings <= findingsShown {
		v.out.printf(format+"\n", args...)
	}
}

// compareEvents compares the events with the checkpoint, which was requested at a time.
func (v *verifyRun) compareEvents(ctx context.Context, checkpoint proof.Checkpoint, now time.Time) (
	proof.Summary, error,
) {
	events, err := v.events(ctx)
	if err != nil {
		return proof.Summary{}, err
	}
	defer events.Close()
	verification := &proof.Verification{
		Checkpoint: checkpoint,
		Read:       func(number int64) (proof.Block, error) { return v.block(ctx, number, checkpoint.Origin) },
		Partial:    len(v.args) > 0,
		Prove:      func(size int64) ([]proof.Hash, error) { return v.consistency(ctx, size, checkpoint.Size) },
		Now:        now,
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
func (v *verifyRun) events(ctx context.Context) (io.ReadCloser, error) {
	if len(v.args) == 0 {
		response, err := v.ExportEvents(ctx, &client.ExportEventsParams{})
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
	err = errors.Join(err1, err2, err3, err4)
	if err != nil || len(contents) != len(leaves) || len(salts) != len(leaves) {
		return block, fmt.Errorf("the service's leaves of block %d cannot be read: they are cut off", number)
	}
	for i := range leaves {
		block.Leaves = append(block.Leaves, proof.Leaf{
			Hash: proof.Hash(leaves[i]), Content: proof.Hash(contents[i]), Salt: proof.Salt(salts[i]),
		})
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
		err := writeFile(v.file+".keys", 0o644, func(out io.Writer) error {
			_, err := io.WriteString(out, v.pin)
			return err
		})
		if err != nil {
			return err
		}
	}
	return writeFile(v.file, 0o644, func(out io.Writer) error {
		_, err := out.Write(signed)
		return err
	})
}
