package eventlog

import "testing"

func TestPersonalFieldsBecomeNull(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		pointers []string
		want     string // empty: all data is removed
	}{
		"a field":                            {[]string{"/a"}, `{"a":null,"b":[{"c":1.50}],"d/e":"z"}`},
		"in a list":                          {[]string{"/b/0/c"}, `{"a":"x","b":[{"c":null}],"d/e":"z"}`},
		"an item, and an escaped name":       {[]string{"/b/0", "/d~1e"}, `{"a":"x","b":[null],"d/e":null}`},
		"one field that is there":            {[]string{"/missing", "/a"}, `{"a":null,"b":[{"c":1.50}],"d/e":"z"}`},
		"no field that is there":             {[]string{"/missing", "/b/1", "/b/x", "/b/0/d", "/a/b"}, ""},
		"no pointers":                        {nil, ""},
		"all of it":                          {[]string{""}, ""},
		"nothing, and all of it in addition": {[]string{"/missing", ""}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			event := erasable{eventType: "A", version: "1", data: []byte(`{"a": "x", "b": [{"c": 1.50}], "d/e": "z"}`)}
			data, partly := event.withoutPersonal(func(string, int64) []string { return test.pointers })
			if string(data) != test.want || partly != (test.want != "") {
				t.Errorf("it becomes %s, %v", data, partly)
			}
		})
	}
}
