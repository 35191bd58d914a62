package domain_test

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/domain"
)

func TestInvalidPatterns(t *testing.T) {
	t.Parallel()
	for pattern, reason := range map[string]string{
		`(`:                       "not a regular expression",
		`a**`:                     "not a regular expression",
		`(?=a)`:                   "not a regular expression",
		`(a)\1`:                   "not a regular expression",
		`\bword`:                  `\b and \B`,
		`x(\B)y`:                  `\b and \B`,
		`(?m)^a`:                  "ends of lines",
		`(?m:a$)`:                 "ends of lines",
		`a{256}`:                  "at most 255",
		`a{2,256}`:                "at most 255",
		`a{256,}`:                 "at most 255",
		`(a{255}){5}`:             "not a regular expression",
		"a\x00":                   "U+0000",
		`\x00`:                    "U+0000",
		`[^\x00-\x{10FFFF}]`:      "cannot match anything",
		`a\x{d800}`:               "surrogate",
		strings.Repeat(`\pL`, 20): "written out",
		"\xff":                    "not a regular expression",
		strings.Repeat("a", 1001): "1001 bytes",
		"(?:" + strings.Repeat("a", 400) + "){26}": "10400 parts",
		"(?:(?:abcdefghij|[0-9]){2,30}){31}x{255}": "10485 parts",
	} {
		if _, err := domain.ParsePattern(pattern); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%.30q: %v; want an error with %q", pattern, err, reason)
		}
	}
	for _, pattern := range []string{"", `a{255}`, `^a$`, `\Aa\z`, `(?i)straße`, `[^\x00-\x1f]`, `\pL`, strings.Repeat("a", 1000)} {
		if p, err := domain.ParsePattern(pattern); err != nil || p.String() != pattern {
			t.Errorf("%.30q: %q, %v", pattern, p, err)
		}
	}
}

// drawPattern draws patterns of all that RE2 has and ParsePattern takes.
func drawPattern(t *rapid.T, depth int) string {
	pick := func(options ...string) string { return rapid.SampledFrom(options).Draw(t, "part") }
	kinds := []string{"literal", "literal", "class", "any", "anchor", "empty"}
	if depth > 0 {
		kinds = append(kinds, "concat", "concat", "concat", "alternate", "repeat", "repeat", "flags", "group")
	}
	inner := func() string { return drawPattern(t, depth-1) }
	switch pick(kinds...) {
	case "concat":
		return inner() + inner()
	case "alternate":
		return "(?:" + inner() + "|" + inner() + ")"
	case "repeat":
		return "(?:" + inner() + ")" + pick("*", "+", "?", "{2}", "{0,2}", "{1,}", "{0}", "*?", "+?", "??", "{1,2}?")
	case "flags":
		return "(?" + pick("i", "s", "i-s", "U") + ":" + inner() + ")"
	case "group":
		return pick("(", "(?P<name>") + inner() + ")"
	case "class":
		return pick("[ab]", "[^a]", "[a-c]", `\d`, `\D`, `\w`, `\W`, `\s`, `\S`, `\pL`, `\PL`, `[[:upper:]]`, `[^[:space:]]`, `[\^\-\]\\]`, "[^\\x00-a]", "[\\x00-a]", "[ä-ü]", "[^\\n]", "[^a\\x{10FFFF}]", `\p{Greek}`, "[^\\x01-\\x{10FFFF}]", "[\\x{d700}-\\x{e000}]", "[\\x{d800}-\\x{d900}]", "[^\\x{d800}-\\x{dfff}]")
	case "any":
		return pick(".", "(?s:.)")
	case "anchor":
		return pick("^", "$", `\A`, `\z`)
	case "empty":
		return pick("", "(?:)", "()")
	}
	return pick("a", "b", "A", "k", "s", "ß", "ä", "1", `\.`, `\*`, `\$`, `\^`, `\[`, `\]`, `\{`, `\}`, `\(`, `\|`, `\\`, "-", " ", "%", "_", `\n`, `\t`, "\U0001F600", `\Qa.b\E`, "#", "'")
}

func drawText(t *rapid.T) string {
	return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "A", "B", "k", "K", "\u212A", "s", "\u017F", "ß", "ẞ", "ä", "Ä", "1", ".", "*", "$", "^", "[", "]", "\\", "-", " ", "%", "_", "\n", "\t", "\r",
		"\U0001F600", "\uFFFD", "\x01", "\x7f", "\ue000", "\ud7ff", "α", "#", "'"}), 0, 6).Draw(t, "text"), "")
}

// dialect matches everything that Portable may use besides literal characters.
var dialect = regexp.MustCompile(`^(?s:\\A|\\z|\\[\\.+*?()|\[\]{}^$-]|\(\?:|\(\)|\)|\||[*+?]|\{[0-9]+,[0-9]*\}|\[\^?|\]|-|[^\\.+*?()|\[\]{}^$-])*$`)

// The portable form accepts the same texts as the pattern.
func TestPortablePatternsAcceptTheSameTexts(t *testing.T) {
	t.Parallel()
	drawn, matched, refused := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		source := drawPattern(t, 4)
		drawn++
		pattern, err := domain.ParsePattern(source)
		if err != nil {
			refused++
			return
		}
		portable := pattern.Portable(`\A`, `\z`)
		compiled, err := regexp.Compile(portable)
		if err != nil {
			t.Fatalf("%q becomes %q: %v", source, portable, err)
		}
		if !dialect.MatchString(portable) || strings.ContainsRune(portable, 0) {
			t.Fatalf("%q becomes %q, which not every dialect reads alike", source, portable)
		}
		original := regexp.MustCompile(source)
		for range 20 {
			text := drawText(t)
			want := original.MatchString(text)
			if pattern.MatchString(text) != want || compiled.MatchString(text) != want {
				t.Fatalf("%q on %q: %v; as a pattern %v, as %q %v", source, text, want, pattern.MatchString(text), portable, compiled.MatchString(text))
			}
			if want {
				matched++
			}
		}
	})
	if matched == 0 || refused > drawn/10 {
		t.Errorf("%d texts matched, %d patterns were refused", matched, refused)
	}
}
