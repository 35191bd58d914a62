package domain

import "strings"

// CheckName returns an error unless name is valid for something that a team names, such as a database, a group or a
// webhook: 1 to MaxNameBytes of lower-case letters, digits, "-" and "_", beginning with a letter.
func CheckName(where, name string) error {
	if err := CheckAlphabet(where, "name", name, MaxNameBytes, "-_"); err != nil {
		return err
	}
	if !beginsSmall(name) || strings.ToLower(name) != name {
		return Errorf(CodeInvalidRequest, where, "%q is not a name; use lower-case letters, digits, - and _, beginning with a letter", name)
	}
	return nil
}

// CheckProjectionName returns an error unless name is a valid projection name. The rules are those of CheckName, and
// dots are allowed if a letter follows each of them. So no name equals the name of another projection's table, which
// ends with a build number.
func CheckProjectionName(where, name string) error {
	if err := CheckAlphabet(where, "name", name, MaxNameBytes, "-_."); err != nil {
		return err
	}
	for part := range strings.SplitSeq(name, ".") {
		if !beginsSmall(part) || strings.ToLower(part) != part {
			return Errorf(CodeInvalidRequest, where, "%q is not a projection's name; use lower-case letters, digits, -, _ and dots, beginning with a letter, and with a letter after each dot", name)
		}
	}
	return nil
}

// beginsSmall reports whether the first byte is a lower-case letter.
func beginsSmall(text string) bool { return text != "" && 'a' <= text[0] && text[0] <= 'z' }

func CheckAlphabet(where, what, text string, most int, punctuation string) error {
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
