package cli

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

var errPayloadTooLarge = errors.New("it is too large; a payload has at most 1 MiB")

// publishFlags are the parts of a message besides its topic and payload.
type publishFlags struct {
	message client.Message
	key     string
	kind    string
	id      string
	cause   string
	sid     string
	at      string
	headers []string
	tags    []string
	lines   bool
	asJSON  bool
}

func publishCommand() *cobra.Command {
	to, f := &connection{}, &publishFlags{}
	command := &cobra.Command{
		Use:   "publish TOPIC PAYLOAD|-",
		Short: "Publish a message, or one for each line of the input",
		Long: `Publish a message: an event of the topic, which is a category. With --key it goes to the stream TOPIC-KEY, else to a stream of its
own. The payload is any JSON; - reads it from standard input, and with --lines each line of that is the payload of a message.

What is printed is each event's position, stream, version and id. With --id, publishing again what is there already publishes
nothing, and prints where it is. The service's key is in MANIFOLD_KEY: --key is the message's.`,
		Example: `  manifold publish order '{"customer": "c-17"}' --key 1001 --type OrderPlaced
  manifold publish heartbeat.web - --lines --tag canary < beats.ndjson`,
		Args: cobra.ExactArgs(2),
		RunE: func(command *cobra.Command, args []string) error {
			if err := f.read(args[0]); err != nil {
				return err
			}
			if to.key == "" {
				return errors.New("no key of the service: set MANIFOLD_KEY; --key is the message's")
			}
			service, err := to.open()
			if err != nil {
				return err
			}
			p := publisher{service: service, out: command.OutOrStdout(), asJSON: f.asJSON}
			if f.lines {
				if args[1] != "-" {
					return errors.New("--lines goes with -, standard input")
				}
				return p.lines(command.Context(), f.message, command.InOrStdin())
			}
			payload := []byte(args[1])
			if args[1] == "-" {
				if payload, err = io.ReadAll(io.LimitReader(command.InOrStdin(), publishLine)); err != nil {
					return err
				}
				if len(payload) == publishLine {
					return errPayloadTooLarge
				}
			}
			if !json.Valid(payload) {
				return errors.New(`the payload is no JSON; a text stands in quotes of its own: '"text"'`)
			}
			f.message.Payload = payload
			return p.publish(command.Context(), []client.Message{f.message})
		},
	}
	to.bind(command, "MANIFOLD_KEY")
	flags := command.Flags()
	flags.StringVar(&f.key, "key", "", "the message's key: the stream is TOPIC-KEY; else one of its own for each message")
	flags.StringVar(&f.kind, "type", "", "the event's type (default: the topic)")
	flags.StringVar(&f.id, "id", "", "the event's id, a UUID (default: a new one)")
	flags.StringArrayVar(&f.headers, "header", nil, "NAME=VALUE, kept in the metadata; may be repeated")
	flags.StringArrayVar(&f.tags, "tag", nil, "kept in the metadata; may be repeated")
	flags.StringVar(&f.cause, "caused-by", "", "the id of the event that this one follows from")
	flags.StringVar(&f.sid, "sid", "", "the session that it belongs to")
	flags.StringVar(&f.at, "ts", "", "when it happened, as RFC 3339")
	flags.BoolVar(&f.lines, "lines", false, "with -: each line is the payload of a message")
	jsonFlag(command, &f.asJSON, "the events")
	exclusiveFlags(command, "lines", "id")
	return command
}

// read builds the message without its payload. The service reports invalid names and UUIDs.
func (f *publishFlags) read(topic string) error {
	m := &f.message
	m.Topic = topic
	for _, field := range []struct {
		given string
		to    **string
	}{{f.key, &m.Key}, {f.kind, &m.Type}, {f.id, &m.Id}, {f.cause, &m.CausedBy}, {f.sid, &m.Sid}} {
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
	if len(f.tags) > 0 {
		m.Tags = &f.tags
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

// publisher publishes messages and prints the positions of their events.
type publisher struct {
	service *client.ClientWithResponses
	out     io.Writer
	asJSON  bool
}

// lines publishes one message per line, with many messages per request. If a later line is invalid, the messages
// already published stay.
func (p publisher) lines(ctx context.Context, as client.Message, in io.Reader) error {
	lines := bufio.NewScanner(in)
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
			return errors.Join(p.publish(ctx, batch), fmt.Errorf("line %d is no JSON", number))
		}
		if len(batch) == publishMessages || bytesIn+len(payload) > publishBytes && len(batch) > 0 {
			if err := p.publish(ctx, batch); err != nil {
				return fmt.Errorf("up to line %d: %w", number-1, err)
			}
			batch, bytesIn = batch[:0], 0
		}
		message := as
		message.Payload = bytes.Clone(payload)
		batch = append(batch, message)
		bytesIn += len(payload)
	}
	if err := p.publish(ctx, batch); err != nil {
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

func (p publisher) publish(ctx context.Context, messages []client.Message) error {
	if len(messages) == 0 {
		return nil
	}
	var body any = messages
	if len(messages) == 1 { // so that an error refers to the message, not to a list
		body = messages[0]
	}
	r, err := p.service.PublishWithResponse(ctx, nil, body)
	if err != nil {
		return err
	}
	published := r.JSON201
	if r.StatusCode() == http.StatusOK {
		published = r.JSON200
	}
	answer, err := answered(published, r.HTTPResponse, r.Body)
	if err != nil {
		return err
	}
	if p.asJSON {
		for _, event := range answer.Events {
			if err := writeJSON(p.out, event); err != nil {
				return err
			}
		}
		return nil
	}
	note := ""
	if r.JSON200 != nil {
		note = "  (there already)"
	}
	for _, event := range answer.Events {
		if _, err := fmt.Fprintf(p.out, "%d  %s  version %d  %s%s\n", event.Position, event.Stream, event.Version, event.Id, note); err != nil {
			return err
		}
	}
	return nil
}
