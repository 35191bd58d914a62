package domain

import "strings"

// CheckName reports what is wrong with the name of a projection: 1 to MaxNameBytes of lower-case letters, digits, "-"
// and "_", beginning with a letter, since tables and views are named after it.
func CheckName(where, name string) error {
	if err := checkAlphabet(where, "name", name, MaxNameBytes, "-_"); err != nil {
		return err
	}
	if name[0] < 'a' || name[0] > 'z' || strings.ToLower(name) != name {
		return Errorf(CodeInvalidRequest, where, "%q is not a name; use lower-case letters, digits, - and _, beginning with a letter", name)
	}
	return nil
}

func checkAlphabet(where, what, text string, most int, punctuation string) error {
	if text == "" || len(text) > most {
		return Errorf(CodeInvalidRequest, where, "the %s has %d bytes; it needs 1 to %d", what, len(text), most)
	}
	for i := range len(text) {
		c := text[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && strings.IndexByte(punctuation, c) < 0 {
			return Errorf(CodeInvalidRequest, where, "the %s has %q at byte %d; use letters, digits and %s", what, c, i+1, strings.Join(strings.Split(punctuation, ""), " "))
		}
	}
	return nil
}
