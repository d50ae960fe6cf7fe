-- watch: requests a message to the session that holds the lock, for each attempt of another session that queues up.
--
-- KEYS  1 hold  2 record  3 queue  4 waiters
-- ARGV  1 session  2 epoch
-- Returns  {code, now, waiters}   1 watched: 1 if another session waits already, else 0
--                                 2 gone: this epoch does not have the lock
-- Keeps    the hold and its TTL, and the queue. The mark ends when the lock is given to another attempt.
-- Twice    the mark is there already.
-- Late     if the epoch does not have the lock any more, nothing is marked.

local session, epoch = ARGV[1], tonumber(ARGV[2])
local WATCHED, GONE = 1, 2

local now = clock()
local rec, _, mine = look(KEYS, session)
if rec.err then return rec end
if not mine or rec.session ~= session or tonumber(rec.epoch) ~= epoch then return {GONE, now, 0} end
local next = waiting(KEYS, now)
if rec.state ~= 'w' then
  rec.state = 'w'
  save(KEYS[2], rec, now)
end
return {WATCHED, now, next and next.session ~= session and 1 or 0}
