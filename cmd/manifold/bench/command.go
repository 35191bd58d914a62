package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

func commandCommand() *cobra.Command {
	f := &flags{}
	command := newCommand(f, "command", "Send commands over HTTP",
		`Send commands over HTTP from closed-loop clients to a number of streams, chosen at random. Each command has a condition on the
stream's state, and appends one event like those of "manifold bench append", for comparison.

The limit is COPY of the same rows into a table like the log's, with its indexes, without row-level security.`,
		sendCommands, "clients", "streams")
	command.Flags().IntVar(&f.clients, "clients", 64, "concurrent clients")
	command.Flags().IntVar(&f.streams, "streams", 1000, "number of streams")
	f.durationFlags(command, 10*time.Second, 2*time.Second, "")
	f.serviceFlags(command, "send to this running service")
	return command
}

// orderCommands is the benchmark's aggregate, with a command.
const orderCommands = `{"initial":{"events":0,"total":0},"on":{` +
	`"ItemAdded":"merge(state, {\"events\": state.events + 1, \"total\": state.total + event.data.price * event.data.quantity})"},` +
	`"commands":{"AddItem":{"require":[{"if":"state.total + command.price * command.quantity < 1000000000","reject":"too-expensive"}],"emit":[{"ItemAdded":"command"}]}}}`

func sendCommands(ctx context.Context, r *run) error {
	s, err := r.startService(ctx)
	if err != nil {
		return err
	}
	w, err := r.dial(s.key)
	if err != nil {
		return err
	}
	if err := w.json("PUT", "/v1/aggregates/order", json.RawMessage(orderCommands), http.StatusOK, nil); err != nil {
		return err
	}
	wires, err := r.connect(r.clients)
	if err != nil {
		return err
	}
	clients := make([]client, r.clients)
	for i, w := range wires {
		sender := newSender(w, i, 0, 1)
		clients[i] = func(context.Context) (int, error) { return 1, sender.command(r.streams) }
	}
	r.log("sending for %s", r.duration)
	measured, err := drive(ctx, clients, r.warmUp, r.duration, 0)
	if err != nil {
		return err
	}
	r.Name, r.Clients, r.latencyName = fmt.Sprintf("command --clients %d --streams %d", r.clients, r.streams), r.clients, "command"
	return r.finish(ctx, measured, copyLimit)
}

// command sends a command to one of the first streams, chosen at random.
func (s *sender) command(streams int) error {
	b := append(s.body[:0], `{"data":`...)
	s.body = append(s.data(b), '}')
	_, err := s.do("POST", fmt.Sprintf("/v1/aggregates/order/%d/commands/AddItem", s.random.IntN(streams)), "", s.body, http.StatusOK)
	return err
}
