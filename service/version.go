package service

import "runtime/debug"

// version is set by the linker where the build has no git checkout; see Dockerfile.
var version string

// Version returns the version of this build: the module's version, or the revision from which it was built.
func Version() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, modified := "", ""
	for _, setting := range info.Settings {
		switch {
		case setting.Key == "vcs.revision":
			revision = setting.Value
		case setting.Key == "vcs.modified" && setting.Value == "true":
			modified = "+changes"
		}
	}
	if revision == "" {
		return "development"
	}
	return revision[:min(12, len(revision))] + modified
}
