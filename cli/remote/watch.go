package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// watching is --watch: how often a command prints its answer again; 0: it prints it once.
type watching time.Duration

// leastWatch is the shortest time between two answers, so that a typing error does not burden a service.
const leastWatch = 200 * time.Millisecond

func watchFlag(command *cobra.Command) *watching {
	w := new(watching)
	command.Flags().DurationVar((*time.Duration)(w), "watch", 0, "print the answer again after this time, such as 2s, until Ctrl-C")
	command.Flags().Lookup("watch").DefValue = "" // once
	return w
}

// run calls print once, or again and again until the user ends it. A terminal shows the newest answer only.
func (w *watching) run(ctx context.Context, c *call, print func(out *output) error) error {
	if !c.changed("watch") {
		return print(c.out)
	}
	if time.Duration(*w) < leastWatch {
		return errors.New("--watch must be at least " + leastWatch.String())
	}
	return repeatedly(ctx, c, time.Duration(*w), print)
}

// repeatedly calls print until the user ends it. An error of the first call is returned; a later one is printed instead
// of the answer.
func repeatedly(ctx context.Context, c *call, every time.Duration, print func(out *output) error) error {
	ticks := time.NewTicker(every)
	defer ticks.Stop()
	screen := &output{colour: c.out.colour, format: c.out.format}
	for n := 0; ; n++ {
		var text bytes.Buffer
		screen.to = &text
		if err := print(screen); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if n == 0 {
				return err
			}
			text.Reset()
			fmt.Fprintln(c.people, err)
		}
		switch {
		case isTerminal(c.out.to):
			c.out.printf("\x1b[H\x1b[2J")
		case n > 0 && !c.asJSON:
			c.out.printf("\n")
		}
		if _, err := c.out.Write(text.Bytes()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}
