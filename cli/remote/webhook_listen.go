package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

// listenedBytes is the most that a received message may have. The service sends half as much at most.
const listenedBytes = 32 << 20

func webhookListen() *cobra.Command {
	listen, answer, asJSON := "127.0.0.1:9000", http.StatusNoContent, false
	var secrets []string
	command := &cobra.Command{
		Use:   "listen",
		Short: "Receive messages of webhooks on this machine, verify and print them",
		Long: `Receive messages of webhooks on this machine, print them, and report whether their signatures are valid, until Ctrl-C. It answers
204, and 401 where the signature is not valid. --answer 503 shows how the service reacts to a receiver that fails.

Give the webhook's secret by --secret or WEBHOOK_SECRET. Without one, nothing is verified. The service must be allowed to send here:
manifold dev is; otherwise see webhooks.allow in its configuration.`,
		Example: `  manifold webhook put mail --category order --to http://127.0.0.1:9000/
  WEBHOOK_SECRET=whsec_... manifold webhook listen`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if answer < 200 || answer > 599 {
				return errors.New("--answer must be a status from 200 to 599")
			}
			if secret := os.Getenv("WEBHOOK_SECRET"); len(secrets) == 0 && secret != "" {
				secrets = []string{secret}
			}
			r := &receiver{out: newOutput(command.OutOrStdout()), answer: answer, asJSON: asJSON}
			for i, secret := range secrets {
				verifier, err := standardwebhooks.NewWebhook(secret)
				if err != nil {
					return fmt.Errorf("secret %d: %w; a secret begins with whsec_", i+1, err)
				}
				r.verifiers = append(r.verifiers, verifier)
			}
			return r.serve(command.Context(), listen, command.ErrOrStderr())
		},
	}
	command.Flags().StringVar(&listen, "listen", listen, "the address to listen at")
	command.Flags().StringArrayVar(&secrets, "secret", nil, "the webhook's secret (WEBHOOK_SECRET); may be repeated")
	command.Flags().IntVar(&answer, "answer", answer, "the status to answer messages with that are verified")
	command.Flags().BoolVar(&asJSON, "json", false, "print only the messages that are not refused, one JSON value a line")
	return command
}

// receiver prints the messages that webhooks send.
type receiver struct {
	out       *output
	verifiers []*standardwebhooks.Webhook // none: nothing is verified
	answer    int
	asJSON    bool
}

// serve receives messages until ctx ends.
func (r *receiver) serve(ctx context.Context, address string, people io.Writer) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	note := ""
	if len(r.verifiers) == 0 {
		note = "; without a secret, nothing is verified"
	}
	fmt.Fprintf(people, "listening at http://%s/%s\n", listener.Addr(), note)
	messages := make(chan received)
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
			r.receive(ctx, w, request, messages)
		}),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	for {
		select {
		case m := <-messages: // one at a time, so that they do not mix
			if err := r.print(m, people); err != nil {
				return errors.Join(err, server.Close())
			}
		case err := <-ended:
			return err
		case <-ctx.Done():
			err := server.Close()
			<-ended
			return err
		}
	}
}

// received is a message, with what the verification says.
type received struct {
	header  http.Header
	path    string
	body    []byte
	verdict error
}

func (r *receiver) receive(ctx context.Context, w http.ResponseWriter, request *http.Request, to chan<- received) {
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, listenedBytes))
	m := received{header: request.Header, path: request.URL.Path, body: body, verdict: err}
	refusal := http.StatusBadRequest
	if err == nil && len(r.verifiers) > 0 {
		refusal = http.StatusUnauthorized
		for _, verifier := range r.verifiers {
			if m.verdict = verifier.Verify(body, request.Header); m.verdict == nil {
				break
			}
		}
	}
	select {
	case to <- m:
	case <-ctx.Done():
	}
	if m.verdict != nil {
		http.Error(w, m.verdict.Error(), refusal)
		return
	}
	w.WriteHeader(r.answer)
}

// print prints a message. Anybody on this machine can send one, so what is not JSON is quoted.
func (r *receiver) print(m received, people io.Writer) error {
	verdict, colour := "verified", green
	switch {
	case m.verdict != nil:
		verdict, colour = "REFUSED: "+m.verdict.Error(), red
	case len(r.verifiers) == 0:
		verdict, colour = "not verified", yellow
	}
	head := fmt.Sprintf("%s  %+q  %+q  %s", time.Now().Format(time.TimeOnly), m.path, m.header.Get("Webhook-Id"), verdict)
	var value any = json.RawMessage(m.body)
	if !json.Valid(m.body) {
		value = string(m.body)
	}
	switch {
	case r.asJSON && m.verdict != nil:
		_, err := fmt.Fprintln(people, head)
		return err
	case r.asJSON:
		return r.out.json(value)
	}
	r.out.line(colour, "%s", head)
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return printIndented(r.out, text)
}
