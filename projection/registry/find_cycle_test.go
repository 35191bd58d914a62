package registry

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// findCycle finds a cycle exactly if the projection can be reached from itself.
func TestFindCycle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 7).Draw(t, "projections")
		feeds := make(map[string][]string)
		reach := make([][]bool, n)
		for i := range n {
			reach[i] = make([]bool, n)
			for j := range n {
				if rapid.IntRange(0, 3).Draw(t, "fed") == 0 {
					feeds[fmt.Sprint(i)] = append(feeds[fmt.Sprint(i)], fmt.Sprint(j))
					reach[i][j] = true
				}
			}
		}
		for k := range n {
			for i := range n {
				for j := range n {
					reach[i][j] = reach[i][j] || reach[i][k] && reach[k][j]
				}
			}
		}
		others := make(map[string][]string)
		for name, of := range feeds {
			if name != "0" {
				others[name] = of
			}
		}
		way := findCycle("0", feeds["0"], others)
		if (way != nil) != reach[0][0] {
			t.Fatalf("of %v the way is %v; there is one: %v", feeds, way, reach[0][0])
		}
		for i, name := range way {
			if next := way[(i+1)%len(way)]; !slices.Contains(feeds[next], name) || i > 0 && name == "0" {
				t.Fatalf("of %v the way is %v: %s does not fold %s", feeds, way, next, name)
			}
		}
	})
}
