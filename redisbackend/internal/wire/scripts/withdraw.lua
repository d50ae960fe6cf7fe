-- withdraw: a waiter of a condition leaves, because its context ended or its time is up. The reply decides whether the
-- signal came first.
--
-- KEYS  1 tickets  2 signalled  3 terms
-- ARGV  1 session  2 ticket
-- Returns  {code, now}   1 withdrawn   2 it was signalled before   3 it was not there
-- Keeps    no signal is lost on a waiter that has left: a waiter that was signalled before stays signalled.
-- Twice    the second run finds nothing, or the signal again.
-- Late     no ticket is used twice: a late run finds its own ticket or none.

local WITHDRAWN, SIGNALLED, NOTHING = 1, 2, 3

local now = clock()
local member = ARGV[1] .. ':' .. ARGV[2]
local code, terms = NOTHING, redis.pcall('HEXISTS', KEYS[3], member)
if type(terms) == 'table' then return terms end
if redis.call('ZREM', KEYS[1], member) == 1 then
  code = WITHDRAWN
  redis.call('HDEL', KEYS[3], member)
elseif redis.call('ZSCORE', KEYS[2], member) then
  code = SIGNALLED
end
return {code, now}
