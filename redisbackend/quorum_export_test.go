package redisbackend

import "time"

// SetNodeLimit gives nodes more time, in tests that are not about how long they take: the machine may be busy.
func (q *Quorum) SetNodeLimit(d time.Duration) { q.limit = d }
