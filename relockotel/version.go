package relockotel

import (
	"cmp"
	"runtime/debug"
	"slices"
)

// version returns this module's version in the running program, as providers show it beside the scope: "v1.2.3", or
// "devel" if it was built from a folder.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return devel
	}
	return versionIn(info)
}

const devel = "devel"

// versionIn returns this module's version in a program's build information.
func versionIn(info *debug.BuildInfo) string {
	i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == scope })
	if i < 0 {
		return devel // this module is the program's main module, or is tested
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
