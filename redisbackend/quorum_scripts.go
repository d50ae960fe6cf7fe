package redisbackend

import "sync"

// quorumScripts are those that only the nodes of a Quorum run, beside the others.
type quorumScripts struct{ token, restore, want, call, force script }

var loadQuorumScripts = sync.OnceValue(func() *quorumScripts {
	load := func(name string) script { return loadScript("quorum_"+name, false) }
	return &quorumScripts{token: load("token"), restore: load("restore"), want: load("want"), call: load("call"), force: load("force")}
})
