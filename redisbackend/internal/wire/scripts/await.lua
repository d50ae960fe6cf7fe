-- await: gives up a hold and takes a place among the waiters for a condition, in one run.
--
-- KEYS  1 hold  2 record  3 queue  4 waiters  5 tickets  6 signalled  7 terms
-- ARGV  1 session  2 epoch of the hold  3 ticket: an epoch of its own, by which the waiter is known
--       4 owner  5 holds to come back with  6 highest token this session has seen
--       7 patience, ms  8 grant TTL, ms  9 channel prefix  10 seconds that everything is kept
--       11 doubt, us: for this long from now on a copy of an attempt up to the hold's may be under way; 0: none is
-- Returns  {code, now}   1 waiting   2 signalled already (this is a resend)   3 gone: the hold was not there
--          or the error FARTOKEN, and nothing is touched
-- Keeps    a ticket is taken only by the run that gives up the hold, so a resend does not wait again after its signal.
-- Twice    the second run finds the ticket, or that it was signalled.
-- Late     no epoch gets the lock a second time: without its hold a run gives up nothing and takes no ticket.

local session, epoch, ticket = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local WAITING, SIGNALLED, GONE = 1, 2, 3

local now = clock()
local rec, field, mine = look(KEYS, session)
if rec.err then return rec end
local member = session .. ':' .. ticket
if not mine or rec.session ~= session or tonumber(rec.epoch) ~= epoch then
  if redis.call('ZSCORE', KEYS[5], member) then return {WAITING, now} end
  if redis.call('ZSCORE', KEYS[6], member) then return {SIGNALLED, now} end
  return {GONE, now}
end

local refused = far(rec, now, 1, ARGV[6]) or mistyped(KEYS, 5)
if refused then return refused end
redis.call('HSET', KEYS[7], member, text(now + tonumber(ARGV[7]) * 1000) .. ' ' .. ARGV[7] .. ' ' .. ARGV[8] .. ' '
  .. ARGV[5] .. ' 1 ' .. ARGV[6] .. ' ' .. ARGV[10] .. ' ' .. ARGV[4])
-- Tokens rise with every hold, so they are the order of arrival.
redis.call('ZADD', KEYS[5], text(rec.first), member)
outlast(KEYS[5], ARGV[10])
outlast(KEYS[7], ARGV[10])
local doubt = tonumber(ARGV[11])
if doubt > 0 then
  entomb(rec, session, epoch, now + doubt, now)
  rec.keep = longer(rec.keep, ARGV[10])
end
local free = vacate(KEYS, rec, now, field, ARGV[9], doubt > 0)
--redisson if free then freed(KEYS[1]) end
return {WAITING, now}
