package wire

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

// A Script is the text of one file, mostly with common.lua (and vacant.lua, behind.lua, conditions.lua, shared.lua or
// sharing.lua) in front of it. To run the script, rueidis sends EVALSHA, and then EVAL if the server does not know it, as
// after a restart, a failover or SCRIPT FLUSH.
type Script struct {
	*rueidis.Lua
	Text, SHA string // for pipelines, which Lua.Exec cannot send
}

// Scripts has a field for each script of a single lock.
type Scripts struct {
	Acquire, Reenter, Release, Renew, Resume, Watch, Note, Inspect, Force Script
	Await, Signal, Withdraw, Beat                                         Script
	Share, ShareRenew, ShareNote, ShareInspect, ShareForce                Script
	Offer                                                                 Script // for locks that Redisson's clients use too
	Pass, Take, Free, Yield                                               Script // for a session that remembers the record
}

// A Variant selects the text of the scripts.
type Variant struct {
	Cluster  bool
	Redisson bool // Redisson's clients use the same locks
}

// LoadScripts reads the scripts and computes their hashes, once in a process for each variant.
func LoadScripts(v Variant) *Scripts {
	if s, ok := loaded.Load(v); ok {
		return s.(*Scripts)
	}
	s, _ := loaded.LoadOrStore(v, newScripts(v))
	return s.(*Scripts)
}

var loaded sync.Map // of *Scripts by Variant

func newScripts(v Variant) *Scripts {
	load := func(name string) Script { return loadScript(name, v) }
	return &Scripts{
		Acquire: load("acquire"), Reenter: load("reenter"), Release: load("release"),
		Renew: load("renew"), Resume: load("resume"), Watch: load("watch"), Note: load("note"), Inspect: load("inspect"), Force: load("force"),
		Await: load("await"), Signal: load("signal"), Withdraw: load("withdraw"),
		Beat: load("beat"), Share: load("share"), ShareRenew: load("share_renew"), ShareNote: load("share_note"),
		ShareInspect: load("share_inspect"), ShareForce: load("share_force"),
		Offer: load("offer"),
		Pass:  loadAlone("pass"), Take: loadAlone("take"), Free: loadAlone("free"),
		Yield: newScript(scriptText("yield") + scriptText("pass")),
	}
}

func loadScript(name string, v Variant) Script {
	text := scriptText("common")
	if v.Cluster {
		text = strings.Replace(text, "local SHARDED = false", "local SHARDED = true", 1)
	}
	switch name {
	case "await", "signal", "withdraw", "beat":
		text += scriptText("conditions")
	case "share", "share_force":
		text += scriptText("shared") + scriptText("sharing")
	case "share_renew", "share_note", "share_inspect":
		text += scriptText("shared")
	}
	if v.Redisson {
		text += scriptText("redisson")
	}
	text += scriptText(name)
	switch name {
	case "acquire":
		text = scriptText("vacant") + text
	case "share":
		text = scriptText("behind") + text
	}
	if v.Redisson {
		text = strings.ReplaceAll(text, "\n--redisson ", "\n")
	}
	return newScript(text)
}

// loadAlone reads a script that does not need common.lua.
func loadAlone(name string) Script { return newScript(scriptText(name)) }

func newScript(text string) Script {
	sum := sha1.Sum([]byte(text))
	return Script{Lua: rueidis.NewLuaScript(text), Text: text, SHA: hex.EncodeToString(sum[:])}
}

func scriptText(name string) string {
	text, err := scriptFiles.ReadFile("scripts/" + name + ".lua")
	if err != nil {
		panic("redisbackend: bug: " + err.Error()) // every script is embedded
	}
	return string(text)
}
