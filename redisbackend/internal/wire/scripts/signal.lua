-- signal: wakes the longest waiter of a condition, or all of them, on behalf of a hold. All of them are woken BATCH by
-- BATCH, a run each: Redis does nothing else meanwhile.
--
-- KEYS  1 hold  2 record  3 queue  4 waiters  5 tickets  6 signalled  7 terms
-- ARGV  1 session  2 epoch of the hold  3 op: counts up within the epoch, together with reenter's
--       4 "1" for all of them, "0" for one  5 channel prefix  6 "1" if all sessions listen here
-- Returns  {code, now, tickets of this session that were signalled...}   1 done   2 gone: no such hold
--          3 more: there are waiters left, for another run with a higher op. None can be new: waiters had the hold.
-- Keeps    a signal goes to a live waiter or, if there is none, has no effect.
-- Twice    op is not above the last one: no waiter is signalled. The code is that of the present state.
-- Late     op is not above that of a later one, and another epoch than that of the hold signals no waiter.

local session, epoch, op = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local all = ARGV[4] == '1'
local DONE, GONE, MORE = 1, 2, 3

local now = clock()
local rec = record(redis.call('GET', KEYS[2]))
local field, mine = holder(KEYS[1], session)
if not mine or rec.session ~= session or tonumber(rec.epoch) ~= epoch then return {GONE, now} end

-- done is the code of a run that has found its hold.
local function done()
  return all and redis.call('ZRANGE', KEYS[5], '0', '0')[1] and MORE or DONE
end

if op <= tonumber(rec.op) then return {done(), now} end
rec.op = ARGV[3]
save(KEYS[2], rec, now)

local listening = ARGV[6] == '1'
recall(KEYS, now, ARGV[5], field, listening)
local answer = {DONE, now}
if all then
  for _, member in ipairs(redis.call('ZRANGE', KEYS[5], '0', BATCH - 1)) do
    local whose, ticket = wake(KEYS, now, ARGV[5], field, member)
    if whose == session then answer[#answer + 1] = ticket end
  end
else
  local whose, ticket = notify(KEYS, now, ARGV[5], field, listening)
  if whose == session then answer[#answer + 1] = ticket end
end
answer[1] = done()
return answer
