package remote

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// These limits keep publish requests within the service's own limits.
const (
	publishMessages = 1000
	publishBytes    = 4 << 20 // below the service's limit, with room for everything around the payloads
	publishLine     = 2 << 20 // above an event's limit, so that the service reports the error
)

var errPayloadTooLarge = errors.New("the payload is too large: at most 1 MiB is allowed")

// publishFlags are the parts of a message besides its topic and payload.
type publishFlags struct {
	message client.Message
	key     string
	kind    string
	id      string
	causes  []string
	sid     string
	at      string
	headers []string
	tags    []string
	lines   bool
}

func publishCommand() *cobra.Command {
	to, f := &connection{}, &publishFlags{}
	command := &cobra.Command{
		Use:   "publish TOPIC PAYLOAD|-",
		Short: "Publish a message, or one for each line of the input",
		Long: `Publish a message: an event of the topic, which is a category. With --key it goes to the stream TOPIC-KEY, otherwise to a new stream.
The payload is any JSON. - reads it from standard input; with --lines each line is the payload of a message.

The command prints each event's position, stream, version and id. Publishing a message again with the same --id publishes
nothing, and prints the position of the first one. Set the service's key in MANIFOLD_KEY: --key is the message's key.`,
		Example: `  manifold publish order '{"customer": "c-17"}' --key 1001 --type OrderPlaced
  manifold publish heartbeat.web - --lines --tag canary < beats.ndjson`,
		Args: cobra.ExactArgs(2),
		PreRunE: func(*cobra.Command, []string) error {
			return to.needsKey("--key is the message's key")
		},
		RunE: to.run(func(ctx context.Context, c *call) error {
			if err := f.read(c.args[0]); err != nil {
				return err
			}
			if f.lines {
				if c.args[1] != "-" {
					return errors.New("--lines needs -, standard input")
				}
				return publishEach(ctx, c, f.message)
			}
			payload := []byte(c.args[1])
			if c.args[1] == "-" {
				var err error
				if payload, err = io.ReadAll(io.LimitReader(c.in, publishLine)); err != nil {
					return err
				}
				if len(payload) == publishLine {
					return errPayloadTooLarge
				}
			}
			if !json.Valid(payload) {
				return errors.New(`the payload is not JSON; a text needs quotes: '"text"'`)
			}
			f.message.Payload = payload
			return publish(ctx, c, []client.Message{f.message})
		}),
	}
	to.bind(command, "MANIFOLD_KEY")
	flags := command.Flags()
	flags.StringVar(&f.key, "key", "", "the message's key: the stream is TOPIC-KEY (default: a new stream for each message)")
	flags.StringVar(&f.kind, "type", "", "the event's type (default: the topic)")
	flags.StringVar(&f.id, "id", "", "the event's id, a UUID (default: a new one)")
	flags.StringArrayVar(&f.headers, "header", nil, "NAME=VALUE, kept in the metadata; may be repeated")
	flags.StringArrayVar(&f.tags, "tag", nil, "a tag of the event, such as course:c1; may be repeated")
	flags.StringArrayVar(&f.causes, "caused-by", nil, "the id of the event that caused this one; may be repeated")
	flags.StringVar(&f.sid, "sid", "", "the id of the session")
	flags.StringVar(&f.at, "ts", "", "when it happened, as RFC 3339")
	flags.BoolVar(&f.lines, "lines", false, "with -: each line is the payload of a message")
	exclusiveFlags(command, "lines", "id")
	return withJSON("the events", command)
}

// read builds the message without its payload. The service reports invalid names and UUIDs.
func (f *publishFlags) read(topic string) error {
	m := &f.message
	m.Topic = topic
	for _, field := range []struct {
		given string
		to    **string
	}{{f.key, &m.Key}, {f.kind, &m.Type}, {f.id, &m.Id}, {f.sid, &m.Sid}} {
		if field.given != "" {
			*field.to = &field.given
		}
	}
	for _, header := range f.headers {
		name, value, ok := strings.Cut(header, "=")
		if !ok || name == "" {
			return fmt.Errorf("--header %q is not NAME=VALUE", header)
		}
		if m.Headers == nil {
			m.Headers = &map[string]string{}
		}
		(*m.Headers)[name] = value
	}
	if len(f.causes) > 0 {
		m.CausedBy = f.causes
	}
	if len(f.tags) > 0 {
		m.Tags = f.tags
	}
	if f.at != "" {
		at, err := time.Parse(time.RFC3339Nano, f.at)
		if err != nil {
			return fmt.Errorf("--ts: %q is not a time such as 2026-03-01T09:30:00Z", f.at)
		}
		m.Ts = &at
	}
	return nil
}

// publishEach publishes one message per line of the input, with many messages per request. If a later line is invalid,
// the messages already published stay.
func publishEach(ctx context.Context, c *call, as client.Message) error {
	lines := bufio.NewScanner(c.in)
	lines.Buffer(nil, publishLine)
	var batch []client.Message
	bytesIn, number := 0, 0
	for lines.Scan() {
		number++
		payload := bytes.TrimSpace(lines.Bytes())
		if len(payload) == 0 {
			continue
		}
		if !json.Valid(payload) {
			return errors.Join(publish(ctx, c, batch), fmt.Errorf("line %d is not JSON", number))
		}
		if len(batch) == publishMessages || bytesIn+len(payload) > publishBytes && len(batch) > 0 {
			if err := publish(ctx, c, batch); err != nil {
				return fmt.Errorf("up to line %d: %w", number-1, err)
			}
			batch, bytesIn = batch[:0], 0
		}
		message := as
		message.Payload = bytes.Clone(payload)
		batch = append(batch, message)
		bytesIn += len(payload)
	}
	if err := publish(ctx, c, batch); err != nil {
		return fmt.Errorf("up to line %d: %w", number, err)
	}
	if err := lines.Err(); err != nil {
		if errors.Is(err, bufio.ErrTooLong) {
			err = errPayloadTooLarge
		}
		return fmt.Errorf("line %d: %w", number+1, err)
	}
	return nil
}

func publish(ctx context.Context, c *call, messages []client.Message) error {
	if len(messages) == 0 {
		return nil
	}
	var body any = messages
	if len(messages) == 1 { // so that an error refers to the message, not to a list
		body = messages[0]
	}
	response, err := c.Publish(ctx, nil, body)
	answer, err := read[client.Published](response, err)
	if err != nil {
		return err
	}
	if c.asJSON {
		return printJSON(c.out, each(answer.Events))
	}
	for _, event := range answer.Events {
		c.out.printf("%d  %s  version %d  %s%s\n", event.Position, event.Stream, event.Version, event.Id, ifDuplicate(response))
	}
	return nil
}

// ifDuplicate returns a note for the events of a request that has appended nothing, since the log had them.
func ifDuplicate(response *http.Response) string {
	if response.StatusCode == http.StatusOK {
		return "  (duplicate)"
	}
	return ""
}
