package remote

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/manifold-es/manifold/client"
)

// auditFlags say which events of an audit log to show.
type auditFlags struct {
	eventsFlags
	actor, action    string
	follow, operator bool
}

func auditCommand() *cobra.Command {
	to, f := &connection{base: "/audit"}, &auditFlags{}
	command := &cobra.Command{
		Use:   "audit [CATEGORY | STREAM]",
		Short: "Show who did what: the events of an audit log",
		Long: `Show the audit log of a tenant, which has an event before and after each administrative action, and for requests that were denied.
The key needs the scope audit:read. With --operator, show the log of what operators did.

A category is a kind of thing, such as key, webhook or projection, or denied; a stream is one thing (webhook-mail). Each line has
the position, the time, what happened, by whom, and to what. -o prints events as the service sends them, with what the thing was
before and after.`,
		Example: `  manifold audit --since 24h
  manifold audit webhook-mail -o json
  manifold audit --action createKey --actor key:0190d3a4-5b6c-7def-8123-456789abcde0
  manifold audit --types RequestsDenied --follow
  manifold audit --operator --backward --count 20`,
		Args: cobra.MaximumNArgs(1),
		RunE: to.run(func(ctx context.Context, c *call) error {
			source := allStreams
			if len(c.args) == 1 {
				source = c.args[0]
			}
			if f.actor != "" {
				f.tags = append(f.tags, "actor:"+f.actor)
			}
			if f.action != "" {
				f.tags = append(f.tags, "action:"+f.action)
			}
			if err := f.check(c, source); err != nil {
				return err
			}
			buffer := bufio.NewWriterSize(c.out, 64<<10)
			printer := f.printer(c, buffer)
			printer.line = auditLine
			if f.follow {
				return f.tail(ctx, c, source, buffer, printer)
			}
			response, err := f.read(ctx, c.Client, source)
			if err != nil {
				return err
			}
			if response.StatusCode != http.StatusOK {
				return done(response, nil)
			}
			defer response.Body.Close()
			err = printEvents(printer, answerLines(response.Body))
			return errors.Join(err, buffer.Flush())
		}),
	}
	to.bind(command, "MANIFOLD_KEY", operatorKey)
	command.PersistentPreRun = func(*cobra.Command, []string) {
		if f.operator {
			to.asOperator()
		}
	}
	f.eventPeriod.bind(command)
	command.Flags().StringVar(&f.actor, "actor", "", "only what this caller did: key:ID, token:ISSUER:SUBJECT or operator")
	command.Flags().StringVar(&f.action, "action", "", "only this operation of the API, such as createKey")
	command.Flags().BoolVar(&f.follow, "follow", false, "also show what is recorded from now on, until Ctrl-C")
	command.Flags().BoolVar(&f.operator, "operator", false, "the operators' audit log")
	command.Flags().BoolVar(&f.backward, "backward", false, "the newest events first")
	command.Flags().Int64Var(&f.count, "count", 0, "at most this many events (default: all)")
	f.eventFormat.bind(command)
	return command
}

func (f *auditFlags) check(c *call, source string) error {
	switch {
	case len(f.tags) > 0 && source != allStreams:
		return errors.New("--actor and --action cannot be combined with a category or a stream; they are looked for in the whole log")
	case f.follow && (f.backward || f.until != ""):
		return errors.New("--follow cannot be combined with --backward or --until")
	}
	return f.eventsFlags.check(c, source)
}

// tail follows the log from --since, or from its beginning.
func (f *auditFlags) tail(ctx context.Context, c *call, source string, buffer *bufio.Writer, printer eventPrinter) error {
	from := "start"
	since, _, err := f.times()
	if err != nil {
		return err
	}
	if since != nil {
		from = since.Format("2006-01-02T15:04:05.000000Z07:00")
	}
	flags := &tailFlags{from: from, types: f.types, count: f.count}
	if len(f.tags) > 0 {
		query, err := json.Marshal(client.Query{Items: []client.QueryItem{{Types: f.types, Tags: f.tags}}})
		if err != nil {
			return fmt.Errorf("encode the query: %w", err)
		}
		flags.query, flags.types = string(query), nil
	}
	t := &tail{service: c.Client, source: source, flags: flags, out: buffer, events: printer, people: c.people}
	return t.run(ctx)
}

// auditLine formats an event of an audit log on one line, for people.
func auditLine(e client.Event) string {
	var data struct {
		Action  string            `json:"action"`
		Targets map[string]string `json:"targets"`
		Query   map[string]string `json:"query"`
		Code    string            `json:"code"`
		Network string            `json:"network"`
		Count   int64             `json:"count"`
		Actor   struct {
			Kind, Key, Name, Subject string
		} `json:"actor"`
	}
	if json.Unmarshal(e.Data, &data) != nil {
		return eventLine(e)
	}
	parts := []string{fmt.Sprint(e.Position), e.RecordedAt.Local().Format(toTheMillisecond), fmt.Sprintf("%-14s", e.Type), cmp.Or(data.Action, "-")}
	if data.Actor.Kind != "" {
		parts = append(parts, fmt.Sprintf("by %s %q %s", data.Actor.Kind, data.Actor.Name, cmp.Or(data.Actor.Key, data.Actor.Subject)))
	}
	for _, parameters := range []map[string]string{data.Targets, data.Query} {
		for _, name := range slices.Sorted(maps.Keys(parameters)) {
			parts = append(parts, name+"="+parameters[name])
		}
	}
	if data.Count > 0 {
		parts = append(parts, fmt.Sprintf("%d times", data.Count), data.Network)
	}
	return strings.TrimSpace(strings.Join(append(parts, data.Code), "  "))
}
