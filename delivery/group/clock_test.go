package group

import (
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestClockNeverGoesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c clock
		if !c.now().IsZero() {
			t.Fatalf("before it is set, it is %s", c.now())
		}
		there := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		asked := time.Now()
		<-time.After(time.Second)
		c.set(there, asked)
		c.set(time.Time{}, time.Now()) // an answer that does not say
		<-time.After(time.Minute)
		if got := c.now(); !got.Equal(there.Add(time.Minute)) {
			t.Fatalf("a minute behind %s it is %s", there, got)
		}
		if got := c.latest(); !got.Equal(there.Add(time.Minute + time.Second)) {
			t.Fatalf("a minute behind an answer that took a second, %s, it is %s at the latest", there, got)
		}
	})
}

func TestBackOffGrowsBetweenItsBounds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		least := time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "least"))
		most := least + time.Duration(rapid.Int64Range(0, int64(24*time.Hour)).Draw(t, "more"))
		failed := rapid.IntRange(1, 1000).Draw(t, "failed")
		want := least
		for range failed - 1 {
			want = min(2*want, most)
		}
		if got := backOff(failed, least, most); got < want-want/5-1 || got > want+want/5+1 {
			t.Fatalf("behind attempt %d it waits %s, between %s and %s; want about %s", failed, got, least, most, want)
		}
	})
}
