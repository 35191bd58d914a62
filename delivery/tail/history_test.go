package tail

import (
	"testing"
	"time"

	"github.com/manifold-es/manifold/domain"
)

func TestSliceSizeFollowsTheFollowersSpeed(t *testing.T) {
	t.Parallel()
	h := newHistory(newTail(New(Config{}), domain.TenantID{}), nil)
	h.adjustScale(time.Time{}) // it was given nothing yet
	if h.scale != scaleFirst || !h.readsAhead() {
		t.Errorf("it begins with %d", h.scale)
	}
	for range 10 {
		h.adjustScale(time.Now())
	}
	if h.scale != scaleMost {
		t.Errorf("a fast one comes to %d", h.scale)
	}
	h.adjustScale(time.Now().Add(-slowFollower / 2))
	if h.scale != scaleMost {
		t.Errorf("one that is neither fast nor slow comes to %d", h.scale)
	}
	h.adjustScale(time.Now().Add(-2 * slowFollower))
	if h.scale != scaleLeast || h.readsAhead() {
		t.Errorf("a slow one comes to %d", h.scale)
	}
	h.adjustScale(time.Now())
	if !h.readsAhead() {
		t.Error("one that is fast again is not read ahead for")
	}
}
