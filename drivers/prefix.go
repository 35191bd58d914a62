package drivers

import "unicode/utf8"

// PrefixEnd returns the least text above all texts that start with prefix. ok is false if there is none.
func PrefixEnd(prefix string) (end string, ok bool) {
	for prefix != "" {
		last, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		switch {
		case last == 0xd7ff:
			return prefix + "\ue000", true // the code points between are not characters
		case last < utf8.MaxRune:
			return prefix + string(last+1), true
		}
	}
	return "", false
}
