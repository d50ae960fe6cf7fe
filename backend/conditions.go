package backend

// ConditionsPrefix is the beginning of each name that ConditionsOf returns. No user's lock has a name that begins so.
const ConditionsPrefix = "relock:conditions:"

// ConditionsOf returns the name of the lock that has the conditions of a read-write lock's write side. The verbs of
// conditions need the hold of a lock, but a writer has units of a shared name instead. So a writer takes this lock too,
// for the time of one verb. A [Conn] binds the returned name like any other name. In a Redis Cluster this lock and the
// read-write lock are in one slot if name has a hash tag.
func ConditionsOf(name string) string { return ConditionsPrefix + name }
