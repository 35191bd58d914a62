package remote

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// eventPeriod selects events by types and by the time of their recording.
type eventPeriod struct {
	types        []string
	since, until string
}

func (p *eventPeriod) bind(command *cobra.Command) {
	command.Flags().StringSliceVar(&p.types, "types", nil, "only events of these types, separated by commas")
	command.Flags().StringVar(&p.since, "since", "", "only events recorded at or after this time (2026-03-01, 2026-03-01T09:30:00Z), or this long ago (90m)")
	command.Flags().StringVar(&p.until, "until", "", "only events recorded before this time")
}

// times returns the period's ends; nil: it has none.
func (p *eventPeriod) times() (since, until *time.Time, err error) {
	if since, err = parseMoment(p.since); err != nil {
		return nil, nil, fmt.Errorf("--since %w", err)
	}
	if until, err = parseMoment(p.until); err != nil {
		return nil, nil, fmt.Errorf("--until %w", err)
	}
	return since, until, nil
}

// parseMoment parses a time, a local date, or how long ago it is. An empty text is nil.
func parseMoment(text string) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		at := time.Now().Add(-ago)
		return &at, nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return &at, nil
		}
	}
	return nil, fmt.Errorf("%q is not a time; write 2026-03-01, 2026-03-01T09:30:00Z, or 90m for 90 minutes ago", text)
}

// eventsFlags say which events to read, and how to show them.
type eventsFlags struct {
	eventPeriod
	eventFormat
	query       string
	tags        []string
	causes      []string
	correlation string
	from, count int64
	backward    bool
}

func eventsCommand() *cobra.Command {
	to, f := &connection{}, &eventsFlags{}
	command := &cobra.Command{
		Use:     "events [CATEGORY | STREAM | '$all']",
		Aliases: []string{"read"},
		Short:   "Read events of a tenant's log, a category or a stream, one event a line",
		Long: `Read events that are in a tenant's log: of the whole log, of the streams of a category (order), or of one stream, whose name has a
hyphen (order-7). To follow a log as it grows, use manifold tail.

Each line has an event's position, the time of its recording, its stream, type and data. -o prints events as the service sends
them.`,
		Example: `  manifold events order-7
  manifold events order --types OrderPlaced --since 2026-03-01 --until 2026-03-02
  manifold events --backward --count 20
  manifold events --correlation checkout-7 --since 90m
  manifold events --cause 0190d3a4-5b6c-7def-8123-456789abcde0
  manifold events --tags course:c1,student:s2
  manifold events --query '{"items": [{"tags": ["course:c1"]}, {"tags": ["course:c2"]}]}'`,
		Args: cobra.MaximumNArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			source := allStreams
			if len(c.args) == 1 {
				source = c.args[0]
			}
			f.tagCauses()
			if err := f.check(c, source); err != nil {
				return err
			}
			response, err := f.read(ctx, c.Client, source)
			if err != nil {
				return err
			}
			if response.StatusCode != http.StatusOK {
				return done(response, nil)
			}
			defer response.Body.Close()
			if removed := response.Header.Get("Manifold-Removed-To"); removed != "" {
				fmt.Fprintf(c.people, "retention has removed events up to %s\n", removed)
			}
			return f.show(c, response.Body)
		}),
	}
	to.bind(command, "MANIFOLD_KEY")
	f.eventPeriod.bind(command)
	command.Flags().StringSliceVar(&f.tags, "tags", nil, "only events with all of these tags, separated by commas")
	command.Flags().StringArrayVar(&f.causes, "cause", nil, "only events caused by the event with this id: those with the tag cause:ID; may be repeated")
	command.Flags().StringVar(&f.correlation, "correlation", "", "only events of this process: those with the tag correlation:NAME")
	queryFlag(command, &f.query, "")
	command.Flags().Int64Var(&f.from, "from", 0, "begin with this position, or of a stream with this version")
	command.Flags().BoolVar(&f.backward, "backward", false, "the newest events first")
	command.Flags().Int64Var(&f.count, "count", 0, "at most this many events (default: all)")
	f.eventFormat.bind(command)
	return command
}

// tagCauses makes the causes and the correlation tags to look for. The service writes ids in lower case.
func (f *eventsFlags) tagCauses() {
	for _, cause := range f.causes {
		f.tags = append(f.tags, "cause:"+strings.ToLower(cause))
	}
	if f.correlation != "" {
		f.tags = append(f.tags, "correlation:"+f.correlation)
	}
}

func (f *eventsFlags) check(c *call, source string) error {
	stream := strings.Contains(source, "-")
	switch {
	case source == "":
		return errors.New("missing name: give a category, a stream or '$all', in single quotes")
	case f.count < 0 || f.count == 0 && c.changed("count"):
		return errors.New("--count must be at least 1")
	case f.from < 0 || f.from == 0 && c.changed("from"):
		return errors.New("--from must be at least 1")
	case stream && len(f.types) > 0:
		return errors.New("--types needs a category or the whole log; a stream is read with all its types")
	case f.query != "" && (source != allStreams || len(f.types) > 0 || len(f.tags) > 0):
		return errors.New("--query cannot be combined with a category, a stream, --types, --tags, --cause or --correlation; put types and tags into the query")
	case len(f.tags) > 0 && source != allStreams:
		return errors.New("--tags, --cause and --correlation cannot be combined with a category or a stream; tags are looked for in the whole log")
	}
	return f.eventFormat.check(c)
}

func (f *eventsFlags) read(ctx context.Context, service *client.Client, source string) (*http.Response, error) {
	since, until, err := f.times()
	if err != nil {
		return nil, err
	}
	direction := "forward"
	if f.backward {
		direction = "backward"
	}
	lines := func(_ context.Context, request *http.Request) error {
		request.Header.Set("Accept", "application/x-ndjson")
		return nil
	}
	from, count, types := given(f.from), given(f.count), givenList(f.types)
	switch {
	case f.query != "" || len(f.tags) > 0:
		body := client.ReadByQueryJSONRequestBody{Since: since, Until: until, Direction: client.QueryRequestDirection(direction), Count: int(f.count)}
		body.Query.Items = []client.QueryItem{{Types: f.types, Tags: f.tags}}
		if f.query != "" {
			body.Query = client.Query{}
			if err := json.Unmarshal([]byte(f.query), &body.Query); err != nil {
				return nil, fmt.Errorf("--query: %w", err)
			}
		}
		if f.from > 0 && f.backward {
			body.Before = f.from + 1
		} else if f.from > 0 {
			body.After = f.from - 1
		}
		return service.ReadByQuery(ctx, body, lines)
	case source == allStreams:
		order := client.ReadAllParamsDirection(direction)
		return service.ReadAll(ctx, &client.ReadAllParams{From: from, Count: count, Direction: &order, Types: types, Since: since, Until: until}, lines)
	case strings.Contains(source, "-"):
		order := client.ReadStreamParamsDirection(direction)
		return service.ReadStream(ctx, source, &client.ReadStreamParams{From: from, Count: count, Direction: &order, Since: since, Until: until}, lines)
	default:
		order := client.ReadCategoryParamsDirection(direction)
		return service.ReadCategory(ctx, source, &client.ReadCategoryParams{From: from, Count: count, Direction: &order, Types: types, Since: since, Until: until}, lines)
	}
}

// show writes the events of an answer.
func (f *eventsFlags) show(c *call, answer io.Reader) error {
	buffer := bufio.NewWriterSize(c.out, 64<<10)
	err := printEvents(f.printer(c, buffer), answerLines(answer))
	return errors.Join(err, buffer.Flush())
}

func printEvents(p eventPrinter, events iter.Seq2[json.RawMessage, error]) error {
	if p.asJSON {
		return printJSON(p.out, events)
	}
	for event, err := range events {
		if err != nil {
			return err
		}
		if _, err := p.print(event); err != nil {
			return err
		}
	}
	return nil
}

// answerLines yields the lines of an answer.
func answerLines(answer io.Reader) iter.Seq2[json.RawMessage, error] {
	return func(yield func(json.RawMessage, error) bool) {
		for lines := bufio.NewReaderSize(answer, 64<<10); ; {
			line, err := lines.ReadBytes('\n')
			switch {
			case errors.Is(err, io.EOF) && len(line) == 0:
				return
			case err != nil:
				yield(nil, fmt.Errorf("the answer was cut off: %w", err))
				return
			case !yield(line, nil):
				return
			}
		}
	}
}
