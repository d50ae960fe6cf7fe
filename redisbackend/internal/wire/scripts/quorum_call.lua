-- quorum_call: tells the session that is known to wait for a lock that it has been given back.
--
-- KEYS  1 wanted: string, the session  2 hold  3 record (not used)
-- ARGV  1 session that gave it back  2 channel prefix
-- Returns  {code, now}   1 told   0 nobody to tell
-- Keeps    the hold. The message is a hint: it may be lost, and the lock may be another's when it arrives.
-- Twice    the session is told twice.

local session, channel = ARGV[1], ARGV[2]
local TOLD, NOBODY = 1, 0

local now = clock()
local noted = redis.call('GET', KEYS[1])
if noted == session then
  redis.call('DEL', KEYS[1])
  return {NOBODY, now}
end
if not noted or holder(KEYS[2], session) then return {NOBODY, now} end
redis.pcall('PUBLISH', channel .. noted, 'f ' .. KEYS[2])
return {TOLD, now}
