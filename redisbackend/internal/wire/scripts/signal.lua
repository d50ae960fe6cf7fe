-- signal: wakes the longest waiter of a condition, or all waiters, on behalf of a hold. Redis does nothing else during
-- a run, so a run wakes BATCH waiters at most, and the session sends another run for the rest.
--
-- KEYS  1 hold  2 record  3 queue  4 waiters  5 tickets  6 signalled  7 terms
-- ARGV  1 session  2 epoch of the hold  3 op: counts up within the epoch, together with reenter's
--       4 "1" for all of them, "0" for one  5 channel prefix  6 "1" if all sessions listen here
-- Returns  {code, now, tickets of this session that were signalled...}   1 done   2 gone: no such hold
--          3 more: waiters are left, for another run with a higher op. None came since, as only a holder can wait.
-- Keeps    a signal goes to a live waiter or, if there is none, has no effect. A copy of a run that stopped half-way
--          goes on with it: it signals the same waiters, or one more.
-- Twice    op is not above the record's op: no waiter is signalled. The code is that of the present state.
-- Late     after a later run of the epoch no waiter is signalled, since op is not above the record's; nor if another
--          epoch has the lock.

local session, epoch, op = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local all = ARGV[4] == '1'
local DONE, GONE, MORE = 1, 2, 3

local now = clock()
local rec, field, mine = look(KEYS, session)
if rec.err then return rec end
if not mine or rec.session ~= session or tonumber(rec.epoch) ~= epoch then return {GONE, now} end

if op <= tonumber(rec.op) then return {all and next_waiter(KEYS, now, ARGV[5], false) and MORE or DONE, now} end

local refused = mistyped(KEYS, 4)
if refused then return refused end
local listening = ARGV[6] == '1'
recall(KEYS, now, ARGV[5], field, listening)
local answer, i = {DONE, now}, 0
local function signalled(whose, number)
  if whose == session then answer[#answer + 1] = number end
end
if all then
  local left = BATCH
  repeat
    i = i + 1
    local member = ticket(KEYS, i)
    if member and left == 0 then answer[1] = MORE end
    if member and left > 0 and not taken[member] then
      left = left - 1
      signalled(wake(KEYS, now, ARGV[5], field, member))
    end
  until not member or answer[1] == MORE
else
  signalled(notify(KEYS, now, ARGV[5], field, listening))
end
clean(KEYS)
-- The op is saved when all is done, so that a copy of a run that stopped goes on with the operation.
rec.op = ARGV[3]
save(KEYS[2], rec, now)
return answer
