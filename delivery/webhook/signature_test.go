package webhook

import (
	"errors"
	"net/http"
	"strconv"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

// The Standard Webhooks library accepts each signature of a message, but none of an expired secret.
func TestStandardWebhooksVerifiesSignatures(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := time.Now()
		var secrets []Secret
		for range rapid.IntRange(1, MaxSecrets).Draw(t, "secrets") {
			s := newSecret()
			switch rapid.IntRange(0, 2).Draw(t, "expires") {
			case 0:
				s.ExpiresAt = now
			case 1:
				s.ExpiresAt = now.Add(time.Second)
			}
			secrets = append(secrets, s)
		}
		body := []byte(rapid.StringN(0, 200, 1000).Draw(t, "body"))
		id := domain.NewEventID().String()
		header := http.Header{}
		header.Set("Webhook-Id", id)
		header.Set("Webhook-Timestamp", strconv.FormatInt(now.Unix(), 10))
		signature, err := sign(secrets, id, now, body)
		if err != nil {
			t.Fatal(err)
		}
		header.Set("Webhook-Signature", signature)
		for i := range secrets {
			receiver, err := standardwebhooks.NewWebhook(secrets[i].Text())
			if err != nil {
				t.Fatal(err)
			}
			valid := receiver.Verify(body, header) == nil
			if valid != secrets[i].Signs(now) {
				t.Fatalf("secret %d, expires %s: valid %t", i, secrets[i].ExpiresAt, valid)
			}
			if receiver.Verify(append(body, 'x'), header) == nil {
				t.Fatal("another body is valid, too")
			}
		}
		stranger := newSecret()
		receiver, err := standardwebhooks.NewWebhook(stranger.Text())
		if err != nil {
			t.Fatal(err)
		}
		if receiver.Verify(body, header) == nil {
			t.Fatal("another secret's signature is valid")
		}
	})
}

func TestUnusableSecretsSignNothing(t *testing.T) {
	t.Parallel()
	unusable := Secret{ID: NewSecretID(), Unusable: errors.New("no key")}
	for _, secrets := range [][]Secret{{unusable}, {newSecret(), unusable}} {
		if signature, err := sign(secrets, "1", time.Now(), nil); signature != "" || err == nil {
			t.Errorf("the signature is %q, %v", signature, err)
		}
	}
}
