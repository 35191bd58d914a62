package domain_test

import (
	"strings"
	"testing"

	"github.com/manifold-es/manifold/domain"
)

func TestCheckStream(t *testing.T) {
	t.Parallel()
	for name, good := range map[string]bool{
		"order-123":                     true,
		"order-a-b-c":                   true,
		"heartbeat.received-host:1~x@y": true,
		"order":                         false,
		"order-":                        false,
		"-1":                            false,
		"ord er-1":                      false,
		"order-1 2":                     false,
		"order-a/b":                     false,
		"order-é":                       false,
		"$all-1":                        false,
		"o-" + strings.Repeat("x", 254): true,
		"o-" + strings.Repeat("x", 255): false,
		strings.Repeat("c", 101) + "-1": false,
	} {
		if err := domain.CheckStream("stream", name); (err == nil) != good {
			t.Errorf("CheckStream(%.40q) = %v, want good = %v", name, err, good)
		}
	}
	if got := domain.Category("order-a-b") + "|" + domain.Key("order-a-b"); got != "order|a-b" {
		t.Errorf("category and key of order-a-b are %s", got)
	}
}

func TestExpected(t *testing.T) {
	t.Parallel()
	for text, holds := range map[string][3]bool{ // at versions 0, 1, 2
		"any": {true, true, true}, "none": {true, false, false}, "exists": {false, true, true},
		"0": {true, false, false}, "1": {false, true, false},
	} {
		expected, err := domain.ParseExpected(text)
		if err != nil {
			t.Fatal(err)
		}
		for version, want := range holds {
			if expected.Holds(int64(version)) != want {
				t.Errorf("%s at version %d: want %v", text, version, want)
			}
		}
	}
	for _, text := range []string{"", "-1", "-2", "1.5", "all"} {
		if _, err := domain.ParseExpected(text); err == nil {
			t.Errorf("ParseExpected(%q) passes", text)
		}
	}
}

func TestIDs(t *testing.T) {
	t.Parallel()
	id := domain.NewEventID()
	back, err := domain.ParseEventID(strings.ToUpper(id.String()))
	if err != nil || back != id {
		t.Errorf("%s comes back as %s, %v", id, back, err)
	}
	if a, b := domain.DeriveEventID("a", "bc"), domain.DeriveEventID("ab", "c"); a == b {
		t.Error("other parts, same id")
	}
	if a, b := domain.DeriveEventID("a", "bc"), domain.DeriveEventID("a", "bc"); a != b {
		t.Error("same parts, other id")
	}
	for _, text := range []string{"", "x", "{0190d3a4-5b6c-7def-8123-456789abcdef}", "0190d3a45b6c7def8123456789abcdef", "0190d3a4-5b6c-7def-8123-456789abcdeg"} {
		if _, err := domain.ParseEventID(text); err == nil {
			t.Errorf("ParseEventID(%q) passes", text)
		}
	}
}
