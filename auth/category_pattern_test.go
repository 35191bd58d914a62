package auth

import (
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
	"pgregory.net/rapid"
)

func TestCategoryPatterns(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[string]string{ // what it matches of these, in their order
		"":               "heartbeat heartbeat.web heartbeat.web.eu order heartbeats heartbeat. .",
		"**":             "heartbeat heartbeat.web heartbeat.web.eu order heartbeats heartbeat. .",
		"*":              "heartbeat order heartbeats",
		"heartbeat":      "heartbeat",
		"heartbeat.*":    "heartbeat.web heartbeat.",
		"heartbeat.**":   "heartbeat heartbeat.web heartbeat.web.eu heartbeat.",
		"heartbeat.*.**": "heartbeat.web heartbeat.web.eu heartbeat.",
		"heartbeat.**.*": "heartbeat.web heartbeat.web.eu heartbeat.",
		"**.eu":          "heartbeat.web.eu",
		"**.web.**":      "heartbeat.web heartbeat.web.eu",
		"*.*":            "heartbeat.web heartbeat. .",
		"heartbeat.":     "heartbeat.",
		"Heartbeat":      "",
		"*.**.*.**.*":    "heartbeat.web.eu",
	} {
		if pattern != "" {
			if _, err := ParseCategoryPattern(pattern); err != nil {
				t.Errorf("%q: %v", pattern, err)
			}
		}
		var got []string
		for category := range strings.FieldsSeq("heartbeat heartbeat.web heartbeat.web.eu order heartbeats heartbeat. .") {
			if CategoryPattern(pattern).Matches(category) {
				got = append(got, category)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q matches %q, not %q", pattern, got, want)
		}
	}
	for pattern, want := range map[string]string{
		"": "0 bytes",
		strings.Repeat("a", domain.MaxCategoryBytes):   "",
		strings.Repeat("a", domain.MaxCategoryBytes+1): "needs 1 to 100",
		strings.Repeat("a.", MaxCategoryPatternBytes):  "400 bytes",
		"heart*":   "whole segments",
		"***":      "whole segments",
		"a.*b.c":   "whole segments",
		"**.**":    "write it once",
		"a.**.**":  "write it once",
		"a:b":      "use letters",
		"order-1":  "use letters",
		"a b":      "use letters",
		"ä":        "use letters",
		"\x00":     "use letters",
		"*.*.**":   "",
		"a..b":     "",
		"a_B.9.**": "",
	} {
		_, err := ParseCategoryPattern(pattern)
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", pattern, err)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%q gave %v", pattern, err)
		}
	}
}

// meant is what Matches says, the long way round.
func meant(pattern, category []string) bool {
	switch {
	case len(pattern) == 0:
		return len(category) == 0
	case pattern[0] == "**":
		for n := range len(category) + 1 {
			if meant(pattern[1:], category[n:]) {
				return true
			}
		}
		return false
	case len(category) == 0:
		return false
	}
	return (pattern[0] == "*" || pattern[0] == category[0]) && meant(pattern[1:], category[1:])
}

// drawCategory never returns the empty category, which represents all categories.
func drawCategory(t *rapid.T) string {
	segments := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab", ""}), 1, 7).Draw(t, "category")
	if len(segments) == 1 && segments[0] == "" {
		segments[0] = "a"
	}
	return strings.Join(segments, ".")
}

func drawPattern(t *rapid.T, label string) CategoryPattern {
	segments := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "ab", "", "*", "**", "**"}), 1, 6).Draw(t, label)
	for i := 1; i < len(segments); i++ {
		if segments[i] == "**" && segments[i-1] == "**" {
			segments[i] = "a"
		}
	}
	text := strings.Join(segments, ".")
	if text == "" {
		text = "*"
	}
	pattern, err := ParseCategoryPattern(text)
	if err != nil {
		t.Fatal(err)
	}
	return pattern
}

func TestCategoryPatternsAreWhatTheyMean(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		pattern, category := drawPattern(t, "pattern"), drawCategory(t)
		got, want := pattern.Matches(category), meant(strings.Split(string(pattern), "."), strings.Split(category, "."))
		if got != want {
			t.Fatalf("%q matches %q: %v", pattern, category, got)
		}
	})
}

// A pattern that covers another matches whatever that one does.
func TestCoversIsNeverWronglyTrue(t *testing.T) {
	t.Parallel()
	covered := 0
	rapid.Check(t, func(t *rapid.T) {
		one, other, category := drawPattern(t, "one"), drawPattern(t, "other"), drawCategory(t)
		if !one.Covers(one) || !CategoryPattern("").Covers(one) || !CategoryPattern("**").Covers("") {
			t.Fatalf("%q does not cover itself, or is not covered by everything", one)
		}
		if one.Covers(other) {
			covered++
			if other.Matches(category) && !one.Matches(category) {
				t.Fatalf("%q does not cover %q, which matches %q", one, other, category)
			}
		}
	})
	if covered == 0 {
		t.Error("no pattern covered another")
	}
}

func TestMatchingIsFastAndDoesNotAllocate(t *testing.T) {
	grants, err := ParseGrants("scopes", []string{"!events:append:billing.**", "events:append:heartbeat.**", "events:append:**.audit", "documents:read"})
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		if !grants.Allow(ScopeEventsAppend, "heartbeat.web.eu") || grants.Allow(ScopeEventsAppend, "billing.eu") {
			t.Error("it is wrong")
		}
	}); n > 0 {
		t.Errorf("%.0f allocations", n)
	}
	// The worst there can be ends at once: a pattern of many ** against a category of as many segments.
	worst := CategoryPattern(strings.Repeat("**.a.", MaxCategoryPatternBytes/5-1) + "b")
	if worst.Matches(strings.Repeat("a.", domain.MaxCategoryBytes/2)) {
		t.Error("it matches")
	}
}

func BenchmarkGrants(b *testing.B) {
	for name, texts := range map[string][]string{
		"plain":    {"events:append", "events:read"},
		"patterns": {"!events:append:billing.**", "events:append:heartbeat.*", "events:append:order.**"},
	} {
		grants, err := ParseGrants("scopes", texts)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !grants.Allow(ScopeEventsAppend, "order.web") {
					b.Fatal("denied")
				}
			}
		})
	}
}
