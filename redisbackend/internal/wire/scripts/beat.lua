-- beat: a session's heartbeat for its waiters of one condition. It returns which of them were signalled, in case the
-- message was lost, and takes back signals that other sessions did not acknowledge in time.
--
-- KEYS  1 hold  2 record  3 queue  4 waiters  5 tickets  6 signalled  7 terms
-- ARGV  1 session  2 channel prefix  3 number of tickets  4 "1" if all sessions listen here
--       then the tickets, then the tickets of owners that have the lock again: their signals are acknowledged
-- Returns  {now, code...}   1 waits   2 does not wait any more: it was signalled, or given up for dead
-- Keeps    a lock that is free goes to the first live waiter; the record outlasts the waits, so that the name stays a
--          Lock's.
-- Twice    deadlines move.
-- Late     tickets that are gone stay gone; the deadlines of the others count from when the run begins.

local WAITS, OVER = 1, 2
local session, channel = ARGV[1], ARGV[2]

local now = clock()
local rec, field = look(KEYS, session)
if rec.err then return rec end
local answer = {now}
local last, kept = 4 + tonumber(ARGV[3]), '0'
for i = 5, last do
  local member = session .. ':' .. ARGV[i]
  local raw = redis.call('HGET', KEYS[7], member)
  local patience, rest = string.match(raw or '', '^%d+ (%d+)(.*)$')
  local code = OVER
  if patience then
    local till = text(now + tonumber(patience) * 1000)
    kept = longer(kept, string.match(rest, '^ %d+ %d+ %d+ %d+ (%d+)') or '0')
    if redis.call('ZSCORE', KEYS[5], member) then
      redis.call('HSET', KEYS[7], member, till .. ' ' .. patience .. rest)
      code = WAITS
    elseif redis.call('ZSCORE', KEYS[6], member) then
      redis.call('ZADD', KEYS[6], till, member)
    end
  end
  answer[i - 3] = code
end
if kept ~= '0' then
  for i = 5, 7 do outlast(KEYS[i], kept) end
  if rec.keep ~= '0' then outlast(KEYS[2], retention(rec, now)) end -- the name stays a Lock's
end
local served = {}
for i = last + 1, #ARGV do
  local member = session .. ':' .. ARGV[i]
  served[member] = true
  take(6, member)
  take(7, member)
end

recall(KEYS, now, channel, field, ARGV[4] == '1', served)
clean(KEYS)
if field then return answer end
local next, dead = waiting(KEYS, now)
if next then grant(KEYS, rec, now, next, dead, channel) end
return answer
