package config_test

import (
	"errors"
	neturl "net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/manifold-es/manifold/config"
)

// A password is put into each kind of URL where its driver looks for it.
func TestAddresses(t *testing.T) {
	t.Parallel()
	const password = "p:w/d@ %+$&"
	const written = "p%3Aw%2Fd%40%20%25%2B%24%26"
	for text, want := range map[string]string{
		"postgres://u@db:5432/d?sslmode=require":                     "postgres://u:" + written + "@db:5432/d?sslmode=require",
		"mongodb://u@a:27017,b:27018,[::1]:27019/d?replicaSet=rs0":   "mongodb://u:" + written + "@a:27017,b:27018,[::1]:27019/d?replicaSet=rs0",
		"mongodb+srv://some%40one@cluster.example/?authSource=admin": "mongodb+srv://some%40one:" + written + "@cluster.example/?authSource=admin",
		"sqlserver://sa@db:1433?database=d&encrypt=true":             "sqlserver://sa:" + written + "@db:1433?database=d&encrypt=true",
		"sqlserver://sa@db/instance?database=d":                      "sqlserver://sa:" + written + "@db/instance?database=d",
		"cosmos://account@host/db#part":                              "cosmos://account:" + written + "@host/db#part",
	} {
		plain := config.DocumentsDatabase{URL: text}
		if got, err := plain.Address(); err != nil || got != text {
			t.Errorf("%s without a password is %s, %v", text, got, err)
		}
		with := config.DocumentsDatabase{URL: text, Password: password}
		if got, err := with.Address(); err != nil || got != want {
			t.Errorf("%s with a password is %s, %v; want %s", text, got, err, want)
		}
	}
	// What only a custom driver understands is left alone.
	for _, text := range []string{"memory:", "memory:x", "file:/var/lib/x@y", "o://x", "mongodb://a:1,b:2", "http://h/a:b@c"} {
		d := config.DocumentsDatabase{URL: text}
		if got, err := d.Address(); err != nil || got != text {
			t.Errorf("%s is %s, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "x", "://x", "a b://c", "postgres://u@h/d\n"} {
		d := config.DocumentsDatabase{URL: text}
		if got, err := d.Address(); err == nil {
			t.Errorf("%q is taken as %s", text, got)
		}
	}
	for _, text := range []string{"mongodb://a,b/d", "sqlserver://h", "memory:x"} {
		d := config.DocumentsDatabase{URL: text, Password: password}
		if _, err := d.Address(); err == nil || !strings.Contains(err.Error(), "names no user") || strings.Contains(err.Error(), password) {
			t.Errorf("%s with a password and no user: %v", text, err)
		}
	}
}

// Whatever the password is, the drivers' URL parsers return it unchanged, and no error shows it.
func TestAnyPassword(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		password := rapid.StringN(1, 30, -1).Draw(t, "password")
		d := config.DocumentsDatabase{URL: "sqlserver://u@h:1433?database=d", Password: config.Secret(password)}
		address, err := d.Address()
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := neturl.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if got, _ := parsed.User.Password(); got != password || parsed.Host != "h:1433" || parsed.User.Username() != "u" {
			t.Fatalf("%q came back as %q of %s", password, got, parsed.Host)
		}
	})
	const address = "mongodb://u:top%2Fsecret@a,b/d"
	for _, said := range []string{"error parsing " + address, "authentication of u with top/secret failed"} {
		if err := config.WithoutSecrets(errors.New(said), address); strings.Contains(err.Error(), "secret") {
			t.Errorf("it still says %v", err)
		}
	}
	for _, address := range []string{
		"postgres://h/d?user=u&password=top%20secret&sslmode=disable", "sqlserver://h?database=d&user%20id=u&Password=top%20secret",
		"mongodb://h/d?tlsCertificateKeyFilePassword=top%20secret",
	} {
		for _, said := range []string{"cannot parse " + address, "login failed with top secret"} {
			if err := config.WithoutSecrets(errors.New(said), address); strings.Contains(err.Error(), "secret") {
				t.Errorf("it still says %v", err)
			}
		}
	}
	plain := errors.New("connection refused")
	if err := config.WithoutSecrets(plain, address); err != plain {
		t.Errorf("an error without a secret became %v", err)
	}
}
