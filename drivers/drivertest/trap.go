package drivertest

import (
	"strings"

	"github.com/manifold-es/manifold/domain"
)

// trap is a query that a database's own comparison would answer wrongly, with a document that shows it.
type trap struct {
	name    string
	data    string
	where   domain.Predicate
	matches bool // whether the document does
}

// The constructors below keep the table to one line for each trap.

func at(names ...string) domain.Path { return names }

func text(text string) domain.Scalar { return domain.Scalar{Kind: domain.ScalarText, Text: text} }

func num(text string) domain.Scalar { return domain.ParseNumber(text) }

func truth(b bool) domain.Scalar { return domain.Scalar{Kind: domain.ScalarBool, Bool: b} }

var null domain.Scalar

func compared(path domain.Path, comparison domain.Comparison, value domain.Scalar) domain.Predicate {
	return domain.Compare{Path: path, Comparison: comparison, Value: value}
}

func has(names ...string) domain.Has { return domain.Has{Path: names} }

func lacks(names ...string) domain.Has { return domain.Has{Path: names, Not: true} }

func in(path domain.Path, values ...domain.Scalar) domain.OneOf {
	return domain.OneOf{Path: path, Values: values}
}

func notIn(path domain.Path, values ...domain.Scalar) domain.OneOf {
	return domain.OneOf{Path: path, Values: values, Not: true}
}

func contains(path domain.Path, value domain.Scalar) domain.Contains {
	return domain.Contains{Path: path, Value: value}
}

func containsNot(path domain.Path, value domain.Scalar) domain.Contains {
	return domain.Contains{Path: path, Value: value, Not: true}
}

func tests(path domain.Path, test domain.TextTest, text string) domain.Text {
	return domain.Text{Path: path, Test: test, Text: text}
}

func testsNot(path domain.Path, test domain.TextTest, text string) domain.Text {
	return domain.Text{Path: path, Test: test, Text: text, Not: true}
}

func fits(text string, not bool) domain.Matches {
	pattern, err := domain.ParsePattern(text)
	if err != nil {
		panic(err) // the table below is wrong
	}
	return domain.Matches{Path: at("a"), Pattern: pattern, Not: not, Place: "line 1, column 7"}
}

var (
	long     = strings.Repeat("0123456789", 30)   // longer than what can be ordered
	veryLong = strings.Repeat("0123456789", 1000) // longer than what some functions and indexes of databases accept
)

var traps = []trap{
	// Nothing, and null.
	{"nothing is not null", `{}`, compared(at("a"), domain.Equal, null), false},
	{"nothing does not differ from a number", `{}`, compared(at("a"), domain.NotEqual, num("1")), false},
	{"nothing does not differ from null", `{}`, compared(at("a"), domain.NotEqual, null), false},
	{"null is null", `{"a": null}`, compared(at("a"), domain.Equal, null), true},
	{"null does not differ from null", `{"a": null}`, compared(at("a"), domain.NotEqual, null), false},
	{"null differs from a number", `{"a": null}`, compared(at("a"), domain.NotEqual, num("1")), true},
	{"null is not below a number", `{"a": null}`, compared(at("a"), domain.Less, num("1")), false},
	{"null is not at most null", `{"a": null}`, compared(at("a"), domain.LessOrEqual, null), false},
	{"null is not the empty text", `{"a": null}`, compared(at("a"), domain.Equal, text("")), false},
	{"null is not false", `{"a": null}`, compared(at("a"), domain.Equal, truth(false)), false},
	{"null is not 0", `{"a": null}`, compared(at("a"), domain.Equal, num("0")), false},
	{"a text null is not null", `{"a": "null"}`, compared(at("a"), domain.Equal, null), false},
	{"nothing is within null", `{"a": null}`, compared(at("a", "b"), domain.Equal, null), false},
	{"nothing within null differs", `{"a": null}`, compared(at("a", "b"), domain.NotEqual, num("1")), false},
	{"nothing is within a text", `{"a": "b"}`, compared(at("a", "b"), domain.NotEqual, num("1")), false},
	{"nothing does not start with the empty text", `{}`, testsNot(at("a"), domain.StartsWith, "x"), false},
	{"nothing is in no list of values", `{}`, in(at("a"), null, num("1")), false},
	{"nothing is not outside of values", `{}`, notIn(at("a"), num("1")), false},
	{"null is outside of values", `{"a": null}`, notIn(at("a"), num("1"), text("null")), true},
	{"null is among values with null", `{"a": null}`, in(at("a"), num("1"), null), true},
	{"null is not outside of values with null", `{"a": null}`, notIn(at("a"), num("1"), null), false},
	{"1 is outside of values with null", `{"a": 1}`, notIn(at("a"), num("2"), null), true},

	// Has.
	{"a member that is null is there", `{"a": null}`, has("a"), true},
	{"a member that is null is not lacking", `{"a": null}`, lacks("a"), false},
	{"a member that does not exist is lacking", `{"b": 1}`, lacks("a"), true},
	{"a member of nothing is missing", `{}`, has("a", "b"), false},
	{"a member of nothing is not lacking", `{}`, lacks("a", "b"), false},
	{"a member of null is missing", `{"a": null}`, has("a", "b"), false},
	{"a member of null is lacking", `{"a": null}`, lacks("a", "b"), true},
	{"a member within null within is not lacking", `{"a": null}`, lacks("a", "b", "c"), false},
	{"a member of a number is not lacking", `{"a": 1}`, lacks("a", "b"), false},
	{"a member of a text is not lacking", `{"a": "b"}`, lacks("a", "b"), false},
	{"a member of a list is missing", `{"a": [{"b": 1}]}`, has("a", "b"), false},
	{"a member of a list is not lacking", `{"a": [{"b": 1}]}`, lacks("a", "b"), false},
	{"a number is no member of a list", `{"a": [7]}`, has("a", "0"), false},
	{"a number is not lacking in a list", `{"a": []}`, lacks("a", "0"), false},
	{"a member of an empty object is lacking", `{"a": {}}`, lacks("a", "b"), true},
	{"a member with an object is there", `{"a": {"b": {}}}`, has("a", "b"), true},
	{"a text is no member", `{"a": "b"}`, has("a", "b"), false},

	// Kinds.
	{"1 is not the text 1", `{"a": 1}`, compared(at("a"), domain.Equal, text("1")), false},
	{"1 differs from the text 1", `{"a": 1}`, compared(at("a"), domain.NotEqual, text("1")), true},
	{"the text 1 is not 1", `{"a": "1"}`, compared(at("a"), domain.Equal, num("1")), false},
	{"1 is not below the text 2", `{"a": 1}`, compared(at("a"), domain.Less, text("2")), false},
	{"the text 1 is not below 2", `{"a": "1"}`, compared(at("a"), domain.Less, num("2")), false},
	{"a text is not above a number", `{"a": "x"}`, compared(at("a"), domain.Greater, num("2")), false},
	{"a number is not below a text", `{"a": 5}`, compared(at("a"), domain.Less, text("x")), false},
	{"true is not 1", `{"a": true}`, compared(at("a"), domain.Equal, num("1")), false},
	{"1 is not true", `{"a": 1}`, compared(at("a"), domain.Equal, truth(true)), false},
	{"true is not the text true", `{"a": true}`, compared(at("a"), domain.Equal, text("true")), false},
	{"the text true is not true", `{"a": "true"}`, compared(at("a"), domain.Equal, truth(true)), false},
	{"false is not the empty text", `{"a": false}`, compared(at("a"), domain.Equal, text("")), false},
	{"false is not 0", `{"a": false}`, compared(at("a"), domain.Equal, num("0")), false},
	{"false is below true", `{"a": false}`, compared(at("a"), domain.Less, truth(true)), true},
	{"true is not above 0", `{"a": true}`, compared(at("a"), domain.Greater, num("0")), false},
	{"true is not above the text a", `{"a": true}`, compared(at("a"), domain.Greater, text("a")), false},
	{"an object equals nothing", `{"a": {}}`, compared(at("a"), domain.Equal, text("{}")), false},
	{"an object differs from a text", `{"a": {}}`, compared(at("a"), domain.NotEqual, text("{}")), true},
	{"an object is not above a number", `{"a": {"b": 1}}`, compared(at("a"), domain.Greater, num("0")), false},
	{"an object is outside of values", `{"a": {"b": 1}}`, notIn(at("a"), num("1")), true},

	// Lists are distinct values, and no path leads into them.
	{"a list does not equal its element", `{"a": [1]}`, compared(at("a"), domain.Equal, num("1")), false},
	{"a list differs from its element", `{"a": [1]}`, compared(at("a"), domain.NotEqual, num("1")), true},
	{"a list is not null by its null", `{"a": [null]}`, compared(at("a"), domain.Equal, null), false},
	{"an empty list is not null", `{"a": []}`, compared(at("a"), domain.Equal, null), false},
	{"an empty list differs from null", `{"a": []}`, compared(at("a"), domain.NotEqual, null), true},
	{"a list is not above by an element", `{"a": [1, 5]}`, compared(at("a"), domain.Greater, num("3")), false},
	{"a list is not below by an element", `{"a": ["b", "a"]}`, compared(at("a"), domain.Less, text("b")), false},
	{"a list is not among values by an element", `{"a": [1]}`, in(at("a"), num("1")), false},
	{"a list is outside of values", `{"a": [1]}`, notIn(at("a"), num("1")), true},
	{"a list does not start with an element", `{"a": ["abc"]}`, tests(at("a"), domain.StartsWith, "a"), false},
	{"a list is no text that could start otherwise", `{"a": ["abc"]}`, testsNot(at("a"), domain.StartsWith, "x"), false},
	{"a list is not its text", `{"a": [1]}`, compared(at("a"), domain.Equal, text("[1]")), false},
	{"no name leads into a list of objects", `{"a": [{"b": 1}]}`, compared(at("a", "b"), domain.Equal, num("1")), false},
	{"no name leads into a list to differ", `{"a": [{"b": 1}]}`, compared(at("a", "b"), domain.NotEqual, num("2")), false},
	{"no number leads into a list", `{"a": [7]}`, compared(at("a", "0"), domain.Equal, num("7")), false},
	{"no number leads into a list from its end", `{"a": [7]}`, compared(at("a", "-1"), domain.Equal, num("7")), false},
	{"no names lead through a list", `{"a": [{"b": {"c": 1}}]}`, compared(at("a", "b", "c"), domain.Equal, num("1")), false},
	{"no numbers lead through lists", `{"a": [[7]]}`, compared(at("a", "0", "0"), domain.Equal, num("7")), false},
	{"a number may be a name", `{"a": {"0": 7}}`, compared(at("a", "0"), domain.Equal, num("7")), true},
	{"a number may be a name outside", `{"0": {"1": 7}}`, compared(at("0", "1"), domain.Equal, num("7")), true},
	{"no name leads to a list within a list", `{"a": [{"b": [1]}]}`, contains(at("a", "b"), num("1")), false},
	{"no name leads to a text in a list", `{"a": [{"b": "x"}]}`, tests(at("a", "b"), domain.StartsWith, "x"), false},
	{"no name leads to a value in a list", `{"a": [{"b": "x"}]}`, in(at("a", "b"), text("x")), false},
	{"no name leads outside of values in a list", `{"a": [{"b": "x"}]}`, notIn(at("a", "b"), text("y")), false},

	// Numbers.
	{"2^53+1 is not 2^53", `{"a": 9007199254740993}`, compared(at("a"), domain.Equal, num("9007199254740992")), false},
	{"2^53+1 is itself", `{"a": 9007199254740993}`, compared(at("a"), domain.Equal, num("9007199254740993")), true},
	{"2^53+1 is above 2^53", `{"a": 9007199254740993}`, compared(at("a"), domain.Greater, num("9007199254740992")), true},
	{"2^53+1 is not among 2^53", `{"a": 9007199254740993}`, in(at("a"), num("9007199254740992"), num("9007199254740994")), false},
	{"2^63-1 is not the double 2^63", `{"a": 9223372036854775807}`, compared(at("a"), domain.Equal, num("9223372036854775808")), false},
	{"2^63-1 is below the double 2^63", `{"a": 9223372036854775807}`, compared(at("a"), domain.Less, num("9223372036854775808")), true},
	{"the double 2^63 is above 2^63-1", `{"a": 9223372036854776000}`, compared(at("a"), domain.Greater, num("9223372036854775807")), true},
	{"the double 2^63 is itself", `{"a": 9223372036854776000}`, compared(at("a"), domain.Equal, num("9223372036854775808")), true},
	{"2^63-2 is not 2^63-1", `{"a": 9223372036854775806}`, compared(at("a"), domain.Equal, num("9223372036854775807")), false},
	{"-2^63 is itself", `{"a": -9223372036854775808}`, compared(at("a"), domain.Equal, num("-9223372036854775808")), true},
	{"-2^63 is above the next double", `{"a": -9223372036854775808}`, compared(at("a"), domain.Greater, num("-9223372036854777856")), true},
	{"2^64 is a number", `{"a": 18446744073709552000}`, compared(at("a"), domain.Equal, num("18446744073709551616")), true},
	{"2^51+0.5 is not 2^51", `{"a": 2251799813685248.5}`, compared(at("a"), domain.Equal, num("2251799813685248")), false},
	{"0.1 is itself", `{"a": 0.1}`, compared(at("a"), domain.Equal, num("0.1")), true},
	{"0.1+0.2 is not 0.3", `{"a": 0.30000000000000004}`, compared(at("a"), domain.Equal, num("0.3")), false},
	{"0.5 is below 1", `{"a": 0.5}`, compared(at("a"), domain.Less, num("1")), true},
	{"-0.5 is above -1", `{"a": -0.5}`, compared(at("a"), domain.Greater, num("-1")), true},
	{"10 is above 9", `{"a": 10}`, compared(at("a"), domain.Greater, num("9")), true},
	{"the smallest double is above 0", `{"a": 5e-324}`, compared(at("a"), domain.Greater, num("0")), true},
	{"the smallest double is itself", `{"a": 5e-324}`, compared(at("a"), domain.Equal, num("5e-324")), true},
	{"the largest double is itself", `{"a": 1.7976931348623157e308}`, compared(at("a"), domain.Equal, num("1.7976931348623157e308")), true},
	{"1e300 is above 2^63-1", `{"a": 1e300}`, compared(at("a"), domain.Greater, num("9223372036854775807")), true},
	{"1e21 is itself", `{"a": 1e21}`, compared(at("a"), domain.Equal, num("1e21")), true},
	{"1e22 is above 1e21", `{"a": 1e22}`, compared(at("a"), domain.Greater, num("1e21")), true},

	// Texts.
	{"case matters", `{"a": "A"}`, compared(at("a"), domain.Equal, text("a")), false},
	{"case makes a difference", `{"a": "A"}`, compared(at("a"), domain.NotEqual, text("a")), true},
	{"a trailing blank matters", `{"a": "a "}`, compared(at("a"), domain.Equal, text("a")), false},
	{"a trailing blank in the constant matters", `{"a": "a"}`, compared(at("a"), domain.Equal, text("a ")), false},
	{"a trailing blank makes a difference", `{"a": "a "}`, compared(at("a"), domain.NotEqual, text("a")), true},
	{"a trailing blank is above", `{"a": "a "}`, compared(at("a"), domain.Greater, text("a")), true},
	{"what is below a blank is above its beginning", `{"a": "a\t"}`, compared(at("a"), domain.Greater, text("a")), true},
	{"a tab is below a blank", `{"a": "a\t"}`, compared(at("a"), domain.Less, text("a ")), true},
	{"blanks are not the empty text", `{"a": "  "}`, compared(at("a"), domain.Equal, text("")), false},
	{"the empty text is itself", `{"a": ""}`, compared(at("a"), domain.Equal, text("")), true},
	{"a blank is not among the empty text", `{"a": " "}`, in(at("a"), text("")), false},
	{"texts are not normalised", `{"a": "é"}`, compared(at("a"), domain.Equal, text("e\u0301")), false},
	{"accents matter", `{"a": "é"}`, compared(at("a"), domain.Equal, text("e")), false},
	{"ß is not ss", `{"a": "ß"}`, compared(at("a"), domain.Equal, text("ss")), false},
	{"what has no width matters", `{"a": "a\u200b"}`, compared(at("a"), domain.Equal, text("a")), false},
	{"a text with only zero-width characters", `{"a": "\u200b"}`, compared(at("a"), domain.Equal, text("")), false},
	{"a soft hyphen matters", `{"a": "co\u00adop"}`, compared(at("a"), domain.Equal, text("coop")), false},
	{"Z is below a", `{"a": "Z"}`, compared(at("a"), domain.Less, text("a")), true},
	{"é is above z", `{"a": "é"}`, compared(at("a"), domain.Greater, text("z")), true},
	{"hyphens are not passed over", `{"a": "co-op"}`, compared(at("a"), domain.Less, text("coa")), true},
	{"U+E000 is below U+10000", `{"a": "\ue000"}`, compared(at("a"), domain.Less, text("\U00010000")), true},
	{"U+FFFF is below U+1F600", `{"a": "\uffff"}`, compared(at("a"), domain.LessOrEqual, text("\U0001f600")), true},
	{"an emoji is above U+FFFD", `{"a": "\ud83d\ude00"}`, compared(at("a"), domain.Greater, text("\ufffd")), true},
	{"two emojis differ", `{"a": "\ud83d\ude00"}`, compared(at("a"), domain.Equal, text("\U0001f601")), false},
	{"a long text is itself", `{"a": "` + long + `"}`, compared(at("a"), domain.Equal, text(long)), true},
	{"long texts differ at their ends", `{"a": "` + long + `a"}`, compared(at("a"), domain.Equal, text(long+"b")), false},
	{"long texts are compared to their ends", `{"a": "` + long + `a"}`, compared(at("a"), domain.Less, text(long+"b")), true},
	{"a long text is above its beginning", `{"a": "` + long + `a"}`, compared(at("a"), domain.Greater, text(long)), true},
	{"a very long text is itself", `{"a": "` + veryLong + `"}`, compared(at("a"), domain.Equal, text(veryLong)), true},
	{"very long texts differ at their ends", `{"a": "` + veryLong + `a"}`, compared(at("a"), domain.NotEqual, text(veryLong+"b")), true},
	{"a very long text is above a short one", `{"a": "` + veryLong + `"}`, compared(at("a"), domain.Greater, text("0")), true},
	{"a very long text differs from a short one", `{"a": "` + veryLong + `"}`, compared(at("a"), domain.NotEqual, text("0")), true},
	{"a very long text is among values", `{"a": "` + veryLong + `"}`, in(at("a"), text("0"), text(veryLong)), true},
	{"a very long text is there", `{"a": "` + veryLong + `"}`, has("a"), true},
	{"the constant is no name of a member", `{"a": "$b", "b": "x"}`, compared(at("a"), domain.Equal, text("$b")), true},
	{"the constant is no expression", `{"a": "x", "b": "x"}`, compared(at("a"), domain.Equal, text("$b")), false},
	{"quotes are nothing special", `{"a": "'; drop table x; --"}`, compared(at("a"), domain.Equal, text("'; drop table x; --")), true},
	{"a backslash is nothing special", `{"a": "\\n"}`, compared(at("a"), domain.Equal, text(`\n`)), true},
	{"a date is a text", `{"a": "2026-01-02T03:04:05Z"}`, compared(at("a"), domain.Equal, text("2026-01-02T03:04:05.000Z")), false},

	// The tests of texts.
	{"every text starts with the empty one", `{"a": "x"}`, tests(at("a"), domain.StartsWith, ""), true},
	{"the empty text ends with the empty one", `{"a": ""}`, tests(at("a"), domain.EndsWith, ""), true},
	{"every text contains the empty one", `{"a": "x"}`, tests(at("a"), domain.Includes, ""), true},
	{"no number starts with the empty text", `{"a": 1}`, tests(at("a"), domain.StartsWith, ""), false},
	{"no number does not start with a text", `{"a": 1}`, testsNot(at("a"), domain.StartsWith, "x"), false},
	{"a number is no text that starts with digits", `{"a": 12}`, tests(at("a"), domain.StartsWith, "1"), false},
	{"null does not start otherwise", `{"a": null}`, testsNot(at("a"), domain.StartsWith, "x"), false},
	{"an object is not its text", `{"a": {"b": 1}}`, tests(at("a"), domain.Includes, "b"), false},
	{"a text does not start with a longer one", `{"a": "a"}`, tests(at("a"), domain.StartsWith, "ab"), false},
	{"a text does not end with a longer one", `{"a": "a"}`, tests(at("a"), domain.EndsWith, "ba"), false},
	{"case matters at the start", `{"a": "Abc"}`, tests(at("a"), domain.StartsWith, "a"), false},
	{"case matters within", `{"a": "xAx"}`, tests(at("a"), domain.Includes, "a"), false},
	{"a percent sign is nothing special", `{"a": "ab"}`, tests(at("a"), domain.Includes, "%"), false},
	{"a percent sign is found", `{"a": "100%"}`, tests(at("a"), domain.EndsWith, "%"), true},
	{"an underscore is nothing special", `{"a": "ab"}`, tests(at("a"), domain.StartsWith, "_"), false},
	{"a bracket is nothing special", `{"a": "b"}`, tests(at("a"), domain.StartsWith, "[ab]"), false},
	{"a bracket is found", `{"a": "x[ab"}`, tests(at("a"), domain.Includes, "[a"), true},
	{"a backslash is found", `{"a": "a\\b"}`, tests(at("a"), domain.Includes, `\`), true},
	{"a backslash at the end is found", `{"a": "a\\"}`, tests(at("a"), domain.EndsWith, `\`), true},
	{"a dot is nothing special", `{"a": "abc"}`, tests(at("a"), domain.StartsWith, "a."), false},
	{"a caret is nothing special", `{"a": "^a"}`, tests(at("a"), domain.StartsWith, "^"), true},
	{"an open parenthesis is nothing special", `{"a": "(a"}`, tests(at("a"), domain.Includes, "(a"), true},
	{"a line's end is not the end", `{"a": "ab\n"}`, tests(at("a"), domain.EndsWith, "b"), false},
	{"a line's end does not end the search", `{"a": "x\nab"}`, tests(at("a"), domain.Includes, "ab"), true},
	{"a line's start is not the start", `{"a": "x\nab"}`, tests(at("a"), domain.StartsWith, "ab"), false},
	{"a blank at the end is not passed over", `{"a": "a "}`, tests(at("a"), domain.EndsWith, "a"), false},
	{"a blank at the end is found", `{"a": "a "}`, tests(at("a"), domain.EndsWith, " "), true},
	{"a blank that does not exist is not found", `{"a": "a"}`, tests(at("a"), domain.EndsWith, "a "), false},
	{"a blank at the start's end is not passed over", `{"a": "ab"}`, tests(at("a"), domain.StartsWith, "a "), false},
	{"an accent alone is found", `{"a": "e\u0301"}`, tests(at("a"), domain.EndsWith, "\u0301"), true},
	{"a letter with an accent starts without it", `{"a": "e\u0301x"}`, tests(at("a"), domain.StartsWith, "e"), true},
	{"a composed letter has no other in it", `{"a": "é"}`, tests(at("a"), domain.Includes, "e"), false},
	{"an emoji is found", `{"a": "x\ud83d\ude00y"}`, tests(at("a"), domain.Includes, "\U0001f600"), true},
	{"an emoji has no half", `{"a": "\ud83d\ude00"}`, testsNot(at("a"), domain.StartsWith, "\U0001f601"), true},
	{"the end of a very long text", `{"a": "` + veryLong + `x"}`, tests(at("a"), domain.EndsWith, "9x"), true},
	{"the start of a very long text", `{"a": "` + veryLong + `"}`, tests(at("a"), domain.StartsWith, long), true},
	{"the middle of a very long text", `{"a": "` + veryLong + `x` + veryLong + `"}`, tests(at("a"), domain.Includes, "9x0"), true},

	// OneOf.
	{"among values of several kinds", `{"a": true}`, in(at("a"), num("1"), text("a"), null, truth(true)), true},
	{"among values of other kinds", `{"a": "1"}`, in(at("a"), num("1"), truth(true), null), false},
	{"among no values", `{"a": 1}`, in(at("a")), false},
	{"outside of no values", `{"a": 1}`, notIn(at("a")), true},
	{"nothing is outside of no values", `{}`, notIn(at("a")), false},
	{"case matters among values", `{"a": "A"}`, in(at("a"), text("a"), text("b")), false},
	{"a trailing blank matters among values", `{"a": "a "}`, in(at("a"), text("a"), text("a  ")), false},
	{"one value twice", `{"a": 1}`, in(at("a"), num("1"), num("1.0")), true},

	// Contains.
	{"a list contains its element", `{"a": [1, "x", null]}`, contains(at("a"), text("x")), true},
	{"a list contains its null", `{"a": [1, null]}`, contains(at("a"), null), true},
	{"a list without null contains none", `{"a": [1]}`, contains(at("a"), null), false},
	{"an empty list contains nothing", `{"a": []}`, containsNot(at("a"), num("1")), true},
	{"a list of texts contains no number", `{"a": ["1"]}`, contains(at("a"), num("1")), false},
	{"a list of numbers contains no text", `{"a": [1]}`, contains(at("a"), text("1")), false},
	{"a list of bools contains no number", `{"a": [true]}`, contains(at("a"), num("1")), false},
	{"a list contains true", `{"a": [true]}`, contains(at("a"), truth(true)), true},
	{"a list within is not looked into", `{"a": [[1]]}`, contains(at("a"), num("1")), false},
	{"a list within a list is another element", `{"a": [[1]]}`, containsNot(at("a"), num("1")), true},
	{"an object in a list is not looked into", `{"a": [{"x": 1}]}`, contains(at("a"), text("x")), false},
	{"case matters in a list", `{"a": ["A"]}`, contains(at("a"), text("a")), false},
	{"a trailing blank matters in a list", `{"a": ["a "]}`, contains(at("a"), text("a")), false},
	{"large numbers in a list", `{"a": [9007199254740993]}`, contains(at("a"), num("9007199254740992")), false},
	{"a double in a list", `{"a": [0.1, 2.5]}`, contains(at("a"), num("2.5")), true},
	{"a very long text in a list", `{"a": ["` + veryLong + `a"]}`, contains(at("a"), text(veryLong+"b")), false},
	{"a number contains nothing", `{"a": 1}`, contains(at("a"), num("1")), false},
	{"a number does not lack", `{"a": 1}`, containsNot(at("a"), num("2")), false},
	{"a text contains nothing", `{"a": "x"}`, contains(at("a"), text("x")), false},
	{"a text does not lack", `{"a": "x"}`, containsNot(at("a"), text("y")), false},
	{"null does not lack", `{"a": null}`, containsNot(at("a"), num("1")), false},
	{"nothing does not lack", `{}`, containsNot(at("a"), num("1")), false},
	{"an object contains its name", `{"a": {"x": null}}`, contains(at("a"), text("x")), true},
	{"an object does not contain its value", `{"a": {"b": "x"}}`, contains(at("a"), text("x")), false},
	{"an object contains no number", `{"a": {"1": 1}}`, contains(at("a"), num("1")), false},
	{"an object lacks every number", `{"a": {"1": 1}}`, containsNot(at("a"), num("1")), true},
	{"an object contains no null by the empty name", `{"a": {"": 1}}`, contains(at("a"), null), false},
	{"an object contains the empty name", `{"a": {"": 1}}`, contains(at("a"), text("")), true},
	{"an object contains a name with a dot", `{"a": {"b.c": 1}}`, contains(at("a"), text("b.c")), true},
	{"an object does not contain names within", `{"a": {"b": {"c": 1}}}`, contains(at("a"), text("b.c")), false},
	{"an object contains a name with a dollar", `{"a": {"$x": 1}}`, contains(at("a"), text("$x")), true},
	{"an object lacks a name of other case", `{"a": {"X": 1}}`, containsNot(at("a"), text("x")), true},

	// Names.
	{"a name with a dot", `{"a.b": 1}`, compared(at("a.b"), domain.Equal, num("1")), true},
	{"a name with a dot is no path", `{"a": {"b": 1}}`, compared(at("a.b"), domain.Equal, num("1")), false},
	{"a path is no name with a dot", `{"a.b": 1}`, compared(at("a", "b"), domain.Equal, num("1")), false},
	{"both a name with a dot and a path", `{"a.b": 1, "a": {"b": 2}}`, compared(at("a", "b"), domain.Equal, num("2")), true},
	{"a name with a dollar", `{"$a": 1}`, compared(at("$a"), domain.Equal, num("1")), true},
	{"a name within with a dollar", `{"a": {"$gt": 0}}`, compared(at("a", "$gt"), domain.Equal, num("0")), true},
	{"a name within with a dollar is there", `{"a": {"$set": {"b": 1}}}`, has("a", "$set", "b"), true},
	{"a name with dollar and dot", `{"a": {"$b.c": "x"}}`, tests(at("a", "$b.c"), domain.StartsWith, "x"), true},
	{"a dollar alone", `{"$": 1}`, compared(at("$"), domain.Equal, num("1")), true},
	{"the empty name", `{"": 1}`, compared(at(""), domain.Equal, num("1")), true},
	{"the empty name within", `{"a": {"": 1}}`, compared(at("a", ""), domain.Equal, num("1")), true},
	{"the empty name is not a blank", `{" ": 1}`, has(""), false},
	{"a name with a trailing blank", `{"a ": 1}`, compared(at("a"), domain.Equal, num("1")), false},
	{"case of names matters", `{"A": 1}`, compared(at("a"), domain.Equal, num("1")), false},
	{"both cases of a name", `{"A": 1, "a": 2}`, compared(at("a"), domain.Equal, num("2")), true},
	{"a name with a quote", `{"it's": 1}`, compared(at("it's"), domain.Equal, num("1")), true},
	{"a name with two quotes", `{"\"q\"": 1}`, compared(at(`"q"`), domain.Equal, num("1")), true},
	{"a name with a backslash", `{"\\": 1}`, compared(at(`\`), domain.Equal, num("1")), true},
	{"a name with an accent", `{"é": 1}`, compared(at("é"), domain.Equal, num("1")), true},
	{"names are not normalised", `{"é": 1}`, has("e\u0301"), false},
	{"a name that is an emoji", `{"\ud83d\ude00": 1}`, compared(at("\U0001f600"), domain.Equal, num("1")), true},
	{"a name like an index", `{"a[0]": 1}`, compared(at("a[0]"), domain.Equal, num("1")), true},
	{"a name like an index is none", `{"a": [1]}`, has("a[0]"), false},
	{"a name that is a star", `{"*": 1}`, compared(at("*"), domain.Equal, num("1")), true},
	{"a star is not any name", `{"a": 1}`, has("*"), false},
	{"a name like the database's own id", `{"_id": "x"}`, compared(at("_id"), domain.Equal, text("x")), true},
	{"a name like the database's own id that does not exist", `{"a": 1}`, has("_id"), false},
	{"a name like the version's", `{"version": 7}`, compared(at("version"), domain.Equal, num("7")), true},
	{"a name like the tenant's", `{"tenant_id": null}`, compared(at("tenant_id"), domain.Equal, null), true},
	{"a long name", `{"` + long + `": 1}`, compared(at(long), domain.Equal, num("1")), true},
	{"long names differ at their ends", `{"` + long + `a": 1}`, has(long + "b"), false},
	{"digits are a name", `{"00": 1}`, compared(at("00"), domain.Equal, num("1")), true},
	{"other digits are another name", `{"00": 1}`, has("0"), false},

	// And, Or, and a leaf that cannot judge.
	{"all of nothing", `{}`, domain.And{}, true},
	{"one of nothing", `{}`, domain.Or{}, false},
	{"one of nothing within all", `{}`, domain.And{domain.And{}, domain.Or{}}, false},
	{"all of nothing within one", `{}`, domain.Or{domain.Or{}, domain.And{}}, true},
	{"a leaf that cannot judge beside one that matches", `{"b": 1}`, domain.Or{compared(at("a"), domain.NotEqual, num("1")), has("b")}, true},
	{"a leaf that cannot judge keeps all from matching", `{"b": 1}`, domain.And{compared(at("a"), domain.NotEqual, num("1")), has("b")}, false},
	{"neither a leaf nor its opposite", `{"a": "x"}`, domain.Or{compared(at("a"), domain.Less, num("1")), compared(at("a"), domain.GreaterOrEqual, num("1"))}, false},
	{"all within one within all", `{"a": 1, "b": 2}`, domain.And{domain.Or{compared(at("a"), domain.Equal, num("2")), domain.And{compared(at("a"), domain.Equal, num("1")), compared(at("b"), domain.Equal, num("2"))}}, has("a")}, true},
	{"or within and is kept together", `{"a": 1}`, domain.And{domain.Or{has("a"), has("b")}, has("b")}, false},
	{"two questions of one path", `{"a": 5}`, domain.And{compared(at("a"), domain.Greater, num("4")), compared(at("a"), domain.Less, num("6"))}, true},
	{"two questions of one list", `{"a": [3, 9]}`, domain.And{compared(at("a"), domain.Greater, num("4")), compared(at("a"), domain.Less, num("6"))}, false},

	// Patterns.
	{"a pattern fits a part", `{"a": "xaby"}`, fits("a.", false), true},
	{"a pattern may say the start", `{"a": "xab"}`, fits("^a", false), false},
	{"the end is not before the last line's end", `{"a": "ab\n"}`, fits("b$", false), false},
	{"the start is not after a line's end", `{"a": "x\nab"}`, fits("^ab", false), false},
	{"a dot is not a line's end", `{"a": "a\nb"}`, fits("a.b", false), false},
	{"a dot is a line's end where it is asked for", `{"a": "a\nb"}`, fits("(?s)a.b", false), true},
	{"all but a letter may be a line's end", `{"a": "a\nb"}`, fits("a[^x]b", false), true},
	{"a dot is an emoji", `{"a": "\ud83d\ude00"}`, fits("^.$", false), true},
	{"case matters in patterns", `{"a": "A"}`, fits("a", false), false},
	{"case does not matter where it is said", `{"a": "É"}`, fits("(?i)é", false), true},
	{"the Kelvin sign is a k", `{"a": "` + "\u212a" + `"}`, fits("(?i)k", false), true},
	{"digits are ASCII", `{"a": "٣"}`, fits(`\d`, false), false},
	{"words are ASCII", `{"a": "é"}`, fits(`\w`, false), false},
	{"white space is ASCII", `{"a": "\u00a0"}`, fits(`\s`, false), false},
	{"letters are Unicode's where it is said", `{"a": "é"}`, fits(`\pL`, false), true},
	{"a range of astral characters", `{"a": "\ud83d\ude00"}`, fits(`[\x{1f5ff}-\x{1f601}]`, false), true},
	{"counts", `{"a": "ababab"}`, fits(`^(ab){2,3}$`, false), true},
	{"counts that are too low", `{"a": "abababab"}`, fits(`^(ab){2,3}$`, false), false},
	{"the empty pattern fits every text", `{"a": ""}`, fits("", false), true},
	{"the empty pattern fits no number", `{"a": 1}`, fits("", false), false},
	{"no pattern does not fit a number", `{"a": 1}`, fits("x", true), false},
	{"no pattern does not fit nothing", `{}`, fits("x", true), false},
	{"a pattern that does not fit", `{"a": "y"}`, fits("x", true), true},
	{"a backslash in a class", `{"a": "\\"}`, fits(`[\\]`, false), true},
	{"brackets in a class", `{"a": "]"}`, fits(`[\]\[]`, false), true},
	{"one of two at the start alone", `{"a": "xb"}`, fits("^a|b$", false), true},
	{"a very long text fits at its end", `{"a": "` + veryLong + `x"}`, fits("9x$", false), true},
	{"a list does not fit by its element", `{"a": ["x"]}`, fits("x", false), false},
}
