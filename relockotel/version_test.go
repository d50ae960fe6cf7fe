package relockotel

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTheVersionIsThatOfTheBuild(t *testing.T) {
	other := &debug.Module{Path: "github.com/relock-go/relock", Version: "v9.9.9"}
	for want, module := range map[string]*debug.Module{
		"v1.2.3": {Path: scope, Version: "v1.2.3"},
		"v1.2.4": {Path: scope, Version: "v1.2.3", Replace: &debug.Module{Path: "example.com/fork", Version: "v1.2.4"}},
		"devel":  {Path: scope, Version: "v0.0.0", Replace: &debug.Module{Path: "../relockotel"}},
	} {
		assert.Equal(t, want, versionIn(&debug.BuildInfo{Deps: []*debug.Module{other, module}}))
	}
	assert.Equal(t, "devel", versionIn(&debug.BuildInfo{Deps: []*debug.Module{other, {Path: scope, Version: "(devel)"}}}))
	assert.Equal(t, "devel", versionIn(&debug.BuildInfo{Deps: []*debug.Module{other}}))
	assert.NotEmpty(t, version())
}
