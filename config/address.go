package config

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// address is a database's URL in its parts. Package net/url is not enough: a MongoDB URL may name several hosts, and
// a custom driver decides what follows the scheme.
type address struct {
	scheme   string
	user     string // percent-encoded, as written; valid if named is true
	password string // likewise; empty if there is none
	named    bool   // the URL has a user
	rest     string // hosts, path and query
}

var scheme = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)

var errNoURL = errors.New("it is not a URL such as postgres://host:5432/name, mongodb://host:27017/name or sqlserver://host:1433?database=name")

// parseAddress parses a URL. Its errors do not repeat the URL, since it may contain a password.
func parseAddress(text string) (address, error) {
	begin := scheme.FindString(text)
	if begin == "" || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return address{}, errNoURL
	}
	a := address{scheme: strings.TrimSuffix(begin, ":"), rest: text[len(begin):]}
	afterSlashes, ok := strings.CutPrefix(a.rest, "//")
	if !ok {
		return a, nil
	}
	hosts := afterSlashes
	if end := strings.IndexAny(afterSlashes, "/?#"); end >= 0 {
		hosts = afterSlashes[:end]
	}
	at := strings.LastIndex(hosts, "@")
	if at < 0 {
		if strings.Contains(afterSlashes[len(hosts):], "@") && strings.Contains(hosts, ":") && !hostsAlone.MatchString(hosts) {
			return address{}, errors.New("the user or the password in it has a character that must be percent-encoded: write %2F for /, %3F for ?, %23 for # and %40 for @, or give the password by passwordFile")
		}
		return a, nil
	}
	a.named = true
	a.user, a.password, _ = strings.Cut(hosts[:at], ":")
	a.rest = "//" + afterSlashes[at+1:]
	for _, part := range []string{a.user, a.password} {
		if _, err := url.PathUnescape(part); err != nil {
			return address{}, errors.New("the user or the password in it has a % without two hexadecimal digits after it: write %25 for a % itself, or give the password by passwordFile")
		}
	}
	return a, nil
}

// hostsAlone matches one or several hosts, each with or without a port.
var hostsAlone = regexp.MustCompile(`^([^:,@]*|\[[0-9A-Fa-f:.%]*\])(:[0-9]*)?(,([^:,@]*|\[[0-9A-Fa-f:.%]*\])(:[0-9]*)?)*$`)

func (a address) String() string {
	text := a.scheme + ":"
	if !a.named {
		return text + a.rest
	}
	text += "//" + a.user
	if a.password != "" {
		text += ":" + a.password
	}
	return text + "@" + strings.TrimPrefix(a.rest, "//")
}

// Address returns the URL with the password in it, percent-encoded.
func (d *DocumentsDatabase) Address() (string, error) {
	a, err := parseAddress(d.URL)
	if err != nil {
		return "", err
	}
	switch {
	case d.Password == "":
		return d.URL, nil
	case a.user == "":
		return "", errors.New("a password is given, but the URL names no user; write one before the host, as in postgres://user@host:5432/name")
	case a.password != "":
		return "", errors.New("it contains a password, and another one is given separately; keep one")
	}
	// This encodes more than any driver needs, but every driver decodes all of it.
	a.password = strings.ReplaceAll(url.QueryEscape(string(d.Password)), "+", "%20")
	return a.String(), nil
}

// WithoutSecrets returns the error with the password of a database's URL masked, wherever a driver's message repeats
// it.
func WithoutSecrets(err error, url string) error {
	if err == nil {
		return nil
	}
	text := hide(err.Error(), url)
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

// secretParameter matches a password among a URL's parameters: password, sslpassword, tlsCertificateKeyFilePassword
// or pwd, as PostgreSQL, SQL Server and MongoDB's key files use them.
var secretParameter = regexp.MustCompile(`(?i)[?&;](?:[a-z]*password|pwd)=([^&;#]+)`)

func hide(text, address string) string {
	a, err := parseAddress(address)
	if err != nil {
		return text
	}
	written := []string{a.password}
	for _, found := range secretParameter.FindAllStringSubmatch(a.rest, -1) {
		written = append(written, found[1])
	}
	for _, secret := range written {
		plain, err := url.PathUnescape(secret)
		if err != nil {
			plain = secret
		}
		for _, form := range []string{secret, plain} {
			if form != "" {
				text = strings.ReplaceAll(text, form, stars)
			}
		}
	}
	return text
}
