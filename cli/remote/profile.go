package remote

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// profile is a service that the user has named, with the keys for it.
type profile struct {
	URL         string `yaml:"url"`
	Key         string `yaml:"key,omitempty"`         // a tenant's
	OperatorKey string `yaml:"operatorKey,omitempty"` // for the operator's commands
	Login       *login `yaml:"login,omitempty"`       // replaces the keys
}

// keyFor returns the profile's key that an environment variable would contain.
func (p profile) keyFor(variable string) string {
	if variable == operatorKey {
		return p.OperatorKey
	}
	return p.Key
}

// profiles is the content of the file with the user's profiles.
type profiles struct {
	Current  string             `yaml:"current,omitempty"`
	Profiles map[string]profile `yaml:"profiles"`
}

// profilesFile returns the path of the file with the user's profiles: MANIFOLD_PROFILES, or manifold/profiles.yaml in
// the user's folder for configuration.
func profilesFile() (string, error) {
	if path := os.Getenv("MANIFOLD_PROFILES"); path != "" {
		return path, nil
	}
	folder, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("there is no folder for profiles (%w): set MANIFOLD_PROFILES to the path of a file", err)
	}
	return filepath.Join(folder, "manifold", "profiles.yaml"), nil
}

// readProfiles returns the user's profiles. Without a file there are none.
func readProfiles() (profiles, error) {
	p := profiles{Profiles: map[string]profile{}}
	path, err := profilesFile()
	if err != nil {
		return p, err
	}
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return p, nil
	case err != nil:
		return p, fmt.Errorf("read the profiles: %w", err)
	}
	if err := yaml.UnmarshalWithOptions(text, &p, yaml.Strict()); err != nil {
		return p, fmt.Errorf("%s: %s", path, yaml.FormatError(err, false, false)) // without the line, which may have a key
	}
	if p.Profiles == nil {
		p.Profiles = map[string]profile{}
	}
	return p, nil
}

// write replaces the file as a whole. Only its owner may read it.
func (p profiles) write() error {
	path, err := profilesFile()
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(p)
	if err != nil {
		return err
	}
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target // the file may be a link into a collection of settings
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("save the profiles: %w", err)
	}
	next, err := os.CreateTemp(filepath.Dir(path), ".profiles-*") // with mode 0600
	if err != nil {
		return fmt.Errorf("save the profiles: %w", err)
	}
	_, err = next.Write(text)
	err = errors.Join(err, next.Sync(), next.Close())
	if err == nil {
		err = os.Rename(next.Name(), path)
	}
	if err != nil {
		os.Remove(next.Name())
		return fmt.Errorf("save the profiles: %w", err)
	}
	return nil
}

// named returns a profile. Its error lists the names that exist.
func (p profiles) named(name string) (profile, error) {
	found, ok := p.Profiles[name]
	if !ok && len(p.Profiles) == 0 {
		return found, fmt.Errorf("there is no profile %q: make it by manifold profile set %s --url URL", name, name)
	}
	if !ok {
		return found, fmt.Errorf("there is no profile %q, but %s", name, strings.Join(slices.Sorted(maps.Keys(p.Profiles)), ", "))
	}
	return found, nil
}

func profileCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "profile",
		Short: "Name services with their keys, and choose the one that commands use",
		Long: `A profile is a service's URL with your keys. Commands use the current profile, or the one that --profile or MANIFOLD_PROFILE names.
MANIFOLD_URL, MANIFOLD_KEY, --url and --key take precedence over the current profile. A profile's key is sent to its own URL only.

A profile that manifold login has signed in sends its token instead of its keys.

Profiles are in manifold/profiles.yaml in your folder for configuration (~/.config), which only you may read. MANIFOLD_PROFILES
names another file.`,
		Args: cobra.NoArgs,
	}
	command.AddCommand(profileSet(), profileUse(), profileList(), profileRemove())
	return command
}

func profileSet() *cobra.Command {
	var url string
	var tenant, operator bool
	command := &cobra.Command{
		Use:   "set NAME",
		Short: "Make or change a profile; it becomes the current one if it is the first",
		Long: `Make or change a profile. It reads a key from standard input, without showing it: --key a tenant's, --operator-key the operator's.
What is not given stays.`,
		Example: `  manifold profile set production --url https://manifold.example.com --key
  manifold key create me --scope events:read | manifold profile set local --url http://127.0.0.1:8080 --key`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			all, err := readProfiles()
			if err != nil {
				return err
			}
			p := all.Profiles[args[0]]
			if command.Flags().Changed("url") {
				if err := checkURL(url); err != nil {
					return err
				}
				if p.URL != url {
					p = profile{} // another service must not get them
				}
				p.URL = url
			}
			if p.URL == "" {
				return errors.New("no URL: give --url, such as --url https://manifold.example.com")
			}
			if tenant || operator {
				key, err := askKey(command)
				if err != nil {
					return err
				}
				if tenant {
					p.Key = key
				} else {
					p.OperatorKey = key
				}
			}
			all.Profiles[args[0]] = p
			if all.Current == "" {
				all.Current = args[0]
			}
			return all.write()
		},
	}
	command.Flags().StringVar(&url, "url", "", "the service's URL; another URL than before removes the keys")
	command.Flags().BoolVar(&tenant, "key", false, "read a tenant's key from standard input")
	command.Flags().BoolVar(&operator, "operator-key", false, "read the operator's key from standard input")
	exclusiveFlags(command, "key", "operator-key")
	return command
}

// askKey reads a key. A terminal does not show it.
func askKey(command *cobra.Command) (string, error) {
	var text []byte
	var err error
	if f, ok := command.InOrStdin().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		fmt.Fprint(command.ErrOrStderr(), "key: ")
		text, err = term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(command.ErrOrStderr())
	} else {
		text, err = io.ReadAll(io.LimitReader(command.InOrStdin(), 4096))
	}
	key := strings.TrimSpace(string(text))
	if err == nil && (key == "" || strings.ContainsAny(key, "\r\n")) {
		err = errors.New("expected one key on standard input")
	}
	return key, err
}

func profileUse() *cobra.Command {
	return profileChange("use", "Choose the profile that commands use", func(all *profiles, name string) { all.Current = name })
}

// profileChange returns a command that changes the profiles, about one that exists.
func profileChange(use, short string, change func(all *profiles, name string)) *cobra.Command {
	return &cobra.Command{
		Use:               use + " NAME",
		Short:             short,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: completeProfiles,
		RunE: func(_ *cobra.Command, args []string) error {
			all, err := readProfiles()
			if err != nil {
				return err
			}
			if _, err := all.named(args[0]); err != nil {
				return err
			}
			change(&all, args[0])
			return all.write()
		},
	}
}

func profileList() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the profiles, without their keys; * marks the current one",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			all, err := readProfiles()
			if err != nil {
				return err
			}
			has := map[bool]string{true: "yes", false: "no"}
			out := newOutput(command.OutOrStdout())
			out.people = command.ErrOrStderr()
			return table[string]{none: "profiles", header: "\tNAME\tURL\tKEY\tOPERATOR KEY\tSIGNED IN", row: func(name string) []any {
				p, mark := all.Profiles[name], ""
				if name == all.Current {
					mark = "*"
				}
				return []any{mark, name, p.URL, has[p.Key != ""], has[p.OperatorKey != ""], has[p.Login != nil]}
			}}.print(out, each(slices.Sorted(maps.Keys(all.Profiles))))
		},
	}
}

func profileRemove() *cobra.Command {
	return profileChange("remove", "Remove a profile with its keys, which stay valid", func(all *profiles, name string) {
		delete(all.Profiles, name)
		if all.Current == name {
			all.Current = ""
		}
	})
}

// completeProfiles completes the name of a profile.
func completeProfiles(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	all, err := readProfiles()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return slices.Sorted(maps.Keys(all.Profiles)), cobra.ShellCompDirectiveNoFileComp
}
