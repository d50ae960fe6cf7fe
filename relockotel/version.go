package relockotel

import (
	"cmp"
	"runtime/debug"
	"slices"
)

// version is this module's version in the program that runs, as providers show it beside the scope: "v1.2.3", or "devel"
// where it was built from a folder.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return devel
	}
	return versionIn(info)
}

const devel = "devel"

// versionIn looks for this module in what a program was built from.
func versionIn(info *debug.BuildInfo) string {
	i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == scope })
	if i < 0 {
		return devel // it is the main module, or a test's
	}
	module := info.Deps[i]
	if module.Replace != nil {
		module = module.Replace
	}
	if module.Version == "(devel)" {
		return devel
	}
	return cmp.Or(module.Version, devel)
}
