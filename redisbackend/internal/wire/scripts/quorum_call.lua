-- quorum_call: sends a message that a lock was given back, to the session of which this node knows that it waits.
--
-- KEYS  1 wanted: string, the session  2 hold  3 record (read if a run that stopped left two fields)
-- ARGV  1 session that gave it back  2 channel prefix
-- Returns  {code, now}   1 sent   0 no session waits
-- Keeps    the hold. The message is a hint: it may be lost, and another session may have the lock when it arrives.
-- Twice    the session gets two messages.
-- Late     the session gets one message too many.

local session, channel = ARGV[1], ARGV[2]
local SENT, NONE = 1, 0

local now = clock()
local noted = redis.call('GET', KEYS[1])
if noted == session then
  redis.call('DEL', KEYS[1])
  return {NONE, now}
end
if not noted or holder({KEYS[2], KEYS[3]}, session) then return {NONE, now} end
redis.pcall('PUBLISH', channel .. noted, 'f ' .. KEYS[2])
return {SENT, now}
