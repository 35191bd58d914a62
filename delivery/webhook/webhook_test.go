package webhook

import (
	"bytes"
	"testing"
	"time"
)

func TestIDsOfAttemptsGrowWithTime(t *testing.T) {
	t.Parallel()
	before := time.Now()
	id := NewAttemptID()
	after := time.Now()
	if first := FirstAttemptID(before); bytes.Compare(first[:], id[:]) >= 0 {
		t.Errorf("an id of %s is %s, and %s is not below it", before, id, first)
	}
	if next := FirstAttemptID(after.Add(time.Millisecond)); bytes.Compare(id[:], next[:]) >= 0 {
		t.Errorf("an id of %s is %s, and %s is not above it", after, id, next)
	}
	if !FirstAttemptID(time.Time{}).IsZero() {
		t.Error("there are ids below the first time")
	}
}

func TestSecretsExpire(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, c := range []struct {
		expires time.Time
		signs   bool
	}{{time.Time{}, true}, {now.Add(time.Nanosecond), true}, {now, false}, {now.Add(-time.Hour), false}} {
		if s := (Secret{ExpiresAt: c.expires}); s.Signs(now) != c.signs {
			t.Errorf("one that expires at %s signs at %s: %v", c.expires, now, s.Signs(now))
		}
	}
	if text := (&Secret{Key: make([]byte, SecretBytes)}).Text(); text != "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=" {
		t.Errorf("a secret is written %s", text)
	}
}
