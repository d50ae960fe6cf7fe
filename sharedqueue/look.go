package sharedqueue

import "time"

// A State is the basis on which an engine decides what to request from the server.
type State struct {
	Units    int           // units that the session has
	InUse    int           // units in use: of an RW 0, 1 or All
	Waiting  int           // claims in line
	Head     int           // units that the first in line needs: for an RW 0, 1 or All
	Once     bool          // the first in line waits for at most one reply of the server
	Want     int           // units that the session needs in total to admit the head (RW), or all claims in line (Permits)
	Limit    int           // the most units that all sessions may use together; of an RW All
	Since    time.Duration // of Permits: when the first in line became the first
	Pace     time.Duration // of Permits: the longest recent wait of a first in line for an Exit
	Writers  int           // claims in line that ask to write
	Asked    bool          // another session waits, see Ask
	TurnOver bool          // newcomers are no longer admitted
	Spent    bool          // the block of tokens is used up
	Used     uint64        // the last token that was used
}

// A need is the part of a state that the engine acts on. A method reports changed if the need differs from that of the
// latest Look.
type need struct {
	keep  int  // how many units the session should keep
	want  int  // how many units it needs in total for the claims in line; 0 if they need nothing of the server
	least int  // of Permits: how many units it needs in total for the first in line
	limit int  // of Permits: the limit
	once  bool // of an RW: the first in line waits for one reply
}
