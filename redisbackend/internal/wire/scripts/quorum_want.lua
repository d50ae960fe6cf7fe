-- quorum_want: records that a session waits for a lock. A node of a quorum has no queue; it knows one session, the
-- first to say so, which gets a message when the lock is given back.
--
-- The session that has the lock gets a message, if it watches for waiters.
--
-- KEYS  1 wanted: string, the session  2 hold  3 record
-- ARGV  1 session  2 patience, ms: forgotten unless repeated within that time  3 channel prefix
-- Returns  {code, now}   1 noted   2 another session is noted
-- Keeps    the hold, and the note that another session waits, unless that session has the lock here.
-- Twice    the note lasts longer.
-- Late     the note of a session that waits no more lasts for its patience, so holders may give the lock back in vain.

local session = ARGV[1]
local NOTED, OTHER = 1, 2

local now = clock()
local lock = {KEYS[2], KEYS[3]}
local rec, field, mine = look(lock, session)
if rec.err then return rec end
if field and not mine then wanted(ARGV[3], rec, '', KEYS[2], true) end
local noted = redis.call('GET', KEYS[1])
if noted and noted ~= session then
  local _, served = holder(lock, noted)
  if not served then return {OTHER, now} end
end
redis.call('SET', KEYS[1], session, 'PX', ARGV[2])
return {NOTED, now}
