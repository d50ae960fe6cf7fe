package redisbackend

import (
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
	"sync"

	"github.com/redis/rueidis"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// A script is one of the files, with common.lua (and conditions.lua) in front of it. Running it sends EVALSHA, and
// EVAL if the server does not know it: after a restart, a failover or SCRIPT FLUSH.
type script struct {
	*rueidis.Lua
	text, sha string // for pipelines, which Lua.Exec does not do
}

type scripts struct {
	acquire, reenter, release, renew, resume, inspect, force script
	await, signal, withdraw, beat                            script
}

// loadScripts and loadClusterScripts read the scripts and compute their hashes, once in a process.
var (
	loadScripts        = sync.OnceValue(func() *scripts { return newScripts(false) })
	loadClusterScripts = sync.OnceValue(func() *scripts { return newScripts(true) })
)

func newScripts(cluster bool) *scripts {
	load := func(name string) script { return loadScript(name, cluster) }
	return &scripts{
		acquire: load("acquire"), reenter: load("reenter"), release: load("release"),
		renew: load("renew"), resume: load("resume"), inspect: load("inspect"), force: load("force"),
		await: load("await"), signal: load("signal"), withdraw: load("withdraw"),
		beat: load("beat"),
	}
}

func loadScript(name string, cluster bool) script {
	text := scriptText("common")
	if cluster {
		text = strings.Replace(text, "local SHARDED = false", "local SHARDED = true", 1)
	}
	switch name {
	case "await", "signal", "withdraw", "beat":
		text += scriptText("conditions")
	}
	text += scriptText(name)
	sum := sha1.Sum([]byte(text))
	return script{Lua: rueidis.NewLuaScript(text), text: text, sha: hex.EncodeToString(sum[:])}
}

func scriptText(name string) string {
	text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic("redisbackend: bug: " + err.Error()) // it is embedded
	}
	return string(text)
}
