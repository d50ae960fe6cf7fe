package wire

import "sync"

// quorumScripts has the scripts that only the nodes of a Quorum run. They also run scripts of a single lock.
type quorumScripts struct{ Token, Restore, Want, Call, Force Script }

// LoadQuorumScripts reads the scripts of a quorum and computes their hashes, once in a process.
var LoadQuorumScripts = sync.OnceValue(func() *quorumScripts {
	load := func(name string) Script { return loadScript("quorum_"+name, Variant{}) }
	return &quorumScripts{Token: load("token"), Restore: load("restore"), Want: load("want"), Call: load("call"), Force: load("force")}
})
